"""Do batches come from pageable memory?"""

from __future__ import annotations

from traceprobe.findings.called_operators import drawn_on_the_host
from traceprobe.findings.evidence import Evidence
from traceprobe.findings.h2d_exposed import UPDATED
from traceprobe.findings.owned_time import copy_sites
from traceprobe.findings.pinning import copies_of, handing_over_ms, pinned
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import significant
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.thresholds import FIXED


@rule(
    "h2d-pageable",
    title="Batches are copied from pageable memory",
    definition="Bytes per step copied to the GPU from host memory that is not pinned. Such copies "
    "go through a staging buffer, block the host and cannot overlap. The saving is that of "
    "`h2d-exposed`, by their part of the bytes; and the waiting for data, where most bytes are "
    "not pinned and the loader's workers keep up with the step: with `pin_memory=True` a thread "
    "takes batches over beside it.",
    verify="After the change the report says 0 MB pageable, and `h2d.gbps` rises.",
    of_gpu=True,
)
def h2d_pageable(evidence: Evidence) -> Answer:
    """Pageable copies go through a staging buffer, block the host and cannot overlap."""
    copies = copies_of(evidence)
    steps = sum(r.summary.steps for r in evidence.ranks)
    size = sum(c.bytes for c in copies)
    pageable = sum(c.pageable_bytes for c in copies)
    if not size:
        return not_applicable("no host-to-device copies of known size")
    if not evidence.has_steps:
        return not_applicable("no steps: what is copied may be a model, and no batch")
    warned = pageable / steps >= FIXED.pageable_bytes
    handed = handing_over_ms(evidence)
    most = handed + (evidence.hideable_ms("h2d") + evidence.unseen_ms()) * pageable / size
    return Answer(
        "warn" if warned else "pass",
        [
            f"{significant(pageable / steps / 1e6)} of {significant(size / steps / 1e6)} MB "
            f"{evidence.per} are pageable",
            f"{evidence.amount(handed)} of waiting for batches to be handed over, which a thread "
            "that pins them does beside the step"
            if handed
            else "",
        ],
        evidence.saving(most, "h2d", *(["idle_data_wait"] if handed else [])) if warned else None,
        UPDATED
        if evidence.cpu_update_ms
        else (drawn_on_the_host(evidence) if warned else "")
        + "Set `pin_memory=True` on the DataLoader, or pin the tensors that you copy yourself.",
        copy_sites(evidence.owners, "Pageable -> Device"),
        # Pinned copies do not make the host wait.
        Changes(
            removed=frozenset({"sync", "data-wait"} if handed else {"sync"}),
            speedup=pinned(evidence),
        ),
    )
