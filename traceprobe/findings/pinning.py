"""What pinned memory does for copies to the GPU, and for handing over batches to be copied."""

from __future__ import annotations

from statistics import fmean

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.loader_work import keeps_up
from traceprobe.records.summary import HostToDevice
from traceprobe.verdict.gpu_specs import Gpu
from traceprobe.verdict.thresholds import FIXED


def copies_of(evidence: Evidence) -> list[HostToDevice]:
    """Copies to the GPU, of the ranks that have any."""
    return [rank.summary.h2d for rank in evidence.ranks if rank.summary.h2d is not None]


def mostly_pageable(evidence: Evidence) -> bool:
    """Whether most bytes come from memory that is not pinned."""
    copies = copies_of(evidence)
    size = sum(c.bytes for c in copies)
    return sum(c.pageable_bytes for c in copies) >= FIXED.mostly_copied * size > 0


def pinned(evidence: Evidence) -> dict[str, float]:
    """By how much copies get faster from pinned memory, where most come from other memory."""
    rates = [c.gbps for c in copies_of(evidence) if c.gbps]
    devices = evidence.devices()
    if not rates or devices is None or not mostly_pageable(evidence):
        return {}
    factor = round(min(map(_pinned_gbps, devices)) / fmean(rates), 3)
    return {"h2d": factor} if factor > 1 else {}


def handing_over_ms(evidence: Evidence) -> float:
    """Waiting for data that goes with `pin_memory=True`; 0 where it is not of that kind.

    Steps that wait although the loader's workers keep up are handed batches over. With pinned
    memory a thread does that beside the step.
    """
    loader = evidence.loader
    if loader is None or loader.pin_memory or not loader.workers:
        return 0.0
    handed = mostly_pageable(evidence) and keeps_up(evidence)
    return evidence.exclusive_ms("idle_data_wait") if handed else 0.0


def _pinned_gbps(gpu: Gpu) -> float:
    """What pinned copies reach, by the generation of PCIe that GPUs of its age have."""
    major = int(gpu.capability.partition(".")[0])
    if major > FIXED.bf16_capability:
        return FIXED.pinned_gen5
    return FIXED.pinned_gen4 if major == FIXED.bf16_capability else FIXED.pinned_gen3
