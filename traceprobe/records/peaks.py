"""What a device did when it was measured: a plain record that serialises to JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from traceprobe.records.base import Record
from traceprobe.records.texts import Sentence, Word


class MeasuredPeaks(Record, frozen=True, kw_only=True):
    """As `traceprobe roofline --measure` writes it; medians of `repetitions`."""

    kind: Literal["peaks"] = "peaks"
    device: Sentence
    device_kind: Literal["gpu", "cpu"]
    torch: Word
    """Version of PyTorch, with which its libraries come."""
    matrix_side: int
    """Of the square matrices that were multiplied."""
    repetitions: int
    tflops: dict[Word, float]
    """By precision; those that the device or PyTorch lack are missing."""
    copy_gbps: float
    """Copies inside of the memory, bytes read and written together."""
    h2d_gbps: float | None
    """Copies from page-locked memory of the host; None on a CPU."""

    def problems(self) -> Iterator[str]:
        """What of it cannot be."""
        rates = [*self.tflops.values(), self.copy_gbps, self.h2d_gbps]
        if any(rate < 0 for rate in rates if rate is not None):  # of a slow CPU one may round to 0
            yield "a peak is below 0"
        if min(self.matrix_side, self.repetitions) < 1:
            yield "nothing was measured"
