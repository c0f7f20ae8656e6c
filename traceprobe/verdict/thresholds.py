"""Every number that a verdict depends on. All are printed in the report."""

from __future__ import annotations

from dataclasses import asdict, dataclass

STRAGGLING = 0.01
"""Share of the step from which waiting for other ranks is worth a word, and a name."""


@dataclass(frozen=True)
class Thresholds:
    """Shares are fractions of the used windows.

    `bound` and `notable` follow xprof's input-pipeline analyser (20 % and 5 %).
    """

    bound: float = 0.20
    notable: float = 0.05
    mixed: float = 0.15
    mixed_margin: float = 0.05
    whole_capture: float = 0.50
    unexplained: float = 0.30
    coverage: float = 0.90
    min_iterations: int = 3
    min_gpu_ops: int = 100
    low_confidence: float = 0.30
    drift_quiet: float = 0.25
    drift_errors: float = 4.0

    def as_dict(self) -> dict[str, float]:
        """Name to value, as in the report."""
        return {name: float(value) for name, value in asdict(self).items()}
