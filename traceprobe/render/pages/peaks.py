"""Measured peaks told in sections."""

from __future__ import annotations

from traceprobe.formatting import number
from traceprobe.records.peaks import MeasuredPeaks
from traceprobe.render.document import Document, Section, Table

_HELP = (
    "Large square matrices of random numbers are multiplied, and large blocks of memory copied; "
    "each number is the median of several times, by the clock of the device. A program of many "
    "operators stays below it."
)


def document(peaks: MeasuredPeaks) -> Document:
    """The peaks for all outputs."""
    rates = [[name, f"{number(rate)} TFLOP/s"] for name, rate in sorted(peaks.tflops.items())]
    rows = [*rates, ["copies inside the memory, read + write", f"{number(peaks.copy_gbps)} GB/s"]]
    if peaks.h2d_gbps is not None:
        rows.append(["copies from page-locked host memory", f"{number(peaks.h2d_gbps)} GB/s"])
    table = Table("Measured peaks", ["", "measured"], rows, frozenset({1}))
    side = peaks.matrix_side
    return Document(
        kind=peaks.kind,
        title=f"Measured peaks of {peaks.device}",
        headline=f"Matrices of {side} × {side}, medians of {peaks.repetitions} repetitions, "
        f"PyTorch {peaks.torch}.",
        sections=[Section("peaks", "Measured peaks", blocks=[table], help=_HELP)],
        version=peaks.traceprobe_version,
        json=peaks.to_json(),
    )
