"""What a verdict says of iterations that do more than the others."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UnsetType
from msgspec.structs import replace

from traceprobe.formatting import ordinal, ranges, significant, within_sentence
from traceprobe.model.taxonomy import BOUND_LABELS, CLASS_LABELS
from traceprobe.records.rank import LongIterations
from traceprobe.records.report import Verdict
from traceprobe.verdict.thresholds import FIXED


def with_outlier(
    usual: Verdict,
    whole: Verdict,
    long: Sequence[LongIterations],
    regular_ms: float | None,
    mean_ms: float | None,
) -> Verdict:
    """The verdict of the regular iterations, whose headline names what it leaves out.

    Args:
        usual: the verdict without the long iterations. whole: with them.
        long: those of each rank.
        regular_ms, mean_ms: a regular step and the mean one without the profiler, if known.
    """
    found = max(long, key=lambda each: each.extra_ns)
    count = len(found.indices)
    which = f"{'Iteration' if count == 1 else 'Iterations'} {ranges(found.indices)}"
    length = found.extra_ns / count / 1e6 + found.regular_ms
    left_out = (
        f"{which} took {length:,.0f} ms ({_mostly(found)}), the others "
        f"{significant(found.regular_ms)} ms, and {'is' if count == 1 else 'are'} left out"
    )
    reason = f"{left_out}; with {'it' if count == 1 else 'them'} the verdict would be: " + (
        within_sentence(BOUND_LABELS[whole.bound])
    )
    said = f"{usual.headline} {left_out}."
    if regular_ms and mean_ms and mean_ms / regular_ms >= 1 + FIXED.misfit:
        said += (
            f" Without the profiler a regular step takes {significant(regular_ms)} ms, the mean "
            f"one {significant(mean_ms)} ms."
        )
    return replace(usual, headline=said, reasons=[*usual.reasons, reason])


def with_recurring(
    verdict: Verdict, usual: Verdict, long: Sequence[LongIterations], among: int
) -> Verdict:
    """The verdict of all iterations, whose headline says that some recur and decide it.

    Args:
        usual: the verdict without the long iterations.
        among: all iterations that the verdict is of.
    """
    found = max(long, key=lambda each: each.extra_ns)
    which = (
        f"Every {ordinal(found.every)} iteration takes"
        if found.every is not None
        else f"{how_many(found, among)} take"
    )
    extra = found.extra_ns / len(found.indices) / 1e6
    more = (
        f"{which} {extra:,.0f} ms more than the {significant(found.regular_ms)} ms of the others, "
        f"above all “{_mostly(found)}”"
    )
    otherwise = within_sentence(BOUND_LABELS[usual.bound])
    reason = f"{more}; without that the verdict would be: {otherwise}"
    return replace(
        verdict, headline=f"{verdict.headline} {more}.", reasons=[*verdict.reasons, reason]
    )


def how_many(found: LongIterations, among: int) -> str:
    """How many iterations are long, and what else tells how often they come.

    Args:
        among: all used iterations, regular ones too.
    """
    count = len(found.indices)
    if not isinstance(found.timed_long, UnsetType):
        return (
            f"{count} of {among} recorded iterations and {found.timed_long} of {found.timed_steps} "
            "steps without the profiler"
        )
    if not isinstance(found.period, UnsetType):
        return f"{count} of {among} iterations, of a loop that repeats after {found.period} steps,"
    return f"{count} of {among} iterations"


def _mostly(long: LongIterations) -> str:
    more = long.extra_partition_ns
    return CLASS_LABELS[max(more, key=lambda name: more[name])]
