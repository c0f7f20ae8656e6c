"""Kernels that appeared, vanished or changed between two reports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import msgspec

from traceprobe.records.comparison import NOTABLE_SHARE, KernelChange, KernelState
from traceprobe.records.rank import Rank
from traceprobe.records.report import Report
from traceprobe.render.kernel_names import short_name

MOST = 20
"""Changes that are listed."""
ALWAYS_LISTED = 15
"""Names of the longest kernels that a report lists whatever their phase."""

Key = tuple[str, str]
Named = Callable[[str], str]


class Use(msgspec.Struct, frozen=True):
    """A kernel in a step: ms and calls, per step or per sample."""

    ms: float
    count: float


def kernel_changes(
    base: Report, new: Report, scale: tuple[float, float] = (1.0, 1.0)
) -> list[KernelChange]:
    """The changes that matter, largest first, of the first rank with kernels of either run."""
    first, second = _first(base), _first(new)
    if first is None or second is None:
        return []
    formats = [{source.format for source in report.inputs} for report in (base, new)]
    # Profilers write template arguments differently: `f<(int)4>(T2 *)` is `f<4>(float*)`.
    named = str if formats[0] == formats[1] else short_name
    before, after = _uses(first, scale[0], named), _uses(second, scale[1], named)
    step = first.summary.step_ms
    least = NOTABLE_SHARE * step.mean * scale[0] if step else 0.0
    changes = []
    for key in sorted(before.keys() | after.keys()):
        old, now = before.get(key), after.get(key)
        if old is None and now is not None and now.ms <= _shortest(before):
            continue  # too short to tell whether it was there
        if now is None and old is not None and old.ms <= _shortest(after):
            continue
        if abs((now.ms if now else 0) - (old.ms if old else 0)) >= least:
            changes.append(_change(key, old, now))
    changes.sort(key=lambda c: (-abs((c.new_ms or 0) - (c.base_ms or 0)), c.name, c.phase))
    return changes[:MOST]


def _first(report: Report) -> Rank | None:
    return next((rank for rank in report.ranks if rank.summary.top_kernels), None)


def _uses(rank: Rank, scale: float, named: Named) -> dict[Key, Use]:
    """Listed kernels by name and phase; a name that is listed twice counts once, with both."""
    steps = rank.summary.iterations_used
    if not steps:
        return {}
    sums: dict[Key, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for kernel in rank.summary.top_kernels:
        entry = sums[named(kernel.name), kernel.phase]
        entry[0] += kernel.total_ns / 1e6 / steps * scale
        entry[1] += kernel.count / steps * scale
    return {key: Use(*values) for key, values in sums.items()}


def _shortest(uses: dict[Key, Use]) -> float:
    """Below this a kernel of that run may be missing from its list."""
    longest = sorted((use.ms for use in uses.values()), reverse=True)[:ALWAYS_LISTED]
    return longest[-1] if len(longest) == ALWAYS_LISTED else 0.0


def _change(key: Key, old: Use | None, now: Use | None) -> KernelChange:
    state: KernelState
    if old is None:
        state = "appeared"
    elif now is None:
        state = "vanished"
    else:
        state = "slower" if now.ms > old.ms else "faster"
    return KernelChange(
        name=key[0],
        phase=key[1],
        state=state,
        base_ms=None if old is None else round(old.ms, 6),
        new_ms=None if now is None else round(now.ms, 6),
        base_count=None if old is None else round(old.count, 3),
        new_count=None if now is None else round(now.count, 3),
    )
