"""Records of a run with exact numbers, for judging without a trace. Times are ms per step."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from tests.report_factory import MS, make_rank
from traceprobe.model.taxonomy import BUSY, LEVELS, PARTITION
from traceprobe.records.host_activity import HostActivity
from traceprobe.records.packed import Table
from traceprobe.records.rank import Rank, StepMarker
from traceprobe.records.report import Quality
from traceprobe.records.run import Run
from traceprobe.records.summary import Communication, HostToDevice
from traceprobe.records.tree import COLUMNS, Tree
from traceprobe.verdict.bounds import decide
from traceprobe.verdict.confidence import terms as confidence_terms
from traceprobe.verdict.correction import correct
from traceprobe.verdict.thresholds import Thresholds

THRESHOLDS = Thresholds()
STEPS = 10
MARKER = StepMarker(kind="range", pattern=r"step \d+", count=12, confidence=0.95)
SLOWED_BY = ("operators", "stacks")
"""What a profiler records that slows the host."""
HOST = HostActivity(
    launches_per_step=100.0,
    kernels_per_step=100.0,
    mean_kernel_us=100.0,
    launch_to_start_us_p50=10.0,
    syncs_per_step=0.0,
    idle_after_sync_ns=0,
    data_wait_inferred_ns=0,
)


def step(io: int = 0, communication: int = 0, overhead: int = 0, **more: int) -> dict[str, int]:
    """Parts of a 1000 ms step; what is left is computation."""
    parts = {"idle_data_wait": io, "communication": communication, "idle_host": overhead, **more}
    return parts | {"forward": 1_000 - sum(parts.values())}


def rank(
    parts: dict[str, int],
    number: int = 0,
    *,
    steps: int = STEPS,
    marked: bool = True,
    **changes: Any,
) -> Rank:
    """A rank in which nothing costs confidence.

    Args:
        parts: class of the partition to ms per step; the others are 0.
        marked: with a step marker; without one the whole capture is one window.
        changes: fields of the summary.
    """
    whole = make_rank(parts, rank=number, steps=steps)
    summary = {
        "iterations_used": steps if marked else 0,
        "partition_ns": {key: parts.get(key, 0) * MS * steps for key in PARTITION},
        "busy_ns": {key: parts.get(key, 0) * MS * steps for key in BUSY},
        "attributed_share": 1.0,
        "coverage": 1.0,
        "host": HOST,
        "communication": None,
        "h2d": None,
    }
    if not marked:
        summary["step_ms"] = None
    return replace(
        whole,
        step_marker=MARKER if marked else None,
        summary=replace(whole.summary, **{**summary, **changes}),
    )


def communication(exposed: int, *, skew: int | None = None, total: int | None = None):
    """Communication of a rank, ms per step, over `STEPS` steps."""
    whole = exposed if total is None else total
    return Communication(
        total_ns=whole * MS * STEPS,
        exposed_ns=exposed * MS * STEPS,
        overlapped_ns=(whole - exposed) * MS * STEPS,
        overlap_pct=100 * (whole - exposed) / whole if whole else 0.0,
        skew_exposed_ns=None if skew is None else skew * MS * STEPS,
    )


def copies(
    total: int, exposed: int | None = None, *, megabytes: int = 0, pageable: int = 0
) -> HostToDevice:
    """Copies to the device of a rank, ms per step, over `STEPS` steps."""
    return HostToDevice(
        total_ns=total * MS * STEPS,
        exposed_ns=(total if exposed is None else exposed) * MS * STEPS,
        overlapped_ns=0,
        overlap_pct=0.0,
        bytes=megabytes * 2**20 * STEPS,
        gbps=10.0 if megabytes else None,
        pageable_bytes=pageable * STEPS,
    )


def with_optimizer(made: Rank, name: str) -> Rank:
    """The rank, whose trace names its optimizer so; not at all if the name is empty."""
    tree = Tree(
        levels=list(LEVELS),
        names=[f"Optimizer.step#{name}.step"] if name else [],
        nodes=Table.of({column: np.zeros(0, dtype=np.int64) for column in COLUMNS}),
    )
    return replace(made, tree=tree)


def host(**changes: Any) -> HostActivity:
    """What the host did; by default nothing of note."""
    return replace(HOST, **changes)


def quality(**changes: Any) -> Quality:
    """A good capture of many ops."""
    good = Quality(
        gpu_ops=1_000,
        gpu_ops_linked=1_000,
        launches_without_gpu_op=0,
        events_repaired=0,
        events_lost=0,
        observer_effect=None,
        warnings=[],
    )
    return replace(good, **changes)


def run(**changes: Any) -> Run:
    """Two ranks whose collectives were matched."""
    matched = Run(
        world_size=2,
        collectives_matched=80,
        transfer_ns=10 * MS,
        skew_ns=30 * MS,
        straggler_rank=None,
        straggler_cause=None,
    )
    return replace(matched, **changes)


def judge_parts(
    ranks, together=None, profiled=(), unprofiled_ms=None, thresholds=THRESHOLDS, **facts
):
    """Decision, corrected shares and confidence terms of some ranks."""
    marks, good = frozenset(profiled), quality(**facts)
    unprofiled = None if unprofiled_ms is None else unprofiled_ms * MS
    corrected = correct(ranks, together, unprofiled, marks)
    decision = decide(corrected, ranks, good, thresholds)
    found = confidence_terms(decision, corrected, ranks, together, good, marks, thresholds)
    return decision, corrected, found
