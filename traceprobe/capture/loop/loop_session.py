"""What is done with the iterations of a program that does not use the recorder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from traceprobe.capture.oracle.ablation_plan import AblationPlan
from traceprobe.capture.oracle.probe_plan import ProbePlan
from traceprobe.capture.process.progress import all_ranks_done, claim_rank
from traceprobe.capture.recording.recording_plan import RecordingPlan
from traceprobe.capture.recording.recording_session import RecordingSession
from traceprobe.capture.watch.watch_plan import WatchPlan


class LoopSession(Protocol):
    """Told of every iteration of a loop by the update that ends it."""

    def before_step(self, number: int) -> bool:
        """Iteration `number` is about to begin; False where the program has done its part."""


ASKED_EVERY = 16
"""Updates between two looks of a bystander."""


class Bystander:
    """In a process whose rank is measured in another one: it trains on until that one is done."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def before_step(self, number: int) -> bool:
        """Whether the program goes on."""
        return number % ASKED_EVERY > 0 or not all_ranks_done(self._folder, None)


def _first_of_rank(folder: str, start: Callable[[], LoopSession]) -> LoopSession:
    return start() if claim_rank(folder) else Bystander(folder)


def folder_of_process() -> str | None:
    """Where this process tells the one that started it how far it is; None where none asked."""
    plan = RecordingPlan.current() or AblationPlan.current() or ProbePlan.current()
    return None if plan is None else plan.folder


def session_of_process() -> Callable[[], LoopSession] | None:
    """What starts the session that this process was asked for; None where it was asked for none."""
    if (recording := RecordingPlan.current()) is not None:
        return lambda: _first_of_rank(
            recording.folder, lambda: RecordingSession(recording, updates_counted=True)
        )
    if (ablation := AblationPlan.current()) is not None:
        from traceprobe.capture.oracle.program_ablation import ProgramAblation

        return lambda: _first_of_rank(
            ablation.folder, lambda: ProgramAblation(ablation, updates_counted=True)
        )
    if (probes := ProbePlan.current()) is not None:
        from traceprobe.capture.oracle.program_probes import ProgramProbes

        return lambda: _first_of_rank(
            probes.folder, lambda: ProgramProbes(probes, updates_counted=True)
        )
    if (watch := WatchPlan.current()) is not None:
        from traceprobe.capture.watch.watch_session import WatchSession

        return lambda: WatchSession(watch)
    return None
