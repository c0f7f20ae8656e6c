"""What is read of a GPU's clock at a moment, and what readings say of a time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

GPU_IDLE = 1
REASONS = {
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Bits of NVML's nvmlClocksEventReasons (nvml.h) with the names that nvidia-smi gives them.

An idle GPU's low clock is no throttling, so its bit (`GPU_IDLE`) has no name here."""
LONGEST_STAND = 10
"""Intervals between readings for which one stands at most, where those after it are missing."""


@dataclass(frozen=True)
class Reading:
    """A GPU at a moment; None where it does not tell.

    Args:
        at_ns: by `time.perf_counter_ns`, when the reading was complete.
        sm_mhz, memory_mhz: clocks. power_w: mean of the last second on most GPUs.
        busy_percent: time in which a kernel ran, of the last 1/6 to 1 second (nvmlUtilization_t).
        reasons: bits of `REASONS`.
        others_percent: time in which kernels of other processes ran, of the last second.
    """

    at_ns: int
    sm_mhz: float | None = None
    memory_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    busy_percent: float | None = None
    reasons: int | None = None
    others_percent: float | None = None

    @property
    def idle(self) -> bool:
        """Whether the GPU says that it has nothing to do."""
        return self.busy_percent == 0 or bool((self.reasons or 0) & GPU_IDLE)


def reason_names(reasons: int | None) -> list[str]:
    """Names of the reasons for a lower clock in a mask of NVML."""
    return [name for bit, name in REASONS.items() if (reasons or 0) & bit]


def summarize_readings(
    readings: Sequence[Reading], t0_ns: int, t1_ns: int, interval_ns: int
) -> dict[str, Any]:
    """Means over a time, as the fields of `BlockClock`; those that nobody told are missing.

    What other processes use is not among them: each reading has their mean of a time before it.
    Each reading stands for the time that is nearer to it than to its neighbours. Readings of an
    idle GPU count only where there are no others: its clock rests then.

    Args:
        readings: in order of time, also from before and after.
        t0_ns, t1_ns: the time, by `time.perf_counter_ns`.
        interval_ns: usual time between two readings.
    """
    weighted = _weighted(readings, t0_ns, t1_ns, interval_ns)
    if not weighted:
        return {}
    working = [(r, w) for r, w in weighted if not r.idle] or weighted
    clocks = [r.sm_mhz for r, _ in working if r.sm_mhz is not None]
    found = {
        "sm_mhz": _mean(working, "sm_mhz"),
        "lowest_sm_mhz": min(clocks, default=None),
        "memory_mhz": _mean(working, "memory_mhz"),
        "power_w": _mean(working, "power_w"),
        "temperature_c": _mean(working, "temperature_c"),
    }
    reasons = 0
    for reading, _ in working:
        reasons |= reading.reasons or 0
    return {
        **{name: value for name, value in found.items() if value is not None},
        "throttled": reason_names(reasons),
        "samples": len(weighted),
    }


def _weighted(
    readings: Sequence[Reading], t0_ns: int, t1_ns: int, interval_ns: int
) -> list[tuple[Reading, int]]:
    """Readings that stand for a part of the time, and for how many ns of it."""
    longest = LONGEST_STAND * interval_ns
    first = bisect_left(readings, t0_ns - longest, key=lambda r: r.at_ns)
    last = bisect_right(readings, t1_ns + longest, key=lambda r: r.at_ns)
    near = readings[first:last]
    at = [reading.at_ns for reading in near]
    weighted = []
    for number, reading in enumerate(near):
        begin, end = at[number] - longest, at[number] + longest
        if number > 0:
            begin = max(begin, (at[number - 1] + at[number]) // 2)
        if number + 1 < len(at):
            end = min(end, (at[number] + at[number + 1]) // 2)
        stands = min(end, t1_ns) - max(begin, t0_ns)
        if stands > 0:
            weighted.append((reading, stands))
    return weighted


def _mean(weighted: list[tuple[Reading, int]], field: str) -> float | None:
    """Mean of a field over the time of the readings that have it."""
    told = [(getattr(r, field), w) for r, w in weighted if getattr(r, field) is not None]
    total = sum(weight for _, weight in told)
    return round(sum(value * weight for value, weight in told) / total, 3) if told else None
