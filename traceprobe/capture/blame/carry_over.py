"""From the second capture of a recording to the timed one: what was where, with which shapes."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from traceprobe.capture.blame.alignment import align
from traceprobe.capture.blame.host_events import HostEvents, read_host_events
from traceprobe.capture.blame.recorder import CLOCK
from traceprobe.capture.blame.stretches import Stretches, Untraced, stretches, untraced
from traceprobe.capture.blame.warp import Warp, warp_between
from traceprobe.model.codes import Bools, Int64s

LEAST_MATCHED = 0.5
"""Share of a timed step's events that must be found again; of another step nothing is said."""
MOST_STRETCHES = 400_000
"""In a trace; the longest are kept."""


class NoNames(Exception):
    """Nothing can be carried over; the message says why."""


@dataclass(frozen=True)
class Named:
    """What the timed trace is given.

    Args:
        stretches: of its step thread, on its clock; those that enclose others go first.
        thread: process and thread of the steps, as the file has them.
        shapes: by place in its file.
        facts: how it was made, for the sidecar.
    """

    stretches: Stretches
    thread: tuple[int, int]
    shapes: dict[int, bytes]
    facts: dict[str, Any]


def carry_over(light: HostEvents, heavy: HostEvents, names: dict[str, int], noted: Noted) -> Named:
    """The names of a recording.

    Raises:
        NoNames: the traces have nothing in common, or no clock.
    """
    windows = _heavy_windows(heavy, names)
    if heavy.step_thread != light.step_thread or not len(windows):
        raise NoNames("the steps after the timed ones were made by another thread")
    seen, shift = np.sort(heavy.t0[heavy.thread == heavy.step_thread]), noted.shift
    found = stretches(noted.instants, noted.codes, noted.modules, noted.ended, seen - shift)
    clock = noted.clock
    found = Stretches(clock(found.t0), clock(found.t1), found.name, found.names)
    heavy = replace(heavy, t0=clock(heavy.t0 - shift), t1=clock(heavy.t1 - shift))
    windows = clock(windows - shift)
    ignored = np.array([names.get("", -1), names.get(f"range {CLOCK}", -1)])
    light_steps = _steps(light, _light_windows(light), ignored)
    heavy_steps = _steps(heavy, windows, ignored)
    pieces: list[Stretches] = []
    shapes: dict[int, bytes] = {}
    shares: list[float] = []
    known: dict[tuple[bytes, int], tuple[Int64s, Int64s]] = {}
    for step in light_steps:
        matched = [_matched(step, other, n, known) for n, other in enumerate(heavy_steps)]
        best = max(range(len(matched)), key=lambda n: matched[n].share)
        match, other = matched[best], heavy_steps[best]
        shares.append(match.share)
        if match.share < LEAST_MATCHED:
            continue
        pieces.append(_carried(found, match.warp(step, other), other.window))
        shapes.update(_shapes(light, heavy, step, other, match))
    if not pieces:
        raise NoNames("the steps after the timed ones did other things")
    joined = _longest(_joined(pieces, found.names))
    is_module = np.array([n.startswith("nn.Module: ") for n in joined.names], dtype=np.bool_)
    modules = int(is_module[joined.name].sum()) if len(joined) else 0
    facts: dict[str, Any] = {
        "steps": len(windows),
        "named_steps": len(pieces),
        "matched": round(float(np.mean(shares)), 4),
        "lines": len(joined) - modules,
        "modules": modules,
        "shapes": len(shapes),
    }
    if noted.lines_missing:
        facts["reason"] = f"no lines: {noted.lines_missing}"
    return Named(joined, (light.pid, light.step_thread), shapes, facts)


@dataclass(frozen=True)
class Noted:
    """What the program noted beside its second trace, and where that clock is on the trace's.

    Args:
        instants, codes, modules, ended: as of `stretches`. shift: ns to be added to its clock.
        clock: their clock without the trace's own cost. lines_missing: why there are none.
    """

    instants: Int64s
    codes: list[tuple[str, str]]
    modules: list[str]
    ended: int
    shift: int
    clock: Untraced
    lines_missing: str | None


def read_noted(
    names_file: Path, instants_file: Path, heavy: HostEvents, names: dict[str, int]
) -> Noted:
    """What a program left.

    Raises:
        NoNames: it says that there is nothing, or its clock is not in the trace.
    """
    noted = read_notes(names_file)
    clock = names.get(f"range {CLOCK}", -1)
    # The operators between two readings are those in the ranges, in order.
    ranges = np.flatnonzero((heavy.name == clock) & (heavy.thread == heavy.step_thread))
    inside: list[int] = []
    on_thread = heavy.operator & (heavy.thread == heavy.step_thread)
    for at in ranges:
        within = on_thread & (heavy.t0 >= heavy.t0[at]) & (heavy.t1 <= heavy.t1[at])
        inside += np.flatnonzero(within).tolist()
    marks = np.array(noted["marks"], dtype=np.int64).reshape(-1, 2)
    if not inside or len(inside) != len(marks):
        raise NoNames("the clock of the lines is not in the trace")
    ops = np.array(inside)
    # Each operator lies between its two readings: the shift is in all of these, but for drift.
    low, high = heavy.t1[ops] - marks[:, 1], heavy.t0[ops] - marks[:, 0]
    shift = (int(low.max()) + int(high.min())) // 2
    instants = np.fromfile(instants_file, dtype=np.int64)
    return Noted(
        instants,
        [(str(file), str(function)) for file, function in noted["codes"]],
        [str(name) for name in noted["modules"]],
        int(noted["ended"]),
        shift,
        untraced(instants, float(noted["call_ns"])),
        noted["lines_missing"],
    )


def read_notes(names_file: Path) -> dict[str, Any]:
    """The notes of a program that recorded names.

    Raises:
        NoNames: it did not, and says why.
    """
    noted: dict[str, Any] = json.loads(names_file.read_text())
    if "reason" in noted:
        raise NoNames(str(noted["reason"]))
    return noted


@dataclass(frozen=True)
class _Step:
    """The events of one step: places in the columns, by thread.

    Args:
        hash: equal for steps in which the same happened.
    """

    window: tuple[int, int]
    events: HostEvents
    threads: dict[int, Int64s]
    hash: bytes

    def names(self, thread: int) -> Int64s:
        return self.events.name[self.threads[thread]]


@dataclass(frozen=True)
class _Match:
    share: float
    pairs: dict[int, tuple[Int64s, Int64s]]

    def warp(self, light: _Step, heavy: _Step) -> Warp:
        thread = light.events.step_thread
        mine, other = light.threads[thread], heavy.threads[thread]
        ours, theirs = self.pairs[thread]
        alone = np.ones(len(mine), dtype=np.bool_)
        alone[ours] = False
        missing = mine[alone]
        a, b = mine[ours], other[theirs]
        x, y = light.events, heavy.events
        return warp_between(
            heavy.window,
            light.window,
            ((y.t0[b], y.t1[b]), (x.t0[a], x.t1[a])),
            (x.t0[missing], x.t1[missing]),
        )


def _light_windows(light: HostEvents) -> Int64s:
    """From the begin of each step to that of the next one."""
    begins, ends = light.steps[:, 0], light.steps[:, 1]
    last = np.append(begins[1:], ends[-1:])
    return np.column_stack([begins, last])


def _heavy_windows(heavy: HostEvents, names: dict[str, int]) -> Int64s:
    """Each step, after what was done for its clock."""
    clock = (heavy.name == names.get(f"range {CLOCK}", -1)) & (heavy.thread == heavy.step_thread)
    marks = heavy.t1[clock]
    windows = []
    for begin, end in heavy.steps.tolist():
        inside = marks[(marks > begin) & (marks < end)]
        if len(inside) == 1:
            windows.append((int(inside[0]), end))
    return np.array(windows, dtype=np.int64).reshape(-1, 2)


def _steps(events: HostEvents, windows: Int64s, ignored: Int64s) -> list[_Step]:
    steps = []
    counts: Bools = ~np.isin(events.name, ignored)
    for begin, end in windows.tolist():
        window = begin, end
        low, high = np.searchsorted(events.t0, window).tolist()
        places = np.arange(low, high)[counts[low:high]]
        thread = events.thread[places]
        by_thread = {int(t): places[thread == t] for t in np.unique(thread)}
        by_thread.setdefault(events.step_thread, places[:0])
        content = b"".join(
            t.to_bytes(8, "little", signed=True) + events.name[by_thread[t]].tobytes()
            for t in sorted(by_thread)
        )
        steps.append(_Step(window, events, by_thread, content))
    return steps


def _matched(
    light: _Step, heavy: _Step, number: int, known: dict[tuple[bytes, int], Any]
) -> _Match:
    key = light.hash, number
    if key not in known:
        pairs = {
            t: align(light.names(t), heavy.names(t)) for t in light.threads if t in heavy.threads
        }
        thread = light.events.step_thread
        found = len(pairs[thread][0])
        most = max(len(light.threads[thread]), len(heavy.threads[thread]), 1)
        known[key] = _Match(found / most, pairs)
    match: _Match = known[key]
    return match


def _shapes(
    light: HostEvents, heavy: HostEvents, step: _Step, other: _Step, match: _Match
) -> dict[int, bytes]:
    shapes: dict[int, bytes] = {}
    for thread, (ours, theirs) in match.pairs.items():
        mine, there = step.threads[thread][ours], other.threads[thread][theirs]
        rows = zip(light.row[mine].tolist(), heavy.row[there].tolist(), strict=True)
        for row, source in rows:
            if row not in light.shapes and source in heavy.shapes:
                shapes[row] = heavy.shapes[source]
    return shapes


def _carried(found: Stretches, warp: Warp, window: tuple[int, int]) -> Stretches:
    """The stretches of a step on the clock of another, without the parts that it alone has."""
    inside = (found.t1 > window[0]) & (found.t0 < window[1])
    s0 = np.clip(found.t0[inside], *window)
    s1 = np.clip(found.t1[inside], *window)
    t0, t1, name = warp(s0), warp(s1), found.name[inside]
    for before, after, low, high in warp.holes.tolist():
        # What goes on around the hole goes on in it; what begins or ends beside it may not.
        cut = ~((s0 <= before) & (s1 >= after)) & (t0 < high) & (t1 > low)
        right = cut & (t1 > high)
        s0, s1 = np.append(s0, s0[right]), np.append(s1, s1[right])
        name = np.append(name, name[right])
        begins, ends = np.full(int(right.sum()), high), t1[right]
        t1 = np.where(cut, np.minimum(t1, np.maximum(low, t0)), t1)
        t0, t1 = np.append(t0, begins), np.append(t1, ends)
    order = np.lexsort((np.arange(len(t0)), -t1, t0))
    kept = order[(t1 > t0)[order]]
    return Stretches(t0[kept], t1[kept], name[kept], found.names)


def _joined(pieces: list[Stretches], names: list[str]) -> Stretches:
    t0, t1, name = (
        np.concatenate([getattr(piece, column) for piece in pieces])
        for column in ("t0", "t1", "name")
    )
    return Stretches(t0, t1, name, names)


def _longest(found: Stretches) -> Stretches:
    if len(found) <= MOST_STRETCHES:
        return found
    kept = np.sort(np.argsort(found.t0 - found.t1, kind="stable")[:MOST_STRETCHES])
    return Stretches(found.t0[kept], found.t1[kept], found.name[kept], found.names)


def named_recording(light: Path, heavy: Path, names_file: Path, instants_file: Path) -> Named:
    """The names for a timed trace.

    Raises:
        NoNames: there are none; the message says why.
    """
    read_notes(names_file)
    names: dict[str, int] = {}
    timed = read_host_events(light, names)
    second = read_host_events(heavy, names)
    return carry_over(timed, second, names, read_noted(names_file, instants_file, second, names))
