"""Whether the recorded steps were fed from batches that were made before them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from traceprobe.formatting import significant
from traceprobe.records.rank import Rank
from traceprobe.verdict.thresholds import FIXED


class MadeBefore(msgspec.Struct, frozen=True):
    """Recorded steps that are shorter than their batches take to be made, or may be.

    No loop does that for longer than a queue of ready batches lasts, which the workers of a loader
    fill while a profiler starts.

    Args:
        load_ms: time in which all workers together make the batches of a step; None where that is
            not known, and concluded from how much longer a step takes without a profiler.
        step_ms: the step in the capture.
        unseen_ms: waiting for data in a step without a profiler that the capture does not show;
            None where that step is no longer than the captured one.
    """

    load_ms: float | None
    step_ms: float
    unseen_ms: float | None

    @property
    def hidden(self) -> float:
        """Part of a step without a profiler in which it waits for data, and the capture does not.

        At the loader's own pace, where that step is no longer than the captured one.
        """
        if self.unseen_ms is not None:
            return self.unseen_ms / (self.step_ms + self.unseen_ms)
        assert self.load_ms is not None  # else it was concluded from what is unseen
        return 1 - self.step_ms / self.load_ms

    @property
    def assumed(self) -> bool:
        """Whether nothing is known of the loader but that its workers make batches ahead."""
        return self.load_ms is None

    @property
    def sentence(self) -> str:
        """What it means for the verdict."""
        if self.load_ms is None:
            return (
                "batches that the loader's workers made before may have fed the recorded steps: "
                f"a step took {significant(self.step_ms)} ms, and without the profiler it takes "
                f"{significant(self.unseen_ms or 0.0)} ms longer, which no profiler does; these "
                "count as waiting for data"
            )
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
    queued: bool = False,
) -> MadeBefore | None:
    """The same, where the times say so.

    A step that takes far longer without the profiler is no step of the capture. Pauses of a host
    and the clock of a GPU lengthen it by less than `queue_least`.

    Args:
        load_ms: None where nothing is known of the loader.
        step_ms, unprofiled_ms: the step with and without the profiler; None where not known.
        timed: whether waiting for data was timed without the profiler: then nothing has to be
            concluded from how long the loader needs.
        queued: whether workers make batches ahead (`may_be_queued`).
    """
    if step_ms is None or unprofiled_ms is None or timed:
        return None
    if load_ms is None:
        long = queued and unprofiled_ms >= FIXED.queue_least * step_ms
        return MadeBefore(None, step_ms, unprofiled_ms - step_ms) if long else None
    if load_ms < FIXED.distortion * step_ms or load_ms > FIXED.loader_most * unprofiled_ms:
        return None
    longer = unprofiled_ms >= FIXED.distortion * step_ms
    return MadeBefore(load_ms, step_ms, unprofiled_ms - step_ms if longer else None)


def may_be_queued(ranks: Sequence[Rank]) -> bool:
    """Whether workers of a loader make batches ahead for iterations each of which is an update.

    One that is only part of an update is shorter than a step for another reason.
    """
    return any(
        rank.summary.host.loader_in_workers is True
        and not rank.summary.host.loader_in_process
        and _always_updates(rank)
        for rank in ranks
    )


def _always_updates(rank: Rank) -> bool:
    used = [each.busy_ns for each in rank.iterations if each.used]
    return bool(used) and all(busy is not None and busy["optimizer"] for busy in used)
