"""Is the optimizer many kernels where one would do?"""

from __future__ import annotations

from statistics import fmean

from msgspec import UNSET, UnsetType

from traceprobe.findings.evidence import HOST_IDLE, Evidence
from traceprobe.findings.optimizer_cost import cheaper_updates, whole_tables
from traceprobe.findings.optimizer_forms import better_form, is_fused
from traceprobe.findings.recorded_facts import whole
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.records.rank import Rank
from traceprobe.verdict.thresholds import FIXED


@rule(
    "optimizer-launches",
    title="The optimizer launches many small kernels",
    definition="Kernels per step in the optimizer, where of those with most time less than half is "
    "a fused optimizer's by its name. Where names show its update, those before its first kernel "
    "and after its last, such as norms of gradients, do not count. The saving is the exclusive "
    "time of the optimizer and the idle time of `host-overhead`, but of that no more than the host "
    "spends between the launches that count.",
    verify="`host.phase_kernels.optimizer` falls to a few, and so does `partition_ns.optimizer`.",
    of_gpu=True,
)
def optimizer_launches(evidence: Evidence) -> Answer:
    """Kernels in the optimizer against those of a fused one."""
    counts = [n for n in map(_kernels, evidence.ranks) if n is not None]
    if not counts or not evidence.has_kernels:
        return not_applicable("no optimizer kernels were found")
    count = fmean(counts)
    fused = is_fused(evidence.ranks)
    most = evidence.exclusive_ms("optimizer") + evidence.launching_ms("optimizer")
    many = count > FIXED.optimizer_launches and not fused
    warned = many and evidence.share(most) >= FIXED.optimizer_worth
    return Answer(
        "warn" if warned else "pass",
        [
            f"{count:,.0f} kernels {evidence.per} in the optimizer"
            + (", a fused one among them" if fused else ""),
            _launches_of_fused(evidence) if warned else "",
        ],
        evidence.saving(most, "optimizer", *HOST_IDLE) if warned else None,
        f"{whole_tables(evidence)}{better_form(evidence.ranks, on_cpu=False)}." if warned else "",
        [site for site in evidence.sites("optimizer") if site.line],  # kernels alone tell nothing
        changes=cheaper_updates(evidence),
    )


def _kernels(rank: Rank) -> float | None:
    kernels, updates = rank.summary.host.phase_kernels, rank.summary.host.updates
    if updates is not UNSET:
        return updates.kernels_per_step
    return None if isinstance(kernels, UnsetType) else kernels.get("optimizer")


def _launches_of_fused(evidence: Evidence) -> str:
    """Launches of a fused Adam, where the capture knows the model."""
    facts = evidence.workload or {}
    parameters, tensors = whole(facts.get("parameters")), whole(facts.get("parameter_tensors"))
    if parameters is None or tensors is None:
        return ""
    most = max(-(-parameters // FIXED.fused_parameters), -(-tensors // FIXED.fused_tensors))
    return f"a fused Adam takes about {most + 1} for {parameters:,} parameters in {tensors} tensors"
