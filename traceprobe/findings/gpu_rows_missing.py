"""Did the profiler record what the GPU did?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import Answer, rule
from traceprobe.verdict.no_training import (
    is_cut,
    kernels_counted,
    unrecorded_ranks,
    without_kernels,
)

_WITHOUT_COUNTERS = (
    "Capture again without `profiler_metrics`: while the profiler counts, it runs kernels one "
    "after the other, and times none. What it counted is under *Counters of kernels*."
)
_COPY_AGAIN = (
    "A trace file was cut off, and what the GPU did may be in the rest: copy it again, or record "
    "again."
)


@rule(
    "gpu-rows-missing",
    title="The GPU's work is not in the capture",
    definition="Ranks that launch kernels, or run operators of CUDA's libraries, while not one "
    "kernel is in their capture; and captures of a GPU that computes nothing.",
    verify="A new capture lists kernels in `top_kernels`, and `coverage` is near 1.",
    of_capture=True,
    of_gpu=True,
)
def rows_missing(evidence: Evidence) -> Answer:
    """Launches without a kernel: the capture failed, whatever the run did."""
    failed = unrecorded_ranks(evidence.ranks, evidence.quality)
    said = [w.message for w in evidence.quality.warnings if w.code == "gpu-rows-missing"]
    launches = evidence.quality.launches_without_gpu_op
    cut = is_cut(evidence.quality)
    if failed:
        named = ", ".join(str(rank.rank) for rank in failed)
        return Answer(
            "fail",
            [
                f"{launches} launches and copies have no GPU row" if launches else "",
                f"kernels are missing on rank {named}" if len(evidence.ranks) > 1 else "",
                *said,
                "" if launches or said else "no kernel that was recorded takes any time",
            ],
            advice=_COPY_AGAIN
            if cut
            else _WITHOUT_COUNTERS
            if kernels_counted(evidence.quality)
            else "Look for other profilers and monitors that use CUPTI (DCGM, Nsight, a second "
            "torch.profiler), for a driver newer than the profiler's CUPTI, for permissions on "
            "performance counters, and whether `ProfilerActivity.CUDA` is asked for; then capture "
            "again, and synchronise before the profiler stops.",
        )
    if without_kernels(evidence.ranks):
        return Answer(
            "fail",
            ["the GPU runs copies or memsets only, and nothing launches a kernel"],
            advice=_COPY_AGAIN
            if cut
            else "Capture while the training loop runs. If it does, run it without a profiler "
            "first: perhaps it fails before it computes.",
        )
    return Answer("pass", ["kernels were recorded on every rank"])
