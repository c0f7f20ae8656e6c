"""That the clock of a GPU changed again and again in a run, in one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from traceprobe.model.throttle_reasons import HEAT, advice_for, words_of
from traceprobe.records.watch import Cause
from traceprobe.watch.pace import Stretch
from traceprobe.watch.pace_causes import surroundings
from traceprobe.watch.processes import Process

OFTEN = 3
"""Changes from which on they are told together, too."""


def unsteady_clock(
    processes: Sequence[Process], pace: Sequence[Stretch], causes: Sequence[Cause | None]
) -> Iterator[str]:
    """What there is to say where the clock changed the pace `OFTEN` times or more.

    Args:
        causes: of the beginning of each stretch.
    """
    first = processes[0]
    changed = [pair for pair, why in zip(pairwise(pace), causes[1:], strict=True) if why == "clock"]
    if len(changed) < OFTEN:
        return
    around = dict.fromkeys(stretch for pair in changed for stretch in pair)
    found = [surroundings(each, first, stretch) for each in processes for stretch in around]
    clocks = [one.sm_mhz for one in found if one.sm_mhz]
    reasons = frozenset[str]().union(*(one.throttled for one in found))
    limited = words_of(reasons)
    if reasons & HEAT:
        hottest = [np.nanmax(p.readings["temperature_c"]) for p in processes if _told_heat(p)]
        limited += [f"up to {max(hottest):.0f} °C"] if hottest else []
    why = f" ({', '.join(limited)})" if limited else ""
    told = (
        f"The GPU's clock changed {len(changed)} times, between {min(clocks):,.0f} and "
        f"{max(clocks):,.0f} MHz{why}."
    )
    yield f"{told} {advice_for(reasons)}".rstrip()


def _told_heat(process: Process) -> bool:
    heat = process.readings.get("temperature_c")
    return heat is not None and bool((~np.isnan(heat)).any())
