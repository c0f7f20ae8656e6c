"""Whether the recorded steps were fed from batches that were made before them."""

from __future__ import annotations

import msgspec

from traceprobe.formatting import significant
from traceprobe.verdict.thresholds import FIXED


class MadeBefore(msgspec.Struct, frozen=True):
    """Recorded steps that are shorter than their batches take to be made.

    No loop does that for longer than a queue of ready batches lasts, which the workers of a loader
    fill while a profiler starts.

    Args:
        load_ms: time in which all workers together make the batches of a step.
        step_ms: the step in the capture.
        unseen_ms: waiting for data in a step without a profiler that the capture does not show;
            None where that step is no longer than the captured one.
    """

    load_ms: float
    step_ms: float
    unseen_ms: float | None

    @property
    def hidden(self) -> float:
        """Part of a step without a profiler in which it waits for data, and the capture does not.

        At the loader's own pace, where that step is no longer than the captured one.
        """
        if self.unseen_ms is None:
            return 1 - self.step_ms / self.load_ms
        return self.unseen_ms / (self.step_ms + self.unseen_ms)

    @property
    def sentence(self) -> str:
        """What it means for the verdict."""
        fed = (
            "the recorded steps were fed from batches made before: the loader needs "
            f"{significant(self.load_ms)} ms for those of a step, and a step took "
            f"{significant(self.step_ms)} ms"
        )
        if self.unseen_ms is None:
            return f"{fed}; how long the run waits for data is not known"
        return (
            f"{fed}; the {significant(self.unseen_ms)} ms that it takes longer without the "
            "profiler count as waiting for data"
        )


def made_before(
    load_ms: float | None,
    step_ms: float | None,
    unprofiled_ms: float | None,
    *,
    timed: bool = False,
) -> MadeBefore | None:
    """The same, where the times say so.

    Args:
        load_ms: None where nothing is known of the loader.
        step_ms, unprofiled_ms: the step with and without the profiler; None where not known.
        timed: whether waiting for data was timed without the profiler: then nothing has to be
            concluded from how long the loader needs.
    """
    if load_ms is None or step_ms is None or unprofiled_ms is None or timed:
        return None
    if load_ms < FIXED.distortion * step_ms or load_ms > FIXED.loader_most * unprofiled_ms:
        return None
    longer = unprofiled_ms >= FIXED.distortion * step_ms
    return MadeBefore(load_ms, step_ms, unprofiled_ms - step_ms if longer else None)
