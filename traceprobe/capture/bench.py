"""One ablation from start to the results of its ranks; nothing left behind on failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from traceprobe.capture import launch
from traceprobe.capture.plan import complete
from traceprobe.capture.program import environment, python_of, workspace
from traceprobe.capture.trials import VARIABLE, RankTrials, Trials, results
from traceprobe.errors import UsageError


@dataclass(frozen=True)
class Request:
    """What to ablate.

    Args:
        program: command line; with `processes` a Python script and its arguments.
        trials: their number and length; the folder is filled in here.
        processes: ranks to start on this machine; None runs the program as it is.
    """

    program: list[str]
    trials: Trials
    processes: int | None = None


def measure(
    request: Request,
    folder: Path,
    on_state: Callable[[str], None],
    on_note: Callable[[str], None],
) -> dict[int, RankTrials]:
    """Run the program through its trials.

    Args:
        folder: where temporary files may be.
        on_state: told what the program is doing.
        on_note: told how a program failed whose trials were complete before, which are kept.

    Returns:
        What each rank measured.

    Raises:
        UsageError: the program does not use the recorder, or made too few steps.
        RecordingFailed: the program failed.
    """
    with workspace(folder) as work:
        trials = replace(request.trials, folder=str(work))
        command = request.program
        if request.processes is not None:
            command = launch.distributed(python_of(command), command, request.processes, work)
        on_state("starting")
        variables = environment(VARIABLE, trials.save())
        ended = launch.run(command, variables, work, on_state, on_note)
        if not complete(work, request.processes):
            ended.expect_success()
        found = results(work)
    if not found:
        raise UsageError(
            "the program ended before its trials did; `for batch in record.steps(loader)` with "
            "`record = traceprobe.capture.recorder()` must be its training loop and run to its "
            "end, and the loader must give batches as often as it is asked (docs/cli.md)"
        )
    if ended.how is not None:
        on_note(f"the trials were complete when {ended.message}")
    return found
