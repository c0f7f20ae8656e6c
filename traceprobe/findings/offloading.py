"""Activations that forward passes put into the host's memory, and backward passes fetch."""

from __future__ import annotations

from msgspec import UNSET

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.pinning import copies_of
from traceprobe.verdict.thresholds import FIXED

KEEP = (
    "Keep activations on the GPU as far as they fit: they are offloaded to the CPU in the forward "
    "pass and fetched in the backward pass (`save_on_cpu`). Or checkpoint layers. What has to be "
    "offloaded, copy on a stream of its own, a layer ahead."
)


def offloads_activations(evidence: Evidence) -> bool:
    """Whether most of what is copied to the GPU was on it in the same step."""
    copies = copies_of(evidence)
    returned = sum(0 if c.returned_bytes is UNSET else c.returned_bytes for c in copies)
    return returned > FIXED.mostly_copied * sum(c.bytes for c in copies)
