"""Whether the clocks of host and GPU agree; a constant offset between them is taken out.

A profiler notes the GPU's rows on a clock of its own and converts them. Two things cannot be, and
show that it converted them wrongly: kernels that start before their launch, and calls that waited
for the GPU and returned before its work had ended. In captures whose clocks agree, such calls
return within some 30 µs of that end.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from traceprobe.model.codes import Int64s, Ints, Kind
from traceprobe.model.numbering import numbered
from traceprobe.model.quality import Quality

EARLY_NS = 20_000
"""What an op starts at least before its launch, to count as early: less is a converter's noise."""
EARLY_SHARE = 0.05
"""Share of the ops that are early at least if the clocks disagree: single ones have wrong links."""
DISAGREE_NS = 1_000_000
"""What calls return at least before the end of what they waited for, if the clocks disagree."""
CONSTANT_NS = 100_000
"""How far estimates of one constant offset lie apart at most."""
_FEWEST = 3
"""Calls that waited, or early ops, from which an offset can be told."""
_WAITED_NS = 50_000
"""A call that returns sooner found the GPU idle, and says nothing."""
_PARTS = 4
"""Parts of a capture whose shortest latencies are compared."""
_LATENCY_NS = 5_000
"""Shortest time from a launch call to its kernel, in all public captures about the same."""
_LEAST = 0.005
"""Quantile that stands for the shortest latency: single ops may have a wrong link."""


class WaitsFor(IntEnum):
    """What a host call returns after."""

    NOTHING = 0
    STREAM = 1
    DEVICE = 2


class _Waits(NamedTuple):
    """By how much the end of the work comes after the return of the calls that waited for it."""

    late: Int64s

    @property
    def offset(self) -> int:
        return int(np.median(self.late))

    @property
    def constant(self) -> bool:
        low, high = np.percentile(self.late, [10, 90])
        return bool(high - low <= CONSTANT_NS)


def align_clocks(
    gpu: dict[str, Any], calls: Mapping[str, Any], waits_for: Ints, quality: Quality
) -> dict[str, Any]:
    """GPU ops on the host's clock.

    Args:
        gpu: columns of GPU_OPS. calls: of HOST_CALLS.
        waits_for: `WaitsFor` of each call.
    """
    places = [
        (int(pid), int(device))
        for pid in numbered(gpu["pid"])[0]
        for device in numbered(gpu["device"][gpu["pid"] == pid])[0]
    ]
    moved = {}
    for pid, device in places:
        rows = np.flatnonzero((gpu["pid"] == pid) & (gpu["device"] == device) & gpu["linked"])
        if len(rows) < _FEWEST:
            continue
        waited = (calls["pid"] == pid) & (calls["t1"] - calls["t0"] >= _WAITED_NS)
        alone = sum(owner == pid for owner, _ in places) == 1
        calls_for = {
            what: np.stack([calls["t0"][rows_of], calls["t1"][rows_of]])
            for what in (WaitsFor.STREAM, WaitsFor.DEVICE)
            for rows_of in [waited & (waits_for == int(what))]
            if what == WaitsFor.STREAM or alone  # of several devices it waits for the current one
        }
        offset = _offset({c: gpu[c][rows] for c in _USED}, calls_for)
        if offset is None:
            quality.warn(
                "clocks-disagree",
                "GPU ops start before their launch, or end after calls that waited for them, and "
                "no constant offset explains it: nothing can be said of what the GPU waits for.",
            )
        elif offset:
            moved[pid, device] = offset
    if moved:
        gpu = {**gpu, "t0": gpu["t0"].copy(), "t1": gpu["t1"].copy()}
        most = max(moved.values(), key=abs)
        quality.warn(
            "clock-offset",
            f"The GPU's clock is {abs(most) / 1e6:.3f} ms {'ahead of' if most > 0 else 'behind'} "
            "the host's in this file; GPU ops were moved by that much.",
        )
    for (pid, device), offset in moved.items():
        rows = np.flatnonzero((gpu["pid"] == pid) & (gpu["device"] == device))
        for column in ("t0", "t1"):
            gpu[column][rows] -= offset
    return gpu


_USED = ("t0", "t1", "launch_t0", "launch_t1", "stream", "kind", "pageable")


def _offset(ops: Mapping[str, Any], calls: Mapping[WaitsFor, Int64s]) -> int | None:
    """What the GPU's clock is ahead of the host's, ns; 0 where they agree, None where it varies.

    Args:
        calls: starts and ends of the calls that waited.
    """
    waits = (
        _device(ops, calls.get(WaitsFor.DEVICE))
        or _copies(ops)
        or _streams(ops, *calls[WaitsFor.STREAM])
    )
    early = ops["launch_t0"] - ops["t0"] > EARLY_NS
    is_early = np.count_nonzero(early) >= max(_FEWEST, EARLY_SHARE * len(early))
    is_late = waits is not None and waits.offset > DISAGREE_NS
    if not (is_early or is_late):
        return 0
    found = None
    if waits is not None and waits.constant and (is_late or waits.offset < -EARLY_NS):
        found = waits.offset
    elif not is_late:
        found = _of_launches(ops)
    if found is None or (waits is not None and abs(waits.offset - found) > DISAGREE_NS / 2):
        return None
    left = np.count_nonzero(ops["launch_t0"] - ops["t0"] + found > EARLY_NS)
    return found if left < max(_FEWEST, EARLY_SHARE * len(early)) else None


def _device(ops: Mapping[str, Any], calls: Int64s | None) -> _Waits | None:
    """Of synchronisations of the device, which wait for all that was launched before."""
    if calls is None or not calls.size:
        return None
    order = np.argsort(ops["launch_t0"], kind="stable")
    ends = np.maximum.accumulate(ops["t1"][order])
    at = np.searchsorted(ops["launch_t0"][order], calls[0]) - 1
    late = (ends[at] - calls[1])[at >= 0]
    return _Waits(late) if len(late) else None


def _copies(ops: Mapping[str, Any]) -> _Waits | None:
    """Of copies to pageable memory, whose calls return once they have ended."""
    rows = np.flatnonzero((ops["kind"] == int(Kind.D2H)) & ops["pageable"])
    late = ops["t1"][rows] - ops["launch_t1"][rows]
    return _Waits(late) if len(late) >= _FEWEST else None


def _streams(ops: Mapping[str, Any], began: Int64s, returned: Int64s) -> _Waits | None:
    """Of synchronisations of a stream; the one that they wait for is that which fits best."""
    found = []
    for stream in np.unique(ops["stream"]):
        rows = np.flatnonzero(ops["stream"] == stream)
        rows = rows[np.argsort(ops["launch_t0"][rows], kind="stable")]
        ends = np.maximum.accumulate(ops["t1"][rows])
        at = np.searchsorted(ops["launch_t0"][rows], began) - 1
        late = (ends[at] - returned)[at >= 0]
        if len(late) >= _FEWEST:
            found.append(_Waits(late))
    agreeing = [waits for waits in found if abs(waits.offset) <= DISAGREE_NS]
    steady = [waits for waits in found if waits.constant]
    return next(iter(agreeing or steady), None)


def _of_launches(ops: Mapping[str, Any]) -> int | None:
    """From the shortest times from launch to start, if those of all parts of the capture agree."""
    order = np.argsort(ops["launch_t0"], kind="stable")
    latency = (ops["t0"] - ops["launch_t0"])[order]
    parts = [part for part in np.array_split(latency, _PARTS) if len(part)]
    for quantile in (0.0, _LEAST):
        shortest = [int(np.quantile(part, quantile, method="lower")) for part in parts]
        if max(shortest) - min(shortest) <= CONSTANT_NS:
            return min(shortest) - _LATENCY_NS
    return None
