"""Does training compute with 64 bits where 32 would do?"""

from __future__ import annotations

import polars as pl

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.owned_time import KERNEL_NAME
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import significant
from traceprobe.model.taxonomy import KERNEL_PHASES
from traceprobe.records.double_precision import DoublePrecision
from traceprobe.records.site import Site
from traceprobe.records.sites import find_sites
from traceprobe.verdict.thresholds import FIXED


@rule(
    "double-precision",
    title="Kernels compute in double precision",
    definition="Duration of the kernels of forward and backward pass that compute with 64 bits: a "
    "tensor of more than one element is of that type among those of the operator that launched "
    "them, where the trace has types and their name says no other, or their name says so, or the "
    "recording noted that of a compiled kernel. The saving is all of it at most, since casts go "
    "away altogether; without types and notes fused kernels add theirs, whose names do not show "
    "it.",
    verify="No operator has inputs of type `double`; the kernels take half the time or less.",
    of_gpu=True,
)
def double_precision(evidence: Evidence) -> Answer:
    """Kernels in 64 bits, by the types of their operators or by their names."""
    found = _kernels(evidence)
    if not found:
        return not_applicable("no kernel is known to compute with 64 bits")
    ms = evidence.of_steps((sum(each.class_ns.values()), steps) for each, steps in found)
    classes = {name for each, _ in found for name in each.class_ns}
    hidden = 0.0 if all(each.typed for each, _ in found) else evidence.kernel_ms("fused")
    least = ms * FIXED.double_least
    told = (
        f"{evidence.amount(ms)} in kernels that compute with 64 bits; with 32 bits, half as many "
        f"bytes, they take at least {significant(least)} ms less"
    )
    if hidden:
        told += f"; {significant(hidden)} ms in fused kernels may compute with 64 bits as well"
        classes.add("fused")
    return Answer(
        evidence.flag(ms),
        [told],
        evidence.saving(ms + hidden, *sorted(classes)),
        "Compute the loss in 32 bits: `.float()` instead of `.double()`. Tensors made from NumPy "
        "arrays of doubles or with `dtype=torch.float64`, and `torch.set_default_dtype`, turn all "
        "that they are combined with into 64 bits too: convert them when they are created.",
        _sites(evidence, {name for each, _ in found for name in each.kernels}),
        # Half of it at least and all at most; of what is hidden nobody knows.
        None if hidden else evidence.faster((ms + least) / 2, (ms - least) / (ms + least)),
    )


def _kernels(evidence: Evidence) -> list[tuple[DoublePrecision, int]]:
    """Kernels that compute with 64 bits, with the steps that they are of, of ranks with any."""
    known = [(rank.summary.double_precision, rank.summary.steps) for rank in evidence.ranks]
    return [(found, steps) for found, steps in known if isinstance(found, DoublePrecision)]


def _sites(evidence: Evidence, names: set[str]) -> list[Site]:
    """Where most of these kernels are launched; where copies make numbers so long, first."""
    work = evidence.owners.filter(pl.col("class").is_in(KERNEL_PHASES))
    chosen = work.filter(pl.col("kernel").is_in(names))
    copies = find_sites(chosen, KERNEL_NAME.str.contains("copy", literal=True))
    lines = {site.line for site in copies}
    return sorted(find_sites(chosen), key=lambda site: site.line not in lines)
