"""Is time spent on moving intermediate results through memory?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import Answer, inconclusive, not_applicable, rule


@rule(
    "unfused-kernels",
    title="Element-wise operations are not fused",
    definition="Duration of the kernels of forward and backward pass that are no matrix kernels "
    "and not made by a compiler: element-wise, reductions, copies, changes of layout. The saving "
    "is all of it.",
    verify="`kernel_ns.other` falls by more than `kernel_ns.fused` rises.",
)
def unfused_kernels(evidence: Evidence) -> Answer:
    """Element-wise kernels, reductions, copies and changes of layout, outside of the optimizer."""
    if not evidence.has_kernels:
        return not_applicable("the run has no GPU kernels")
    ms, fused = evidence.kernel_ms("other", "softmax", "layout"), evidence.kernel_ms("fused")
    if evidence.kernel_ms("unknown") > ms:
        return inconclusive(
            "the trace shows CUDA graphs only as a whole",
            "Record graph nodes: `nsys profile --cuda-graph-trace=node`.",
        )
    return Answer(
        "warn" if evidence.share(ms) >= evidence.thresholds.bound else "pass",
        [
            f"{evidence.amount(ms)} in element-wise kernels, reductions, copies and changes of "
            f"layout, {fused:.2f} ms in kernels that a compiler fused"
        ],
        evidence.saving(ms),
        "`torch.compile` fuses them; without it, use fused operations "
        "(`scaled_dot_product_attention`, fused losses and norms) and "
        "`memory_format=torch.channels_last` for convolutions.",
    )
