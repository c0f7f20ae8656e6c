"""What GPUs that no table knows have all the same, by their compute capability."""

from __future__ import annotations

import re

from traceprobe.findings.evidence import Evidence
from traceprobe.verdict.thresholds import FIXED


def has_tf32_and_bf16(evidence: Evidence) -> bool:
    """Whether all GPUs are NVIDIA's, of a compute capability of 8.0 or later."""
    if evidence.vendor != "nvidia":
        return False
    found = [
        re.fullmatch(r"(\d{1,3})\.\d{1,3}", rank.device.capability or "") for rank in evidence.ranks
    ]
    return all(each is not None and int(each[1]) >= FIXED.bf16_capability for each in found)
