"""Hardware counters that the profiler sampled: how far each phase uses the units of the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceprobe.formatting import clean, number, percent
from traceprobe.model.taxonomy import BUSY_LABELS
from traceprobe.records.gpu_metrics import GpuMetrics, Utilisations
from traceprobe.records.rank import Rank
from traceprobe.render.document import Block, Section, Table, Text

_LABELS = {
    "sm_active": "SMs with work",
    "tensor_active": "tensor cores",
    "dram_read": "memory reads",
    "dram_write": "memory writes",
    "nvlink_rx": "NVLink in",
    "nvlink_tx": "NVLink out",
    "pcie_rx": "PCIe in",
    "pcie_tx": "PCIe out",
}
_HELP = (
    "Each number is the mean of samples, as a part of the most that the unit can do. “SMs with "
    "work” counts multiprocessors with at least one warp, whether it computes or waits; tensor "
    "cores near 0 % in a phase of matrix products hint at their precision or shape; memory reads "
    "and writes share one interface and add up. A kernel that is shorter than the sampling "
    "interval shares its samples with its neighbours, and what is shorter than a few intervals "
    "has “—”."
)


def counters_section(listed: Sequence[Rank]) -> Section | None:
    """A table by phase for each rank of `listed` that has counters; None without any."""
    found = [
        (rank, metrics)
        for rank in listed
        if isinstance(metrics := rank.summary.gpu_metrics, GpuMetrics)
    ]
    if not found:
        return None
    active = found[0][1].step.sm_active
    said = "" if active is None else f": {percent(active, 0)} of its multiprocessors have work"
    return Section(
        "counters",
        f"Counters of the GPU{said}",
        blocks=[block for rank, metrics in found for block in _blocks(rank, metrics)],
        help=_HELP,
        folded=True,
    )


def _blocks(rank: Rank, metrics: GpuMetrics) -> Iterator[Block]:
    yield Text([f"Rank {rank.rank}: {_sentence(metrics)}"])
    shown = [name for name in _LABELS if getattr(metrics.step, name) is not None]
    whole = "step" if rank.summary.iterations_used else "capture"
    rows = [[f"whole {whole}", *_cells(metrics.step, shown)]]
    rows += [
        [BUSY_LABELS.get(phase.phase, clean(phase.phase)), *_cells(phase, shown)]
        for phase in metrics.phases
    ]
    yield Table(
        f"Sampled every {number(metrics.interval_us)} µs; parts of the most possible",
        ["", *(_LABELS[name] for name in shown)],
        rows,
        frozenset(range(1, len(shown) + 1)),
    )


def _sentence(metrics: GpuMetrics) -> str:
    """What the counters of the whole step say."""
    step = metrics.step
    parts = [
        f"{said} {percent(value, 0)} of {of}"
        for said, value, of in (
            ("the multiprocessors have work for", step.sm_active, "the time"),
            ("the tensor cores are active in", step.tensor_active, "the cycles"),
            ("the memory is busy in", step.dram, "its cycles"),
        )
        if value is not None
    ]
    text = ", ".join(parts) or "only links were sampled"
    return f"{text[0].upper()}{text[1:]}."


def _cells(of: Utilisations, shown: Sequence[str]) -> list[str]:
    return [percent(getattr(of, name)) for name in shown]
