"""Why a GPU's clock is lower than it could be: NVML's reasons in words, and what helps."""

from __future__ import annotations

from collections.abc import Iterable

POWER_LIMIT = "sw_power_cap"
HEAT = frozenset({"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown"})
"""Of which the temperature tells more."""
REASON_WORDS = {
    POWER_LIMIT: "the power limit",
    "hw_slowdown": "the hardware's protection from heat or lack of power",
    "sw_thermal_slowdown": "heat",
    "hw_thermal_slowdown": "heat",
    "hw_power_brake_slowdown": "the power supply's brake",
    "sync_boost": "a group of GPUs that keeps to its slowest",
    "applications_clocks_setting": "a clock that somebody set",
    "display_clock_setting": "the display",
}
"""Names as `nvidia-smi --query-gpu=clocks_event_reasons.NAME` has them (nvmlClocksEventReasons)."""
_POWER = (
    "At its power limit a GPU's clock depends on what its work draws; compare runs of the same "
    "load, and look at the limit (`nvidia-smi -q -d POWER`)."
)
_HEAT = (
    "Look after the cooling (`nvidia-smi -q -d TEMPERATURE`), and at what else runs in the host."
)
_SET = "`nvidia-smi -q -d CLOCK` shows the clocks that are set."
_ADVICE = {
    POWER_LIMIT: _POWER,
    "hw_slowdown": _HEAT,
    "sw_thermal_slowdown": _HEAT,
    "hw_thermal_slowdown": _HEAT,
    "hw_power_brake_slowdown": "Ask who runs the machine: its power supply limits the GPUs.",
    "sync_boost": _SET,
    "applications_clocks_setting": _SET,
    "display_clock_setting": _SET,
}


def words_of(reasons: Iterable[str]) -> list[str]:
    """The reasons in words, each once; names that nobody knows are left out."""
    known = set(reasons)
    return list(dict.fromkeys(words for name, words in REASON_WORDS.items() if name in known))


def advice_for(reasons: Iterable[str]) -> str:
    """What to do about them; empty where there are none."""
    known = set(reasons)
    return " ".join(dict.fromkeys(text for name, text in _ADVICE.items() if name in known))
