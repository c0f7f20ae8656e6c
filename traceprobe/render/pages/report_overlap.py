"""How much of the transfers hides behind kernels: a bar for each kind and rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from traceprobe.formatting import duration
from traceprobe.records.rank import Rank
from traceprobe.records.summary import Communication
from traceprobe.render.bars import Segment, segments
from traceprobe.render.colours import CLASS_COLOURS, SHARE_COLOURS
from traceprobe.render.pages.report_tables import steps_divisor

WORDS = {
    "hidden": "hidden by kernels",
    "beside": "beside other transfers",
    "exposed": "exposed",
    "waiting": "exposed, waiting for other ranks",
}


@dataclass(frozen=True)
class Overlap:
    """One kind of transfer on one rank; the bar stands for the time in which it runs."""

    title: str
    time: str
    segments: list[Segment]


def overlaps(ranks: Sequence[Rank]) -> list[Overlap]:
    """Communication of every rank, then its copies to the device, where there is any."""
    several = len(ranks) > 1
    found = []
    for kind, title in (("communication", "Communication"), ("h2d", "Copies to the device")):
        for rank in ranks:
            values = _values(rank, kind)
            if not sum(values.values()):
                continue
            colours = {
                "hidden": SHARE_COLOURS["compute"],
                "beside": CLASS_COLOURS["memory"],
                "exposed": CLASS_COLOURS[kind],
                "waiting": SHARE_COLOURS["overhead"],
            }
            unit = "per step" if rank.summary.iterations_used else "in the capture"
            time = f"{duration(sum(values.values()) / steps_divisor(rank))} {unit}"
            name = f"{title}, rank {rank.rank}" if several else title
            found.append(Overlap(name, time, segments(values, WORDS, colours)))
    return found


def _values(rank: Rank, kind: str) -> dict[str, float]:
    """Observed parts in ns; they add up to the time in which such a transfer runs."""
    transfer = rank.summary.h2d if kind == "h2d" else rank.summary.communication
    if transfer is None:
        return {}
    waiting = transfer.skew_exposed_ns or 0 if isinstance(transfer, Communication) else 0
    parts = {
        "hidden": transfer.overlapped_ns,
        "beside": transfer.total_ns - transfer.overlapped_ns - transfer.exposed_ns,
        "exposed": transfer.exposed_ns - waiting,
        "waiting": waiting,
    }
    return {key: float(value) for key, value in parts.items() if value > 0}
