"""One probing from start to what its ranks measured; nothing left behind on failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from traceprobe.capture.ablation_plan import shortfall
from traceprobe.capture.environment import program_environment
from traceprobe.capture.launch import rank_command, run_program
from traceprobe.capture.probe_plan import ProbePlan, RankProbes, probe_results
from traceprobe.capture.program import workspace
from traceprobe.capture.progress import all_ranks_done
from traceprobe.capture.run_ablation import too_few
from traceprobe.errors import UsageError


def run_probes(
    program: list[str],
    plan: ProbePlan,
    processes: int | None,
    folder: Path,
    on_state: Callable[[str], None],
    on_note: Callable[[str], None],
) -> dict[int, RankProbes]:
    """What each rank measured, by rank, after the program has run through its blocks.

    Args:
        program: command line; with `processes` a Python script and its arguments.
        plan: number and length of the blocks; its folder is filled in here.
        processes: ranks to start on this machine; None runs the program as it is.
        folder: where temporary files may be.
        on_state: called with what the program is doing.
        on_note: called with how a program failed whose blocks were complete before; they are kept.

    Raises:
        UsageError: the program made too few steps, or none that an optimizer ends.
        RecordingFailed: the program failed.
    """
    with workspace(folder) as work:
        plan = replace(plan, folder=str(work))
        command = rank_command(program, processes, work)
        environment = program_environment(plan.VARIABLE, plan.save())
        end = run_program(command, environment, work, on_state, on_note)
        if not all_ranks_done(work, processes):
            end.expect_success()
        results, short = probe_results(work), shortfall(work)
    if not results:
        raise UsageError(too_few(short))
    end.note_failure("the probes were complete", on_note)
    return results
