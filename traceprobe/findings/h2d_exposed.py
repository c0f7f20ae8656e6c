"""Do copies to the GPU delay it?"""

from __future__ import annotations

from statistics import fmean

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.offloading import KEEP, offloads_activations
from traceprobe.findings.pinning import copies_of, handing_over_ms, pinned
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import significant
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.thresholds import FIXED

PIN = "Pin the loader's memory (`pin_memory=True`) and copy with `non_blocking=True`."
PREFETCH = (
    "Prefetch the next batch on a stream of its own (`torch.cuda.Stream`) while this one is "
    "computed."
)
UPDATED = (
    "Parameters are copied back from an optimizer on the CPU: keep them in pinned memory "
    "(`tensor.pin_memory()`), and copy each with `non_blocking=True` as soon as it is updated."
)


@rule(
    "h2d-exposed",
    title="Copies to the GPU are not overlapped with kernels",
    definition="Time per step in host-to-device copies while no kernel runs. The evidence adds "
    "bytes, rate and overlap. The saving leaves the step as long as its longest single resource, "
    "and adds what the step lasts longer without a profiler than in the capture, where I/O is "
    "notable; and the waiting for data, as `h2d-pageable` does.",
    verify="Keep one batch on the GPU and time the loop without a profiler. Compare the rate with "
    "that of pinned copies on the same machine.",
    of_gpu=True,
)
def h2d_exposed(evidence: Evidence) -> Answer:
    """Host-to-device copies during which no kernel runs."""
    copies = copies_of(evidence)
    if not copies:
        return not_applicable("no host-to-device copies")
    ms = evidence.exclusive_ms("h2d")
    rates = [c.gbps for c in copies if c.gbps is not None]
    steps = sum(r.summary.steps for r in evidence.ranks)
    size = sum(c.bytes for c in copies)
    overlap = fmean(c.overlap_pct for c in copies)
    handed = handing_over_ms(evidence)
    most = evidence.hideable_ms("h2d") + evidence.unseen_ms() + handed
    rate = f" at {fmean(rates):.1f} GB/s" if rates else ""
    return Answer(
        evidence.grade(evidence.share(ms)),
        [
            f"{evidence.amount(ms)} of copying while no kernel runs",
            f"{significant(size / steps / 1e6)} MB {evidence.per}{rate}; {overlap:.0f} % overlaps "
            "with kernels",
        ],
        evidence.saving(most, "h2d", *(["idle_data_wait"] if handed else [])),
        _advice(evidence, sum(c.pageable_bytes for c in copies) / size if size else None, overlap),
        evidence.sites("h2d"),
        Changes(
            removed=frozenset({"data-wait"} if handed else {}),
            overlapped=frozenset({"h2d"}),
            speedup=pinned(evidence),
        ),
    )


def _advice(evidence: Evidence, pageable: float | None, overlap_pct: float) -> str:
    """What to change first: what is copied, memory that copies can leave at once, their place."""
    if evidence.cpu_update_ms:
        return UPDATED
    if offloads_activations(evidence):
        return KEEP
    if pageable is None:
        return f"{PIN} {PREFETCH}"
    if pageable >= FIXED.mostly_copied:
        return f"{PIN} Then {PREFETCH[0].lower()}{PREFETCH[1:]}"
    if overlap_pct < 100 * FIXED.mostly_copied:
        return f"{PREFETCH} The memory is pinned, but the copies run between the kernels."
    return (
        "Much of the copying is hidden already: copy less (in fewer bits, or make more of the "
        "sample on the GPU), or start earlier."
    )
