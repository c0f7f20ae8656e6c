"""Whether the GPUs of a machine run at their clock, and for nobody else, right now."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from traceprobe.doctor.check import Judgement, absent
from traceprobe.doctor.facts import Gpu
from traceprobe.formatting import counted, size
from traceprobe.model.throttle_reasons import words_of

BUSY_PERCENT = 5.0
SET_ON_PURPOSE = {"applications_clocks_setting", "display_clock_setting", "sync_boost"}
"""Reasons for a lower clock that stay the same."""


def throttling(gpus: Sequence[Gpu]) -> Judgement:
    """Whether something lowers the clock of one."""
    if not gpus:
        return absent("no driver tells of a GPU")
    if all(gpu.sm_mhz is None for gpu in gpus):
        return "unknown", "the driver does not tell the clock"
    lowered = any(words_of(set(gpu.throttled) - SET_ON_PURPOSE) for gpu in gpus)
    return ("warn" if lowered else "ok"), "; ".join(_each(gpus, _clock))


def _clock(gpu: Gpu) -> str:
    most = f" of {gpu.most_sm_mhz:.0f}" if gpu.most_sm_mhz else ""
    told = [] if gpu.sm_mhz is None else [f"{gpu.sm_mhz:.0f}{most} MHz"]
    if gpu.power_w is not None:
        limit = f" of {gpu.power_limit_w:.0f}" if gpu.power_limit_w else ""
        told.append(f"{gpu.power_w:.0f}{limit} W")
    if gpu.temperature_c is not None:
        told.append(f"{gpu.temperature_c:.0f} °C")
    lowered = [f"lowered by {words}" for words in words_of(gpu.throttled)]
    return ", ".join([*told, *lowered]) or "nothing is told"


def _each(gpus: Sequence[Gpu], say: Callable[[Gpu], str]) -> list[str]:
    """What is said of each GPU; equal ones together."""
    said: dict[str, list[int]] = {}
    for number, gpu in enumerate(gpus):
        said.setdefault(say(gpu), []).append(number)
    if len(gpus) == 1:
        return list(said)
    return [f"GPU {', '.join(map(str, numbers))}: {text}" for text, numbers in said.items()]


def company(gpus: Sequence[Gpu]) -> Judgement:
    """Whether somebody computes on one."""
    if not gpus:
        return absent("no driver tells of a GPU")
    if all(gpu.processes is None and gpu.busy_percent is None for gpu in gpus):
        return "unknown", "the driver does not tell who uses the GPU"
    used = any(gpu.processes or (gpu.busy_percent or 0) >= BUSY_PERCENT for gpu in gpus)
    return ("warn" if used else "ok"), "; ".join(_each(gpus, _users))


def _users(gpu: Gpu) -> str:
    told = []
    if gpu.processes is not None:
        held = f" with {size(gpu.memory_bytes)}" if gpu.processes and gpu.memory_bytes else ""
        told.append(counted(gpu.processes, "process", "processes") + held)
    if gpu.busy_percent is not None:
        told.append(f"busy for {gpu.busy_percent:.0f} % of the time")
    return ", ".join(told) or "nothing is told"
