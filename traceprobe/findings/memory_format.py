"""Do convolutions change the layout of their images back and forth?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence, unanswered
from traceprobe.records.report import Finding

ID = "memory-format"
RULE = (
    "Duration of the kernels with which cuDNN turns images from NCHW to NHWC and back around "
    "convolutions on tensor cores, by their names. The saving is all of it and of the element-wise "
    "and normalising kernels: in the other layout they are other kernels, which may be much faster."
)
VERIFY = "`kernel_ns.layout` is near 0, and `kernel_ns.other` does not rise by as much."


def check(evidence: Evidence) -> Finding:
    """Kernels between NCHW and NHWC."""
    title = "Convolutions turn the layout of their images"
    if not evidence.has_kernels:
        return unanswered(ID, "not-applicable", title, "the run has no GPU kernels")
    ms = evidence.kernel_ms("layout")
    if not ms:
        return unanswered(ID, "not-applicable", title, "no kernels that turn NCHW or NHWC")
    return Finding(
        id=ID,
        status=evidence.flag(ms),
        title=title,
        saving_ms_per_step=evidence.saving(ms + evidence.kernel_ms("other")),
        evidence=[
            f"{ms:.2f} ms {evidence.per} ({evidence.share(ms):.1%}) in kernels that turn NCHW to "
            "NHWC or back"
        ],
        advice="Keep model and batches in the layout that tensor cores read: "
        "`model.to(memory_format=torch.channels_last)` and the same for every batch "
        "(`channels_last_3d` for volumes).",
    )
