"""What is done with the iterations of a program that does not use the recorder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from traceprobe.capture.ablation_plan import AblationPlan
from traceprobe.capture.probe_plan import ProbePlan
from traceprobe.capture.recording_plan import RecordingPlan
from traceprobe.capture.recording_session import RecordingSession
from traceprobe.capture.watch_plan import WatchPlan


class LoopSession(Protocol):
    """Told of every iteration of a loop by the update that ends it."""

    def before_step(self, number: int) -> bool:
        """Iteration `number` is about to begin; False where the program has done its part."""


def session_of_process() -> Callable[[], LoopSession] | None:
    """What starts the session that this process was asked for; None where it was asked for none."""
    if (recording := RecordingPlan.current()) is not None:
        return lambda: RecordingSession(recording, updates_counted=True)
    if (ablation := AblationPlan.current()) is not None:
        from traceprobe.capture.oracle.program_ablation import ProgramAblation

        return lambda: ProgramAblation(ablation, updates_counted=True)
    if (probes := ProbePlan.current()) is not None:
        from traceprobe.capture.oracle.program_probes import ProgramProbes

        return lambda: ProgramProbes(probes, updates_counted=True)
    if (watch := WatchPlan.current()) is not None:
        from traceprobe.capture.watch.watch_session import WatchSession

        return lambda: WatchSession(watch)
    return None
