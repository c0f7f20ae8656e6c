"""How far a report can be believed: what was lost, repaired, distorted, or is in doubt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from traceprobe.findings.profiler_distortion import REMEASURE, REMEASURE_ON_CPU
from traceprobe.pipeline.rank_numbers import overruled_ranks
from traceprobe.pipeline.trace_part import Lost, TracePart
from traceprobe.records.ablation import Ablation
from traceprobe.records.rank import Rank, mean_step_ms
from traceprobe.records.recording import Recording
from traceprobe.records.report import LostInput, Message, ObserverEffect, Quality, Verdict
from traceprobe.verdict import agreement
from traceprobe.verdict.compared_steps import HEAVY

MAX_NAMED = 5
"""Lost inputs that the warning names; `quality.lost` has all."""


def build_quality(
    parts: Sequence[TracePart],
    lost: Sequence[Lost],
    records: Sequence[Rank],
    unprofiled_ms: float | None,
    elsewhere: bool,
    doubts: Mapping[str, str],
    recording: Recording | None,
) -> Quality:
    """How far the inputs can be believed.

    Args:
        unprofiled_ms: step without the profiler, where it is known. elsewhere: as
            `other_conditions` has it. doubts: warnings by code.
    """
    profiled = mean_step_ms(records)
    effect = None
    if unprofiled_ms is not None and profiled is not None:
        effect = ObserverEffect(
            profiled_step_ms=round(profiled, 6),
            unprofiled_step_ms=unprofiled_ms,
            ratio=round(profiled / unprofiled_ms, 4),
            other_conditions=elsewhere,
        )
    damage: Counter[str] = Counter()
    for part in parts:
        damage.update(part.quality.damage)
    contradicted = len(overruled_ranks(parts))
    if contradicted:
        damage["ranks-contradicted"] = contradicted
    warnings = {code: text for p in parts for code, text in p.quality.warnings.items()}
    warnings |= doubts
    if contradicted:
        warnings["ranks-contradicted"] = (
            f"{contradicted} files claim a rank that another one claims too; their ranks were "
            "taken from the names of the files."
        )
    return Quality(
        gpu_ops=sum(p.gpu_ops for p in parts),
        gpu_ops_linked=sum(p.gpu_ops_linked for p in parts),
        launches_without_gpu_op=sum(p.launches_without_gpu_op for p in parts),
        events_repaired=sum(p.quality.events_repaired for p in parts),
        events_lost=sum(p.quality.events_lost for p in parts),
        observer_effect=effect,
        warnings=[Message(code=c, message=m) for c, m in sorted(warnings.items())],
        damage=dict(sorted(damage.items())) or UNSET,
        recording=UNSET if recording is None else recording,
        lost=[LostInput(name=part.name, reason=part.reason) for part in lost] or UNSET,
        nccl_records=sorted((r for p in parts for r in p.nccl_records), key=lambda r: r.rank)
        or UNSET,
    )


def with_warnings(
    quality: Quality,
    verdict: Verdict,
    profiled: frozenset[str],
    ablation: Ablation | None,
    *,
    on_cpu: bool,
) -> Quality:
    """Add what only the verdict shows to matter."""
    warnings = {}
    if any(term.name == "observer-effect" for term in verdict.confidence_terms):
        marks = ", ".join(sorted(profiled & HEAVY))
        warnings["observer-effect"] = (
            f"Overhead decides this verdict, and the trace records {marks}: a profiler that does "
            "so slows the host, often more than the run itself does. "
            f"{REMEASURE_ON_CPU if on_cpu else REMEASURE}"
        )
    if quality.events_lost:
        warnings["events-lost"] = (
            f"{quality.events_lost} damaged events could not be read and are missing."
        )
    if quality.lost is not UNSET:
        named = "; ".join(entry.reason for entry in quality.lost[:MAX_NAMED])
        more = len(quality.lost) - MAX_NAMED
        warnings["rank-lost"] = (
            f"{len(quality.lost)} inputs could not be read and are missing from every number: "
            f"{named}{f'; and {more} more' if more > 0 else ''}"
        )
    if ablation is not None:
        compared = agreement.compare(verdict, ablation)
        if compared.state == "disagree":
            warnings["ablation-disagrees"] = (
                f"By ablation, which needs no profiler: {compared.words}."
            )
    added = [Message(code=code, message=text) for code, text in warnings.items()]
    merged = sorted([*quality.warnings, *added], key=lambda warning: warning.code)
    return replace(quality, warnings=merged)
