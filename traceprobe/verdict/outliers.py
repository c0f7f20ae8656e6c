"""What a verdict says of iterations that do more than the others."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from traceprobe.formatting import ordinal, ranges, significant, within_sentence
from traceprobe.model.taxonomy import BOUND_LABELS, CLASS_LABELS
from traceprobe.records.rank import LongIterations
from traceprobe.records.report import Verdict


def with_outlier(usual: Verdict, whole: Verdict, long: Sequence[LongIterations]) -> Verdict:
    """The verdict of the regular iterations, whose headline names what it leaves out.

    Args:
        usual: the verdict without the long iterations. whole: with them.
        long: those of each rank.
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
    return replace(
        usual, headline=f"{usual.headline} {left_out}.", reasons=[*usual.reasons, reason]
    )


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
        else f"{len(found.indices)} of {among} iterations take"
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


def _mostly(long: LongIterations) -> str:
    more = long.extra_partition_ns
    return CLASS_LABELS[max(more, key=lambda name: more[name])]
