"""Recording the rungs of a ladder one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from traceprobe.capture.machine import visible_gpus
from traceprobe.capture.process.launch import RecordingFailed
from traceprobe.capture.recording import run_recording
from traceprobe.capture.recording.recording_files import recording_files
from traceprobe.compare.run import NothingToCompare, observe, summarize
from traceprobe.errors import TraceprobeError, UsageError
from traceprobe.records.comparison import RunSummary
from traceprobe.records.sweep import RungResult, Sweep
from traceprobe.render.save import save_text
from traceprobe.sweep.changes import COMPARISON
from traceprobe.sweep.ladder import Rung
from traceprobe.sweep.recording import analyze_recording
from traceprobe.sweep.results import RESULT, result_of, sweep_of
from traceprobe.sweep.settings import SweepSettings

Say = Callable[[str], None]
"""Takes a line for the person who waits."""


def sweep(
    settings: SweepSettings,
    rungs: Sequence[Rung],
    earlier: Mapping[str, RungResult],
    on_state: Say,
    on_warning: Say,
) -> Sweep:
    """Run the rungs; one that fails does not end the others.

    `sweep.json` is written after every rung, so that an interrupted sweep can be resumed.

    Args:
        earlier: results that still hold, by name; those that were measured are not run again.
        on_state: takes what is being done. on_warning: takes what went wrong.

    Raises:
        UsageError: no rung can be recorded here at all.
    """
    results = dict(earlier)
    due = [rung for rung in rungs if rung.name not in earlier or earlier[rung.name].run is None]
    for rung in due:
        run_recording.check_recording_request(settings.request(rung))
    # Ranks without a GPU run on the CPU.
    gpus = visible_gpus.visible_gpus() if any(rung.ranks > 1 for rung in due) else 0
    for number, rung in enumerate(due, 1):

        def say(text: str, where: str = f"rung {rung.name} ({number} of {len(due)})") -> None:
            on_state(f"{where}: {text}")

        results[rung.name] = _result(settings, rung, gpus, say, on_warning)
        record = sweep_of(settings, results)
        save_text(settings.folder / RESULT, record.to_json(), replace=True)
    return sweep_of(settings, results)


def _result(
    settings: SweepSettings, rung: Rung, gpus: int, on_state: Say, on_warning: Say
) -> RungResult:
    if 0 < gpus < rung.ranks:
        reason = f"needs {rung.ranks} GPUs; {gpus} visible"
        on_state(f"skipped: {reason}")
        return result_of(settings, rung, "skipped", reason)
    try:
        run = _run(settings, rung, on_state, on_warning)
    except (TraceprobeError, OSError) as error:
        on_warning(f"traceprobe: rung {rung.name} failed: {error}")
        return result_of(settings, rung, "failed", _kind(error))
    return result_of(settings, rung, "measured", run=run)


def _run(settings: SweepSettings, rung: Rung, on_state: Say, on_warning: Say) -> RunSummary:
    """Record a rung in its folder, analyse it, and take from it what can be compared."""
    folder = settings.folder / rung.name
    folder.mkdir(exist_ok=True)
    compared = [folder / name for name in COMPARISON]
    try:
        traces = run_recording.run_recording(settings.request(rung), folder, on_state, on_warning)
    except (TraceprobeError, OSError):
        # What an earlier sweep made of this rung would be taken for its result.
        _remove([*recording_files(folder), *compared])
        raise
    _remove(compared)
    on_state("analysing")
    return summarize(observe(analyze_recording(traces, folder), rung.name))


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _kind(error: Exception) -> str:
    """What a record may say of a failure: not what the program said, and no folder."""
    if isinstance(error, RecordingFailed):
        return error.kind
    if isinstance(error, NothingToCompare):
        return "too few steps to compare"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return "it was not recorded" if isinstance(error, UsageError) else "it could not be analysed"
