"""Is the optimizer many kernels where one would do?"""

from __future__ import annotations

from statistics import fmean

from msgspec import UNSET, UnsetType

from traceprobe.findings.evidence import HOST_IDLE, Evidence
from traceprobe.findings.optimizer_cost import cheaper_updates
from traceprobe.findings.optimizer_forms import better_form, is_fused, parameter_groups
from traceprobe.findings.recorded_facts import whole
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.records.rank import Rank
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.thresholds import FIXED


@rule(
    "optimizer-launches",
    title="The optimizer launches many kernels",
    definition="Kernels per step in the optimizer, where of those with most time less than half is "
    "a fused optimizer's by its name, or where it updates 64 groups of parameters and more one "
    "after the other. Where names show its update, those before its first kernel "
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
    groups = parameter_groups(evidence.operators)
    in_groups = groups >= FIXED.parameter_groups
    many = count > FIXED.optimizer_launches and (in_groups or not fused)
    warned = many and evidence.share(most) >= FIXED.optimizer_worth
    return Answer(
        "warn" if warned else "pass",
        [
            f"{count:,.0f} kernels {evidence.per} in the optimizer"
            + (", a fused one among them" if fused else ""),
            f"{groups:,.0f} groups of parameters are updated one after the other"
            if in_groups
            else "",
            _launches_of_fused(evidence) if warned else "",
        ],
        evidence.saving(most, "optimizer", *HOST_IDLE) if warned else None,
        _advice(evidence, fused=fused, in_groups=in_groups) if warned else "",
        [site for site in evidence.sites("optimizer") if site.line],  # kernels alone tell nothing
        changes=Changes(fewer={"optimizer": FIXED.fused_launches}, margin=FIXED.usual_margin)
        if fused and in_groups
        else cheaper_updates(evidence),
    )


def _advice(evidence: Evidence, *, fused: bool, in_groups: bool) -> str:
    ways = [
        "Put parameters of equal settings into one group, instead of each into its own."
        if in_groups
        else "",
        "" if fused else f"{better_form(evidence.ranks, on_cpu=False)}.",
    ]
    return " ".join(filter(None, map(str.strip, ways)))


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
