"""The trials of a program from start to what its ranks measured; nothing left behind on failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from traceprobe.capture.process.environment import Plan, program_environment
from traceprobe.capture.process.launch import rank_command, run_program, unseen
from traceprobe.capture.process.program import workspace
from traceprobe.capture.process.progress import all_ranks_done, cut_off, steps_missing
from traceprobe.capture.process.rank_results import AnyResult
from traceprobe.errors import UsageError
from traceprobe.formatting import counted


def run_trials(
    program: list[str],
    plan: Plan,
    measured: type[AnyResult],
    processes: int | None,
    folder: Path,
    on_state: Callable[[str], None],
    on_note: Callable[[str], None],
    on_output: Callable[[str], None] = unseen,
) -> dict[int, AnyResult]:
    """What each rank measured, by rank, after the program has run through its trials.

    Args:
        program: command line; with `processes` a Python script and its arguments.
        plan: number and length of the trials; its folder is filled in here.
        measured: what the ranks leave.
        processes: ranks to start on this machine; None runs the program as it is.
        folder: where temporary files may be.
        on_state: called with what the program is doing.
        on_note: called with how a program failed whose trials were complete before; they are kept.
        on_output: called with the lines that the program writes, as they are shown.

    Raises:
        UsageError: the program made too few steps, or none that an optimizer ends.
        RecordingFailed: the program failed.
    """
    with workspace(folder) as work:
        plan = replace(plan, folder=str(work))
        command = rank_command(program, processes, work)
        environment = program_environment(plan.VARIABLE, plan.save())
        end = run_program(command, environment, work, on_state, on_note, on_output)
        if not all_ranks_done(work, processes):
            end.expect_success()
        results = measured.of_ranks(work)
        reason = "" if results else _too_few(steps_missing(work), cut_off(work))
    if not results:
        raise UsageError(reason)
    end.note_failure("the trials were complete", on_note)
    return results


def _too_few(missing: tuple[int, int] | None, how: str | None) -> str:
    """Why there are no trials, and what helps."""
    if missing is None and how is not None:
        return f"the program ended before its trials did, {how}"
    if missing is None:
        return (
            "the program ended before its trials did: it made no step of an optimizer, nor has it "
            "a loop `for batch in record.steps(loader)` with traceprobe's recorder (docs/cli.md)"
        )
    seen, needed = missing
    return (
        f"the program ended after {counted(seen, 'step', 'steps')}, and its trials need about "
        f"{needed:,}; let it train for longer, or ask for fewer and shorter trials (--trials, "
        "--seconds)"
    )
