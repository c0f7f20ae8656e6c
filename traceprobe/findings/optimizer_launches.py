"""Is the optimizer many kernels where one would do?"""

from __future__ import annotations

import re

from msgspec import UnsetType

from traceprobe.findings.evidence import Evidence, lines, unanswered, whole
from traceprobe.records.rank import Rank
from traceprobe.records.report import Finding

ID = "optimizer-launches"
RULE = (
    "Kernels per step in the optimizer, where none of those with most time is a fused optimizer "
    "by its name. The saving is the exclusive time of them all and the idle time of "
    "`host-overhead`."
)
VERIFY = "`host.phase_kernels.optimizer` falls to a few, `partition_ns.optimizer` too."
MANY = 20
"""Several times what a fused optimizer launches for a model of a hundred million parameters."""
WORTH = 0.01
"""Share of the step: what costs so little to change is worth it."""
FUSED = re.compile(r"fused", re.IGNORECASE)
"""PyTorch's, Apex's and a compiler's kernels are called so."""
CHUNK, TENSORS = 320 * 65536, 36
"""Parameters and tensors that PyTorch's fused Adam updates at most with a launch."""


def check(evidence: Evidence) -> Finding:
    """Kernels in the optimizer against those of a fused one."""
    title = "The optimizer is launched piece by piece"
    counts = [n for n in map(_kernels, evidence.ranks) if n is not None]
    if not counts or not evidence.has_kernels:
        return unanswered(ID, "not-applicable", title, "no kernels of an optimizer were found")
    count = sum(counts) / len(counts)
    ms = evidence.exclusive_ms("optimizer")
    fused = any(
        k.phase == "optimizer" and FUSED.search(k.name)
        for rank in evidence.ranks
        for k in rank.summary.top_kernels
    )
    most = ms + evidence.host_ms()
    warned = count > MANY and not fused and evidence.share(most) >= WORTH
    return Finding(
        id=ID,
        status="warn" if warned else "pass",
        title=title,
        saving_ms_per_step=evidence.saving(most) if warned else None,
        evidence=lines(
            f"{count:.0f} kernels {evidence.per} in the optimizer"
            + (", a fused one among them" if fused else ""),
            _needed(evidence) if warned else "",
        ),
        advice="`fused=True` (Adam, AdamW, SGD, Adagrad), or at least `foreach=True`."
        if warned
        else "",
    )


def _kernels(rank: Rank) -> float | None:
    found = rank.summary.host.phase_kernels
    return None if isinstance(found, UnsetType) else found.get("optimizer")


def _needed(evidence: Evidence) -> str:
    """Launches of a fused Adam, where the capture knows the model."""
    facts = evidence.workload or {}
    parameters, tensors = whole(facts.get("parameters")), whole(facts.get("parameter_tensors"))
    if parameters is None or tensors is None:
        return ""
    needed = max(-(-parameters // CHUNK), -(-tensors // TENSORS))
    return (
        f"a fused Adam takes about {needed + 1} for {parameters:,} parameters in {tensors} tensors"
    )
