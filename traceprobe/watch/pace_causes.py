"""Why the pace of a run changed: what else changed at the same time, by enough to explain it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from traceprobe.formatting import percent, significant
from traceprobe.model.throttle_reasons import HEAT, words_of
from traceprobe.records.watch import Cause
from traceprobe.watch.pace import Stretch, without
from traceprobe.watch.processes import Column, Process

EXPLAINED = 0.4
"""Share of a change that its cause must explain."""
LEAST = 0.01
"""Share of the time in which a loop that goes on runs, at least."""
CLOCK = 0.97
"""Ratio of clocks from which on they differ: readings of a steady clock scatter by a percent."""


OTHERS = 10.0
"""Percent of the time by which others must use the GPU more."""
WORTH = 0.005
"""Share of the run that what has no known cause must cost to be told. Every system has some."""
WANDERING, STANDS_OUT = 6, 1.5
"""A pace that changes so often for no known cause wanders, as on a machine that has other work.
Only stretches are told then that are so many times as slow, or as fast, as usual."""
SAME_LEVEL = 1.1
"""Ratio of paces that are one level."""


class Surroundings(msgspec.Struct, frozen=True):
    """What a process did in a stretch of steps; None where it is not known.

    Args:
        wait_ms: median in which a step waited for its loader. cpu_wait: share of the time in which
            it had no core. sm_mhz, temperature_c: mean clock and heat. others: time in which other
            processes used the GPU, percent. throttled: reasons for a lower clock, by NVML's names.
    """

    wait_ms: float
    cpu_wait: float | None
    sm_mhz: float | None
    temperature_c: float | None
    others: float | None
    throttled: frozenset[str]


def settled(processes: Sequence[Process], ms: Column, pace: Sequence[Stretch]) -> list[Stretch]:
    """The stretches as they are told, without those that chance makes of a machine's other work."""
    unknown = [
        n
        for n, (before, after) in enumerate(pairwise(pace), 1)
        if why_changed(processes, before, after)[0] == "unknown"
    ]
    return joined(ms, pace, unknown)


def joined(ms: Column, pace: Sequence[Stretch], unknown: Collection[int]) -> list[Stretch]:
    """The stretches without excursions, and of a pace that wanders those alone that stand out.

    Args:
        unknown: places of the stretches that nothing explains the beginning of.
    """
    if len(unknown) < WANDERING:
        return without(ms, pace, _excursions(pace, frozenset(unknown)))
    told = standing_out(pace)
    return without(ms, pace, [n for n in unknown if told[n] == told[n - 1]])


def _excursions(pace: Sequence[Stretch], unknown: frozenset[int]) -> list[int]:
    """Both changes around stretches that cost next to nothing and end at the level before them."""
    steps, ms = _lengths(pace)
    least = WORTH * (ms @ steps)
    found = []
    for n in range(1, len(pace) - 1):
        before, after = sorted((ms[n - 1], ms[n + 1]))
        usual = (before + after) / 2
        small = (
            abs(ms[n] - usual) * steps[n] < least and max(ms[n] / usual, usual / ms[n]) < STANDS_OUT
        )
        if small and after < SAME_LEVEL * before and {n, n + 1} <= unknown:
            found += [n, n + 1]
    return found


def standing_out(pace: Sequence[Stretch]) -> list[int]:
    """1 for stretches far slower than usual, -1 for faster ones, if they cost enough; else 0."""
    steps, ms = _lengths(pace)
    usual = usual_ms(pace)
    far = np.where(np.abs(np.log(ms / usual)) < np.log(STANDS_OUT), 0, np.sign(ms - usual))
    edges = [0, *(np.flatnonzero(np.diff(far)) + 1), far.size]
    for start, stop in pairwise(edges):  # neighbours that are slow are one stretch
        cost = np.abs(ms - usual)[start:stop] @ steps[start:stop]
        if cost < WORTH * (ms @ steps):
            far[start:stop] = 0
    return [int(each) for each in far]


def usual_ms(pace: Sequence[Stretch]) -> float:
    """Mean of the level that most steps have."""
    steps, ms = _lengths(pace)
    groups = [(ms >= least) & (ms < SAME_LEVEL * least) for least in ms]
    most = max(groups, key=lambda group: float(steps[group].sum()))
    return float(np.average(ms[most], weights=steps[most]))


def _lengths(pace: Sequence[Stretch]) -> tuple[Column, Column]:
    """Steps of each stretch, and their ms."""
    return (
        np.array([stretch.stop - stretch.start for stretch in pace], dtype=np.float64),
        np.array([stretch.ms for stretch in pace]),
    )


def why_changed(processes: Sequence[Process], before: Stretch, after: Stretch) -> tuple[Cause, str]:
    """The cause of a change, and the same in words."""
    first = processes[0]
    change = after.ms - before.ms
    for process in processes:
        of = "" if len(processes) == 1 else f" on rank {process.rank}"
        old, new = (surroundings(process, first, stretch) for stretch in (before, after))
        if (new.wait_ms - old.wait_ms) / change >= EXPLAINED:
            return "loader", (
                f"a step waits {significant(new.wait_ms)} ms for its loader{of} instead of "
                f"{significant(old.wait_ms)}"
            )
        if old.sm_mhz and new.sm_mhz and _explains(old.sm_mhz / new.sm_mhz, after.ms / before.ms):
            slower = new.sm_mhz < old.sm_mhz
            limited = [*words_of(new.throttled), *_hot(new)] if slower else []
            why = f" ({', '.join(limited)})" if limited else ""
            return "clock", f"GPU clock {old.sm_mhz:,.0f} → {new.sm_mhz:,.0f} MHz{of}{why}"
        if change > 0 and (new.others or 0.0) - (old.others or 0.0) >= OTHERS:
            return "gpu-busy", (
                f"other processes use the GPU{of} {new.others:.0f} % of the time, previously "
                f"{old.others or 0.0:.0f} %"
            )
        if old.cpu_wait is not None and new.cpu_wait is not None:
            # What is left of the time to run in is to steps what a clock is.
            running = max(1 - old.cpu_wait, LEAST), max(1 - new.cpu_wait, LEAST)
            if _explains(running[0] / running[1], after.ms / before.ms):
                return "cpu-busy", (
                    f"the loop{of} is without a CPU core {percent(new.cpu_wait)} of the time, "
                    f"previously {percent(old.cpu_wait)}"
                )
    return "unknown", "nothing else that was watched changed at that point"


def _hot(found: Surroundings) -> list[str]:
    """The temperature, where it is one of the reasons."""
    if found.temperature_c is None or not HEAT & found.throttled:
        return []
    return [f"{found.temperature_c:.0f} °C"]


def _explains(clocks: float, steps: float) -> bool:
    """Whether a ratio of clocks explains one of steps: both to the same side, by enough."""
    if CLOCK < clocks < 1 / CLOCK:
        return False
    return bool(np.log(clocks) / np.log(steps) >= EXPLAINED)


def surroundings(process: Process, first: Process, stretch: Stretch) -> Surroundings:
    """What a process did in a stretch of the steps of the first one."""
    numbers = first.number[[stretch.start, stretch.stop - 1]]
    start, stop = (int(row) for row in process.row_of(numbers))
    begin_ns = process.end_ns[start] - 1e6 * process.ms[start] * process.count[start]
    at = process.readings["at_ns"]
    inside = (at >= begin_ns) & (at <= process.end_ns[stop])
    found = process.readings.get("cpu_wait_ns")
    waited = None
    if found is not None and inside.sum() > 1:
        (own, times) = found[inside], at[inside]
        # Waiting for a core and standing still with it may be the same time.
        waited = min(float((own[-1] - own[0]) / (times[-1] - times[0])), 1.0)
    return Surroundings(
        wait_ms=float(np.median(process.wait_ms[start : stop + 1])),
        cpu_wait=waited,
        sm_mhz=_mean(process.readings.get("sm_mhz"), inside),
        temperature_c=_mean(process.readings.get("temperature_c"), inside),
        others=_mean(process.readings.get("others_percent"), inside),
        throttled=_often([process.throttled[n] for n in np.flatnonzero(inside)]),
    )


def _mean(values: Column | None, inside: npt.NDArray[np.bool_]) -> float | None:
    if values is None:
        return None
    known = values[inside & ~np.isnan(values)]
    return float(known.mean()) if known.size else None


def _often(sets: list[frozenset[str]]) -> frozenset[str]:
    """Reasons that a tenth of the readings have."""
    return frozenset(
        reason
        for reason in set().union(*sets)
        if sum(reason in one for one in sets) * 10 >= len(sets)
    )
