"""Student's distribution, for means of few values."""

from __future__ import annotations


def student(z: float, freedom: int) -> float:
    """Student's quantile where the normal one is `z`: Cornish and Fisher's expansion."""
    n = freedom
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )
