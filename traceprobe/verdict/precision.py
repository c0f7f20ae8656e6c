"""In which precision the matrix kernels of a run ran, by their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from traceprobe.records.gpus import Ran
from traceprobe.verdict.thresholds import FIXED

MATRICES: Mapping[str, Ran] = {
    "matmul_fp32": "fp32",
    "matmul_3xtf32": "tf32",
    "matmul_tf32": "tf32",
    "matmul_half": "half",
    "matmul_unaligned": "half",
}
"""Classes of kernels whose precision is known, near enough: unaligned ones are mostly 16 bits."""


def ran(kernel_ns: Iterable[Mapping[str, int] | None]) -> Ran | None:
    """The precision of most of the time of matrix kernels; None where none has so much.

    Args:
        kernel_ns: `Summary.kernel_ns` of the ranks.
    """
    time: Counter[str] = Counter()
    for classes in kernel_ns:
        time.update(classes or {})
    matrices = sum(ns for name, ns in time.items() if name.startswith("matmul"))
    for precision in dict.fromkeys(MATRICES.values()):
        spent = sum(time[name] for name, known in MATRICES.items() if known == precision)
        if spent > FIXED.run_precision * matrices:
            return precision
    return None
