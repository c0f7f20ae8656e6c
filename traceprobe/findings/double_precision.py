"""Does training compute with 64 bits where 32 would do?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import significant
from traceprobe.verdict.thresholds import FIXED


@rule(
    "double-precision",
    title="Kernels compute in double precision",
    definition="Duration of the kernels of forward and backward pass that compute with 64 bits: a "
    "tensor of more than one element is of that type among those of the operator that launched "
    "them, where the trace has types, or their name says so. The saving is all of it at most, "
    "since casts go away altogether; without types fused kernels add theirs, whose names do not "
    "tell.",
    verify="No operator has inputs of type `double`; the kernels take half the time or less.",
    of_gpu=True,
)
def double_precision(evidence: Evidence) -> Answer:
    """Kernels in 64 bits, by the types of their operators or by their names."""
    found = evidence.double_precision
    if not found:
        return not_applicable("no kernel is known to compute with 64 bits")
    ms = evidence.double_ms()
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
        "arrays of doubles or with `dtype=torch.float64`, and `torch.set_default_dtype`, make all "
        "that they are combined with as long: convert them as they are made.",
        evidence.double_sites(),
        # Half of it at least and all at most; of what is hidden nobody knows.
        None if hidden else evidence.faster((ms + least) / 2, (ms - least) / (ms + least)),
    )
