"""Which peak of the hardware explains the order of devices by their compute time.

A workload that one resource limits takes a time inversely proportional to the peak of that
resource: the product of time and peak is the same on all devices. How far that is from true is the
`spread`. Few devices fit many lines, so the order of the devices counts before the fit, and below
three devices nothing is decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import msgspec
import numpy as np

from traceprobe.records.gpus import PEAKS, Hardware, PeakFit, PeakName

LEAST_DEVICES = 3
SAME = 0.02
"""Speeds or peaks that differ by less are equal."""
AGREES = 0.5
"""Agreement from which a peak explains an order: three quarters of the pairs."""
AS_WELL = 1.1
"""A spread larger by less than this factor is as good."""


class Point(msgspec.Struct, frozen=True):
    """A device: what it does in a second, and its peaks."""

    speed: float
    peaks: Mapping[str, float]


def peaks_of(hardware: Hardware, half: str) -> dict[str, float]:
    """The peaks of a device that a ranking is held against.

    Args:
        half: which of the 16-bit precisions, `fp16` or `bf16`.
    """
    rates = hardware.peaks_tflops
    peaks = {
        "fp32": rates.get("fp32"),
        # A program that allows TF32 computes in fp32 where there is none.
        "tf32": rates.get("tf32") or rates.get("fp32"),
        "half": rates.get(half),
        "bandwidth": hardware.bandwidth_gbps,
    }
    return {name: value for name, value in peaks.items() if value is not None}


def fits(points: Sequence[Point]) -> list[PeakFit]:
    """How well each peak explains the speeds, best first; peaks that all devices have go first.

    Args:
        points: one for each device.

    Returns:
        Nothing with fewer than `LEAST_DEVICES` different devices. A peak that fewer devices have,
        or that is the same on all, is left out.
    """
    if different(points) < LEAST_DEVICES:
        return []
    fitted = [
        _fit(peak, [(p.peaks[peak], p.speed) for p in points if peak in p.peaks])
        for peak in PEAKS
        if _varies([p.peaks[peak] for p in points if peak in p.peaks])
    ]
    return sorted(fitted, key=lambda f: (-f.devices, -f.agreement, f.spread))


def different(points: Sequence[Point]) -> int:
    """How many kinds of devices there are."""
    return len({tuple(sorted(point.peaks.items())) for point in points})


def best(fitted: Sequence[PeakFit]) -> list[PeakFit]:
    """The peak that explains the order, and those that do so as well; empty where none does."""
    if not fitted or fitted[0].agreement < AGREES:
        return []
    first = fitted[0]
    return [
        fit
        for fit in fitted
        if fit.devices == first.devices
        and fit.agreement == first.agreement
        and fit.spread <= AS_WELL * first.spread
    ]


def ratios(points: Sequence[Point]) -> dict[str, float]:
    """Fastest over slowest point: their speeds, and the peaks that both have.

    Returns:
        Nothing with fewer than two different devices.
    """
    if different(points) < 2:
        return {}
    low, high = (pick(points, key=lambda p: p.speed) for pick in (min, max))
    fractions = {"compute": round(high.speed / low.speed, 4)}
    for name in PEAKS:
        if name in high.peaks and name in low.peaks:
            fractions[name] = round(high.peaks[name] / low.peaks[name], 4)
    return fractions


def _varies(peaks: Sequence[float]) -> bool:
    """Whether there are enough values of a peak to see anything."""
    return len(peaks) >= LEAST_DEVICES and max(peaks) > (1 + SAME) * min(peaks)


def _fit(peak: PeakName, points: Sequence[tuple[float, float]]) -> PeakFit:
    order = [
        _sign(a[0] / b[0]) * _sign(a[1] / b[1])
        for a, b in combinations(points, 2)
        if _sign(a[0] / b[0])
    ]
    peaks, speeds = (np.log(np.array(column)) for column in zip(*points, strict=True))
    slope, residual, *_ = np.polyfit(peaks, speeds, 1, full=True)
    total = float(((speeds - speeds.mean()) ** 2).sum())
    left = float(residual[0]) if len(residual) else 0.0
    return PeakFit(
        peak=peak,
        devices=len(points),
        agreement=round(sum(order) / len(order), 4),
        spread=round(float(np.exp(np.ptp(peaks - speeds))), 4),
        slope=round(float(slope[0]), 4),
        r2=round(1 - left / total, 4) if total > 0 else 0.0,
    )


def _sign(ratio: float) -> int:
    """1 above equal, -1 below, 0 where the difference is too small to be one."""
    return int(ratio > 1 + SAME) - int(ratio < 1 / (1 + SAME))
