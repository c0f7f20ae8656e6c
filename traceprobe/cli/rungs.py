"""Recording the rungs of a ladder one after the other, and keeping account of them."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from traceprobe.capture.recording_files import REPORT
from traceprobe.cli.console import warn
from traceprobe.cli.profile import analyze
from traceprobe.errors import DamagedRecord, OtherVersion, TraceprobeError, UsageError

if TYPE_CHECKING:
    from traceprobe.capture.ladder import Ladder, Rung
    from traceprobe.capture.run_recording import RecordingRequest
    from traceprobe.records.comparison import Comparison, RunSummary
    from traceprobe.records.ladder import Ladder as Chain
    from traceprobe.records.sweep import RungResult, State, Sweep

RESULT = "sweep.json"
LADDER = ("ladder.html", "ladder.json")
_FOLDER = "--data-folder"
COMPARISON = ("compare.html", "compare.json")
"""Of a side rung with the rung that it builds on, in its folder."""


@dataclass(frozen=True)
class Climb:
    """How the rungs of a ladder are run.

    Args:
        backend: which profiler records.
        extra: settings from the command line, after those of every rung.
        folder: where each rung has a folder of its own.
        replace: whether recordings take the place of older ones there.
    """

    ladder: Ladder
    backend: str
    extra: Sequence[str]
    folder: Path
    replace: bool = False

    def request(self, rung: Rung) -> RecordingRequest:
        """What `traceprobe profile` would be asked for.

        Raises:
            UsageError: PyTorch is missing.
        """
        from traceprobe.capture.recording_plan import RecordingPlan
        from traceprobe.capture.run_recording import RecordingRequest
        from traceprobe.cli.program import chosen

        ladder, settings = self.ladder, self.settings(rung)
        program, name = chosen(ladder.workload, settings, "sweep")
        plan = RecordingPlan(
            folder="",
            backend="nsys" if self.backend == "nsys" else "torch",
            warmup=ladder.warmup,
            calibrate=ladder.calibrate,
            active=ladder.active,
            workload={"name": name},
        )
        ranks = rung.ranks if rung.ranks > 1 else None
        return RecordingRequest(program, plan, ranks, rung.environment, self.replace)

    def settings(self, rung: Rung) -> list[str]:
        """The settings of a rung on the command line."""
        return [*rung.arguments, *self.extra]


def measure(
    climb: Climb,
    chosen: Sequence[Rung],
    before: Mapping[str, RungResult],
    on_state: Callable[[str], None],
) -> Sweep:
    """Run the chosen rungs; one that fails does not end the others.

    `sweep.json` is written after every rung, so that an interrupted sweep can be resumed.

    Args:
        before: results that hold still, by name; those that were measured are not run again.

    Raises:
        UsageError: no rung can be recorded here at all.
    """
    from traceprobe.cli import outputs

    results = dict(before)
    due = [rung for rung in chosen if rung.name not in before or before[rung.name].run is None]
    _check(climb, due)
    gpus = _gpus(due)
    for number, rung in enumerate(due, 1):
        say = partial(_say, on_state, f"rung {rung.name} ({number} of {len(due)})")
        results[rung.name] = _outcome(climb, rung, gpus, say)
        outputs.save(climb.folder / RESULT, record(climb, results).to_json(), force=True)
    return record(climb, results)


def record(climb: Climb, results: Mapping[str, RungResult]) -> Sweep:
    """The results in the order of the ladder."""
    from traceprobe.records.sweep import Sweep
    from traceprobe.version import __version__

    ladder = climb.ladder
    return Sweep(
        schema_version=Sweep.SCHEMA_VERSION,
        traceprobe_version=__version__,
        ladder=ladder.name,
        workload=ladder.workload,
        backend=climb.backend,
        warmup=ladder.warmup,
        calibrate=ladder.calibrate,
        active=ladder.active,
        rungs=[results[rung.name] for rung in ladder.rungs if rung.name in results],
    )


def kept(climb: Climb) -> dict[str, RungResult]:
    """What an earlier sweep left in the folder of the rungs as they are now, by name.

    Raises:
        UsageError: its `sweep.json` is damaged.
    """
    import msgspec

    from traceprobe.records.sweep import Sweep
    from traceprobe.system.reading import read_saved

    path = climb.folder / RESULT
    if not path.exists():
        return {}
    try:
        earlier = Sweep.from_json(read_saved(path))
    except (
        *(msgspec.MsgspecError, UnicodeDecodeError, RecursionError),
        *(DamagedRecord, OtherVersion),
    ) as error:
        raise UsageError(
            f"{path}: is none that traceprobe sweep wrote ({error}); overwrite with --force"
        ) from error
    there = {result.name: result for result in earlier.rungs}
    if record(climb, {}) != msgspec.structs.replace(earlier, rungs=[]):
        return {}
    return {
        rung.name: there[rung.name]
        for rung in climb.ladder.rungs
        if rung.name in there and _holds(climb, rung, there[rung.name])
    }


def chain(climb: Climb, sweep: Sweep) -> Chain | None:
    """Write what the changes gained, of the rungs that are no side rungs.

    A rung that was not measured is in the ladder with the reason, and its change is part of that of
    the next one.

    Returns:
        The ladder; None where not a rung of it was measured.
    """
    from traceprobe.cli import outputs
    from traceprobe.cli.runs import read_all
    from traceprobe.compare.ladder import ladder
    from traceprobe.records.ladder import Missing

    measured = _measured(sweep)
    told: list[tuple[str, str]] = []
    pending: list[str] = []
    for rung in climb.ladder.rungs:
        if rung.side:
            continue
        pending.append(rung.change)
        if rung.name in measured:
            told.append((rung.name, "; ".join(pending) if told else rung.change))
            pending = []
    if not told:
        return None
    found = ladder(
        read_all([f"{name}={climb.folder / name}" for name, _ in told], quiet=True),
        [change for _, change in told],
        [
            Missing(change=result.change, label=result.name, reason=result.reason)
            for result in sweep.rungs
            if result.reason is not None
        ],
        climb.ladder.name,
    )
    outputs.write(found, [climb.folder / name for name in LADDER], force=True)
    return found


def aside(climb: Climb, sweep: Sweep) -> dict[str, Comparison]:
    """Compare each side rung with the rung that it builds on, where both were measured.

    Returns:
        The comparisons, by the name of the side rung; each is also left in its folder.
    """
    from traceprobe.cli import outputs
    from traceprobe.cli.runs import read_all
    from traceprobe.compare.compare import compare

    measured = _measured(sweep)
    found = {}
    for result in sweep.rungs:
        if result.side and {result.name, result.base} <= measured:
            names = (result.base, result.name)
            base, new = read_all([f"{name}={climb.folder / name}" for name in names], quiet=True)
            found[result.name] = compare(base, new)
            targets = [climb.folder / result.name / name for name in COMPARISON]
            outputs.write(found[result.name], targets, force=True)
    return found


def _measured(sweep: Sweep) -> set[str]:
    return {result.name for result in sweep.rungs if result.run is not None}


def _holds(climb: Climb, rung: Rung, result: RungResult) -> bool:
    """Whether a result is of the rung as it is now, and its report still there."""
    digest = _digest(rung, salt=result.environment_digest.partition(":")[0])
    same = _result(climb, rung, digest, result.state, result.reason, result.run) == result
    reports = [climb.folder / rung.name / name for name in REPORT]
    return same and (result.run is None or all(path.is_file() for path in reports))


def _check(climb: Climb, rungs: Sequence[Rung]) -> None:
    from traceprobe.capture.run_recording import check_recording_request

    for rung in rungs:
        check_recording_request(climb.request(rung))


def _gpus(rungs: Sequence[Rung]) -> int:
    """GPUs here, where any rung needs several; ranks without a GPU run on the CPU."""
    from traceprobe.capture.visible_gpus import visible_gpus

    return visible_gpus() if any(rung.ranks > 1 for rung in rungs) else 0


def _say(on_state: Callable[[str], None], where: str, text: str) -> None:
    on_state(f"{where}: {text}")


def _outcome(climb: Climb, rung: Rung, gpus: int, on_state: Callable[[str], None]) -> RungResult:
    from traceprobe.compare.run import NothingToCompare

    if 0 < gpus < rung.ranks:
        reason = f"needs {rung.ranks} GPUs; {gpus} visible"
        on_state(f"skipped: {reason}")
        return _result(climb, rung, _digest(rung), "skipped", reason)
    try:
        run = _run(climb, rung, on_state)
    except (TraceprobeError, NothingToCompare, OSError) as error:
        warn(f"traceprobe: rung {rung.name} failed: {error}")
        return _result(climb, rung, _digest(rung), "failed", _kind(error))
    return _result(climb, rung, _digest(rung), "measured", run=run)


def _kind(error: Exception) -> str:
    """What a record may say of a failure: not what the program said, and no folder."""
    from traceprobe.capture.launch import RecordingFailed
    from traceprobe.compare.run import NothingToCompare

    if isinstance(error, RecordingFailed):
        return error.kind
    if isinstance(error, NothingToCompare):
        return "too few steps to compare"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return "it was not recorded" if isinstance(error, UsageError) else "it could not be analysed"


def _digest(rung: Rung, salt: str = "") -> str:
    """The variables of a rung, known again but not read: they may hold secrets.

    Args:
        salt: of an earlier digest, to compare with.
    """
    if not rung.environment:
        return ""
    salt = salt or secrets.token_hex(8)
    text = json.dumps(dict(rung.environment), sort_keys=True).encode()
    return f"{salt}:{hashlib.scrypt(text, salt=salt.encode(), n=2**14, r=8, p=1).hex()}"


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _run(climb: Climb, rung: Rung, on_state: Callable[[str], None]) -> RunSummary:
    """Record a rung in its folder, analyse it, and take from it what can be compared."""
    from traceprobe.capture.recording_files import recording_files
    from traceprobe.capture.run_recording import run_recording as recorded
    from traceprobe.compare.run import observe, summarize

    folder = climb.folder / rung.name
    folder.mkdir(exist_ok=True)
    compared = [folder / name for name in COMPARISON]
    try:
        traces = recorded(climb.request(rung), folder, on_state, warn)
    except (TraceprobeError, OSError):
        # What an earlier sweep made of this rung would be taken for its result.
        _remove([*recording_files(folder), *compared])
        raise
    _remove(compared)
    on_state("analysing")
    return summarize(observe(analyze(traces, folder, None), rung.name))


def _recorded(settings: Sequence[str]) -> list[str]:
    """The settings of a run without those that only say where something lies on this machine."""
    found: list[str] = []
    words = iter(settings)
    for word in words:
        if word == _FOLDER:
            next(words, None)
        elif not word.startswith(f"{_FOLDER}="):
            found.append(word)
    return found


def _result(
    climb: Climb,
    rung: Rung,
    digest: str,
    state: State,
    reason: str | None = None,
    run: RunSummary | None = None,
) -> RungResult:
    from traceprobe.records.sweep import RungResult

    return RungResult(
        name=rung.name,
        change=rung.change,
        side=rung.side,
        base=rung.base,
        ranks=rung.ranks,
        arguments=_recorded(climb.settings(rung)),
        environment_digest=digest,
        state=state,
        reason=reason,
        run=run,
    )
