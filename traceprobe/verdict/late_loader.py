"""Ranks that wait for the loader of one, in steps without the profiler alone.

Batches that lie ready hide a slow loader from a short capture, in which another rank may be last.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET
from msgspec.structs import replace

from traceprobe.records.rank import Rank
from traceprobe.records.run import Run
from traceprobe.verdict.compared_steps import timed_waits_ns, unseen_waits_ns


def with_late_loader(run: Run | None, ranks: Sequence[Rank]) -> Run | None:
    """The run with the rank whose loader the others wait for as its straggler, where one is.

    It is where this takes longer than all the waiting for ranks in the capture.

    Args:
        ranks: all of them, with what they wait for their loaders without the profiler.
    """
    waits_ns = timed_waits_ns(ranks)
    if run is None or run.skew_ns is None or len(waits_ns) < max(run.world_size, 2):
        return run
    more = unseen_waits_ns(ranks, waits_ns)
    late = max(more, key=lambda number: more[number])
    held_ns = more[late] - max([0.0, *(ns for number, ns in more.items() if number != late)])
    if held_ns <= run.skew_ns:
        return run
    return replace(
        run,
        straggler_rank=late,
        straggler_cause="io",
        late_ranks=UNSET,
        straggler_wait_ns=UNSET,
        unseen_skew_ms=round(held_ns / 1e6, 6),
    )
