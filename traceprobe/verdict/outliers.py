"""What a verdict says of an iteration that happened once and would change it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

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
    which = f"iteration {found.indices[0]}" if count == 1 else f"iterations {found.indices}"
    length = found.extra_ns / count / 1e6 + found.regular_ms
    what = max(found.extra_partition_ns, key=lambda name: found.extra_partition_ns[name])
    left_out = (
        f"{which.capitalize()} took {length:,.0f} ms ({CLASS_LABELS[what]}), the others "
        f"{found.regular_ms:.1f} ms, and {'is' if count == 1 else 'are'} left out"
    )
    reason = f"{left_out}; with {'it' if count == 1 else 'them'} the verdict would be: " + (
        BOUND_LABELS[whole.bound].lower()
    )
    return replace(
        usual, headline=f"{usual.headline} {left_out}.", reasons=[*usual.reasons, reason]
    )
