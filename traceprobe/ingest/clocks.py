"""Whether the clocks of host and GPU agree; a constant offset between them is taken out.

A profiler notes the GPU's rows on a clock of its own and converts them. Two things cannot be, and
show that it converted them wrongly: kernels that start before their launch, and calls that waited
for the GPU and returned before its work had ended. In captures whose clocks agree, such calls
return within some 30 µs of that end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from traceprobe.model.events import Bools, Int64s, Kind, Quality

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
    gpu: dict[str, Any], calls: Mapping[str, Any], of_stream: Bools, quality: Quality
) -> dict[str, Any]:
    """GPU ops on the host's clock.

    Args:
        gpu: columns of GPU_OPS. calls: of HOST_CALLS.
        of_stream: which calls wait for a stream or for the whole device, not for an event.
    """
    places = np.unique(np.stack([gpu["pid"], gpu["device"]], axis=1), axis=0)
    moved = {}
    for pid, device in places.tolist():
        rows = np.flatnonzero((gpu["pid"] == pid) & (gpu["device"] == device) & gpu["linked"])
        if len(rows) < _FEWEST:
            continue
        waited = of_stream & (calls["pid"] == pid) & (calls["t1"] - calls["t0"] >= _WAITED_NS)
        offset = _offset({c: gpu[c][rows] for c in _USED}, calls["t0"][waited], calls["t1"][waited])
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


def _offset(ops: Mapping[str, Any], began: Int64s, returned: Int64s) -> int | None:
    """What the GPU's clock is ahead of the host's, ns; 0 where they agree, None where it varies."""
    waits = _copies(ops) or _synchronisations(ops, began, returned)
    early = ops["launch_t0"] - ops["t0"] > EARLY_NS
    is_early = np.count_nonzero(early) >= max(_FEWEST, EARLY_SHARE * len(early))
    is_late = waits is not None and waits.offset > DISAGREE_NS
    if not (is_early or is_late):
        return 0
    if waits is not None and waits.constant and (is_late or waits.offset < -EARLY_NS):
        return waits.offset
    shortest = _shortest_latencies(ops)
    if is_late or np.ptp(shortest) > CONSTANT_NS:
        return None
    return int(shortest.min()) - _LATENCY_NS


def _copies(ops: Mapping[str, Any]) -> _Waits | None:
    """Of copies to pageable memory, whose calls return once they have ended."""
    rows = np.flatnonzero((ops["kind"] == int(Kind.D2H)) & ops["pageable"])
    late = ops["t1"][rows] - ops["launch_t1"][rows]
    return _Waits(late) if len(late) >= _FEWEST else None


def _synchronisations(ops: Mapping[str, Any], began: Int64s, returned: Int64s) -> _Waits | None:
    """Of synchronisations that waited; the stream that they wait for is the one that fits best."""
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


def _shortest_latencies(ops: Mapping[str, Any]) -> Int64s:
    """The shortest time from launch to start, of each part of the capture."""
    order = np.argsort(ops["launch_t0"], kind="stable")
    latency = (ops["t0"] - ops["launch_t0"])[order]
    parts = [part for part in np.array_split(latency, _PARTS) if len(part)]
    return np.array([np.quantile(part, _LEAST, method="lower") for part in parts], dtype=np.int64)
