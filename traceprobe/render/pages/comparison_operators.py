"""Operators of two runs that are called more or less often, or take more or less time."""

from __future__ import annotations

from collections.abc import Iterator

from traceprobe.formatting import counted, plain, plus_minus, significant
from traceprobe.records.comparison import Comparison, OperatorChange, OperatorState
from traceprobe.render.document import Section, Table, Tone

MOST_ROWS = 20
"""Operators with a row of their own; the others are summed in one."""
_WORDS: dict[OperatorState, str] = {
    "appeared": "new",
    "vanished": "gone",
    "more": "more calls",
    "fewer": "fewer calls",
    "same": "",
}
_HEAD = (
    *("operator", "", "calls, base", "calls, new"),
    *("GPU, base", "GPU, new", "change", "host, base", "host, new"),
)


def operator_section(c: Comparison, least_ms: float) -> Iterator[Section]:
    """The operators that changed, those first whose time on the device did most.

    Args:
        least_ms: change of the time from which on one has a row whose calls are as many.
    """
    changed = [
        each
        for each in c.operators or ()
        if each.state != "same" or max(abs(each.delta_ms), abs(_host_delta(each))) >= least_ms
    ]
    if not changed:
        return
    rows = [_row(each) for each in changed[:MOST_ROWS]]
    tones = [_tone(each, least_ms) for each in changed[:MOST_ROWS]]
    rest = [each for each in c.operators or () if each not in changed[:MOST_ROWS]]
    if rest:
        rows.append(_sum(rest))
        tones.append("plain")
    caption = f"Operators of both runs, calls per step and ms per {c.per}"
    yield Section(
        "operators",
        "Operators that changed",
        blocks=[
            Table(caption, _HEAD, rows, frozenset(range(2, 9)), tones, names=frozenset({0})),
        ],
        help="An operator has the time on the GPU of what it launches itself, and on the host that "
        "of its calls with all that they call, so that times on the host overlap and have no sum. "
        "Both are as traced; changes have no interval, and small ones of the host are often noise.",
        brief=False,
    )


def _host_delta(each: OperatorChange) -> float:
    return each.new_host_ms - each.base_host_ms


def _row(each: OperatorChange) -> list[str]:
    calls, ms = (each.base_count, each.new_count), (each.base_ms, each.new_ms)
    host = (each.base_host_ms, each.new_host_ms)
    return [
        each.name,
        _WORDS[each.state],
        *map(plain, calls),
        *map(significant, ms),
        plus_minus(each.delta_ms),
        *map(significant, host),
    ]


def _sum(rest: list[OperatorChange]) -> list[str]:
    """The others in one row; their times on the host hold each other."""
    before, after = (sum(ms) for ms in zip(*((r.base_ms, r.new_ms) for r in rest), strict=True))
    calls = (sum(r.base_count for r in rest), sum(r.new_count for r in rest))
    return [
        counted(len(rest), "other"),
        "",
        *map(plain, calls),
        *map(significant, (before, after)),
        plus_minus(after - before),
        "",
        "",
    ]


def _tone(each: OperatorChange, least_ms: float) -> Tone:
    if abs(each.delta_ms) < least_ms:
        return "plain"
    return "bad" if each.delta_ms > 0 else "good"
