"""Runs of several world sizes whose every part is known; times are whole ms per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from tests.report_factory import (
    MS,
    make_ablation,
    make_collectives,
    make_findings,
    make_input,
    make_rank,
    make_report,
    make_variant,
)
from traceprobe.compare.run import Observed, observe
from traceprobe.records.ablation import Ablation
from traceprobe.records.report import ObserverEffect
from traceprobe.records.run import Run
from traceprobe.records.summary import CollectiveGroup
from traceprobe.verdict import Thresholds
from traceprobe.verdict.allreduce import Links, Message
from traceprobe.verdict.judge import judge

STEPS = 12


def run_of(
    ranks: int,
    *,
    forward: int = 30,
    backward: int = 60,
    optimizer: int = 10,
    transfer: int = 0,
    skew: int = 0,
    hidden: float = 0.0,
    host: int = 0,
    wait: int = 0,
    other: int = 0,
    samples: float | None = None,
    messages: Sequence[Message] = (),
    causes: dict[str, float] | None = None,
    matched: bool = True,
    unprofiled_ms: float | None = None,
    ablation: Ablation | None = None,
    label: str | None = None,
    **workload: Any,
) -> Observed:
    """A run whose ranks are all alike.

    Args:
        transfer: exposed, and `hidden` beside it. skew: exposed waiting for ranks, by `causes`.
        host, wait, other: idle for the host, for data, and unexplained.
        samples: of all ranks; 64 a rank by default, None where `samples` is 0.
    """
    partition = {
        "forward": forward,
        "backward": backward,
        "optimizer": optimizer,
        "communication": transfer + skew,
        "idle_host": host,
        "idle_data_wait": wait,
        "idle_unexplained": other,
    }
    several = ranks > 1
    found = []
    for number in range(ranks):
        rank = make_rank(partition, number, STEPS, hidden=hidden)
        communication = replace(
            rank.summary.communication, skew_exposed_ns=skew * MS * STEPS if several else None
        )
        groups = [group_of(message) for message in messages]
        summary = replace(rank.summary, communication=communication, collectives=groups)
        found.append(replace(rank, summary=summary))
    run = None
    if several:
        known = matched and (transfer or hidden or messages)
        run = Run(
            world_size=ranks,
            collectives_matched=8 * STEPS if known else 0,
            transfer_ns=round((transfer + hidden) * MS) if known else None,
            skew_ns=skew * MS if known else None,
            straggler_rank=None,
            straggler_cause=None,
            skew_causes=causes,
        )
    effect = None
    if unprofiled_ms is not None:
        traced = float(sum(partition.values()))
        effect = ObserverEffect(
            profiled_step_ms=traced, unprofiled_step_ms=unprofiled_ms, ratio=traced / unprofiled_ms
        )
    plain = make_report()
    quality = replace(plain.quality, observer_effect=effect)
    unprofiled_ns = None if unprofiled_ms is None else unprofiled_ms * MS
    amount = 64.0 * ranks if samples is None else samples
    recorded = {"name": "unet", "samples_per_step": amount or None, **workload}
    return observe(
        make_report(
            inputs=[make_input(f"rank{number}.json") for number in range(ranks)],
            quality=quality,
            ranks=found,
            run=run,
            workload=recorded,
            verdict=judge(found, run, quality, frozenset(), unprofiled_ns, Thresholds()),
            ablation=ablation,
            findings=make_findings(sum(partition.values())),
        ),
        label or f"on {ranks}",
    )


def group_of(message: Message) -> CollectiveGroup:
    """Matched collectives of a rank."""
    count = round(message.count * STEPS)
    total = round(message.ms * MS * count)
    return replace(
        make_collectives(message.bytes, 1, STEPS),
        operation=message.operation,
        group_size=message.ranks,
        count=count,
        count_per_step=message.count,
        total_ns=total,
        exposed_ns=round(message.exposed * total),
        overlapped_ns=total - round(message.exposed * total),
        duration_ns=total,
        matched=count,
        transfer_ns=total,
        skew_ns=0,
    )


def message(links: Links, ranks: int, size: int, count: float = 1, exposed: float = 1.0) -> Message:
    """All-reduces that take exactly what the links allow."""
    ms = links.ms("all_reduce", size, ranks)
    return Message("all_reduce", size, ranks, ms, count, exposed)


def ablation_of(**steps_ms: float) -> Ablation:
    """An ablation with these step times; `_` in a name stands for `-`."""
    variants = [make_variant(name.replace("_", "-"), ms) for name, ms in steps_ms.items()]
    return make_ablation(variants=variants)
