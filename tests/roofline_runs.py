"""A run whose operations and bytes are counted, on a GPU whose peaks are known."""

from __future__ import annotations

from msgspec.structs import replace

from tests.report_factory import MS, make_report
from traceprobe.records.rank import DeviceInfo

TFLOP = 10**12
"""Operations."""


def counted_phase(flops=0, moved=0, matrices=0, precision="bf16", model=None):
    """What was counted in a phase: operations, and bytes moved."""
    return {
        "flops": {precision: flops} if flops else {},
        "model_flops": {precision: flops if model is None else model} if flops else {},
        "bytes": moved,
        "matrix_bytes": matrices,
    }


def counted_workload(**changes):
    """What was counted in a step of 12 TFLOP."""
    counted = {
        "forward": counted_phase(4 * TFLOP, 10 * 10**9, 4 * 10**9),
        "backward": counted_phase(8 * TFLOP, 24 * 10**9, 12 * 10**9),
        "recompute": counted_phase(),
        "optimizer": {"bytes": 48 * 10**8},
        "compiled": False,
        **changes,
    }
    model = sum(
        sum(counted[name]["model_flops"].values()) for name in ("forward", "backward", "recompute")
    )
    return {"flops_per_step": model, "work": counted, "ranks": 1}


def run_on_h200(partition=None, **device):
    """A report of a compute-bound run on an H200: peaks 989.5 TFLOP/s in bf16, 4800 GB/s."""
    report = make_report("compute")
    (rank,) = report.ranks
    steps = rank.summary.iterations_used
    times = {"forward": 12, "backward": 24, "optimizer": 4, "communication": 2, **(partition or {})}
    partition_ns = {
        name: times.get(name, 0) * MS * steps if name in times or value is not None else None
        for name, value in rank.summary.partition_ns.items()
    }
    summary = replace(rank.summary, partition_ns=partition_ns)
    told = {"index": 0, "name": "NVIDIA H200", "kind": "gpu", **device}
    return replace(report, ranks=[replace(rank, summary=summary, device=DeviceInfo(**told))])
