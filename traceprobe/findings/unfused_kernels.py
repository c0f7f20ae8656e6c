"""Is time spent on moving intermediate results through memory?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence, unanswered
from traceprobe.records.report import Finding

ID = "unfused-kernels"
RULE = (
    "Duration of the kernels of forward and backward pass that are no matrix kernels and not "
    "made by a compiler: element-wise, reductions, copies, changes of layout. The saving is all "
    "of it."
)
VERIFY = "`kernel_ns.other` falls by more than `kernel_ns.fused` rises."


def check(evidence: Evidence) -> Finding:
    """Element-wise kernels, reductions, copies and changes of layout, outside of the optimizer."""
    title = "Element-wise operations run one by one"
    if not evidence.has_kernels:
        return unanswered(ID, "not-applicable", title, "the run has no GPU kernels")
    ms, fused = evidence.kernel_ms("other", "softmax", "layout"), evidence.kernel_ms("fused")
    whole = evidence.kernel_ms("unknown")
    if whole > ms:
        return unanswered(
            ID,
            "inconclusive",
            title,
            "the trace shows CUDA graphs as wholes",
            "Record graph nodes: `nsys profile --cuda-graph-trace=node`.",
        )
    share = evidence.share(ms)
    return Finding(
        id=ID,
        status="warn" if share >= evidence.limits.bound else "pass",
        title=title,
        saving_ms_per_step=evidence.saving(ms),
        evidence=[
            f"{ms:.2f} ms {evidence.per} ({share:.1%}) in element-wise kernels, reductions, copies "
            f"and changes of layout, {fused:.2f} ms in kernels that a compiler fused"
        ],
        advice="`torch.compile` fuses them; without it, use fused operations "
        "(`scaled_dot_product_attention`, fused losses and norms) and "
        "`memory_format=torch.channels_last` for convolutions.",
    )
