"""What launching less would give, where CUDA graphs do not launch already."""

from __future__ import annotations

from msgspec import UNSET

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.owned_time import named_ms
from traceprobe.model.taxonomy import KERNEL_CLASSES
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.thresholds import FIXED


def fewer_launches(evidence: Evidence) -> Changes | None:
    """What compiling and CUDA graphs usually make of the host's work; pauses and stalls stay.

    Returns:
        None where graphs launch most kernels as it is: what they give is in the step.
    """
    if replays_graphs(evidence):
        return None
    return Changes(speedup={"host": FIXED.fewer_launches}, margin=FIXED.usual_margin)


def replays_graphs(evidence: Evidence) -> bool:
    """Whether most kernels of a step are launched by CUDA graphs: many more than are launched.

    Where replays are recorded as a whole, by their time.
    """
    replays = named_ms(evidence.owners, "^CUDA graph ")
    if replays and 2 * replays > evidence.kernel_ms(*KERNEL_CLASSES):
        return True
    each = [
        (sum(host.phase_kernels.values()), host.launches_per_step)
        for host in (rank.summary.host for rank in evidence.ranks)
        if host.phase_kernels is not UNSET
    ]
    return bool(each) and all(kernels > 2 * launches > 0 for kernels, launches in each)
