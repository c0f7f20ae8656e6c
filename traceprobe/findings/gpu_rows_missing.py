"""Did the profiler record what the GPU did?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import Answer, rule
from traceprobe.verdict.no_training import gpu_rows_missing, without_kernels


@rule(
    "gpu-rows-missing",
    title="The GPU's work is not in the capture",
    definition="Ranks that launch kernels while not one kernel is in their capture, and captures "
    "of a GPU that computes nothing.",
    verify="A new capture lists kernels in `top_kernels`, and `coverage` is near 1.",
    of_capture=True,
    of_gpu=True,
)
def gpu_rows_missing_(evidence: Evidence) -> Answer:
    """Launches without a kernel: the capture failed, whatever the run did."""
    failed = [rank for rank in evidence.ranks if gpu_rows_missing(rank)]
    said = [w.message for w in evidence.quality.warnings if w.code == "gpu-rows-missing"]
    if failed:
        named = ", ".join(str(rank.rank) for rank in failed)
        return Answer(
            "fail",
            [
                f"{evidence.quality.launches_without_gpu_op} launches and copies have no GPU row",
                f"kernels are missing on rank {named}" if len(evidence.ranks) > 1 else "",
                *said,
            ],
            advice="Look for other profilers and monitors that use CUPTI (DCGM, Nsight, a second "
            "torch.profiler), for a driver newer than the profiler's CUPTI, and for permissions on "
            "performance counters; then capture again, and synchronise before the profiler stops.",
        )
    if without_kernels(evidence.ranks):
        return Answer(
            "fail",
            ["the GPU runs copies or memsets only, and nothing launches a kernel"],
            advice="Capture while the training loop runs. If it does, run it without a profiler "
            "first: perhaps it fails before it computes.",
        )
    return Answer("pass", ["kernels were recorded on every rank"])
