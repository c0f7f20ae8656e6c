"""Are the kernels too small to be worth a launch?"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np
from msgspec import UNSET

from traceprobe.findings.evidence import HOST_IDLE, Evidence
from traceprobe.findings.host_stalls import line_sites, unnamed_ms
from traceprobe.findings.launching import fewer_launches, replays_graphs
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.findings.unfused_kernels import asks_for_fusion
from traceprobe.formatting import listed, plain, shorten, significant
from traceprobe.model.taxonomy import KERNEL_PHASES
from traceprobe.records.launches import KernelSequence
from traceprobe.records.tiny_kernels import TinyKernels
from traceprobe.replay.scenario import Changes, tiny_of_model
from traceprobe.replay.tasks import Tasks
from traceprobe.verdict.thresholds import FIXED

FUSED = Changes(
    speedup={"tiny-kernels": round(1 / (1 - FIXED.fusion_usual), 2)}, margin=FIXED.fusion_margin
)
"""What a compiler's fusion leaves of tiny kernels and their launches."""
MAX_NAME = 60
MOST_NAMES = 4
"""Operators of a sequence that a sentence names."""


@rule(
    "small-kernels",
    title="Many short kernels",
    definition="Mean kernel duration and number of launches per step; kernels of a CUDA graph "
    "share one. The saving is the idle time of `host-overhead`, all of which a CUDA graph can take "
    "away at best. In addition, the GPU time of kernels that do little more than start and end, "
    "and of the gaps after them; not of those of the optimizer, nor where `unfused-kernels` asks "
    "for a change, which counts them. The saving is all of it and that idle time, since their "
    "launches go away too, but of that no more than the host spends on these.",
    verify="`host.kernels_per_step` falls, `host.mean_kernel_us` rises, and the unprofiled step "
    "gets shorter.",
    of_gpu=True,
)
def small_kernels(evidence: Evidence) -> Answer:
    """Mean kernel duration against the cost of a launch, or what tiny kernels take themselves."""
    hosts = [r.summary.host for r in evidence.ranks if r.summary.host.mean_kernel_us is not None]
    if not hosts:
        return not_applicable("no kernels")
    mean = fmean(h.mean_kernel_us or 0.0 for h in hosts)
    launches = fmean(h.launches_per_step for h in hosts)
    starved = evidence.verdict.shares.get("overhead", 0.0) >= evidence.thresholds.notable
    # Of the first rank that has some: all ranks run the same program, as a rule.
    found = ((r.summary.sequences, r.summary.steps) for r in evidence.ranks)
    sequences, steps = next(((s, n) for s, n in found if s), ([], 1))
    warned = mean < FIXED.short_kernel_us and launches > FIXED.many_launches and starved
    tiny_ms = 0.0 if warned or asks_for_fusion(evidence) else _tiny_ms(evidence)
    if evidence.flag(tiny_ms) == "warn":
        return _tiny(evidence, tiny_ms)
    return Answer(
        "warn" if warned else "pass",
        [
            f"{fmean(h.kernels_per_step for h in hosts):,.0f} kernels {evidence.per}, "
            f"{mean:.1f} µs on average, in {launches:,.0f} launches",
            _told(evidence, sequences[0], steps) if sequences and warned else "",
        ],
        evidence.saving(unnamed_ms(evidence), *HOST_IDLE) if warned else None,
        _advice(evidence) + (_where(sequences) if warned else ""),
        changes=fewer_launches(evidence),
    )


def _tiny_ms(evidence: Evidence) -> float:
    """Time on the device that tiny kernels take, and the gaps after them, of the mean rank."""
    return evidence.of_steps((tiny.cost_ns, steps) for tiny, steps in _tiny_of(evidence))


def _tiny_of(evidence: Evidence) -> list[tuple[TinyKernels, int]]:
    """Those of the ranks that have any, with their steps."""
    summaries = (rank.summary for rank in evidence.ranks)
    return [(s.tiny_kernels, s.steps) for s in summaries if s.tiny_kernels is not UNSET]


def _tiny(evidence: Evidence, ms: float) -> Answer:
    """The answer where the device spends its time on starting and ending kernels."""
    most, steps = max(_tiny_of(evidence), key=lambda pair: pair[0].cost_ns / pair[1])
    gaps = significant(most.gap_ns / steps / 1e6)
    return Answer(
        "warn",
        [
            f"{plain(most.count / steps)} kernels of at most {plain(FIXED.tiny_kernel_us)} µs take "
            f"{evidence.amount(ms)} of the GPU's time, "
            f"{gaps} ms of it between them: starting and ending them is most of that",
            f"most of it in {listed([f'`{shorten(name, MAX_NAME)}`' for name in most.names])}",
        ],
        evidence.saving(_with_launching(evidence), *KERNEL_PHASES, *HOST_IDLE),
        _advice(evidence),
        line_sites([most.lines], ms),
        FUSED,
    )


def _with_launching(evidence: Evidence) -> float:
    """The time of tiny kernels, the gaps after them, and what their launches make others late, ms.

    The host cannot be earlier by more than it takes to launch them.
    """
    gaps = evidence.of_steps((tiny.gap_ns, steps) for tiny, steps in _tiny_of(evidence))
    late = min(unnamed_ms(evidence), gaps + _launching_ms(evidence))
    return _tiny_ms(evidence) + max(late - gaps, 0.0)


def _launching_ms(evidence: Evidence) -> float:
    """What the host takes to launch tiny kernels, as the mean of the ranks; 0 where not known."""

    def total(tasks: Tasks) -> tuple[float]:
        launching = np.maximum(tasks.host - tasks.held_up, 0.0)
        return (float(launching[tiny_of_model(tasks)].sum()),)

    (launching,) = evidence.played_ms(total) or (0.0,)
    return launching


def _advice(evidence: Evidence) -> str:
    """How to have fewer and longer kernels: graphs help where they do not launch them already."""
    graphs = "" if replays_graphs(evidence) else ", replay them as a CUDA graph"
    return (
        f"Fuse them (`torch.compile`, fused optimizers and losses){graphs}, or raise the batch "
        "size so that each does more."
    )


def _told(evidence: Evidence, first: KernelSequence, steps: int) -> str:
    """A sequence of short kernels, and what launching each repetition at once saves."""
    saved = evidence.saving(first.bound_ns / steps / 1e6, *HOST_IDLE)
    kernels = len(first.kernels)
    return (
        f"{plain(first.count / steps)} times {evidence.per} the same {kernels} short kernels "
        f"in a row{_names(first)}: {plain(first.saved_launches / steps)} launches fewer "
        "if each were one kernel"
        + (f", which saves at most {significant(saved.ms)} ms of waiting" if saved else "")
        + "; what they would read and write less is not in the trace"
    )


def _where(sequences: Sequence[KernelSequence]) -> str:
    """Where to begin, as a sentence with a blank before it; empty where that is not known."""
    places = (sequence.line or sequence.within for sequence in sequences)
    place = next(filter(None, places), None)
    return f" Begin with what runs in `{shorten(place, MAX_NAME)}`." if place else ""


def _names(sequence: KernelSequence) -> str:
    """The first operators of a sequence in brackets; empty where the trace has none."""
    each = list(dict.fromkeys(name for name in sequence.operators if name))
    shown = [f"`{shorten(name, MAX_NAME)}`" for name in each[:MOST_NAMES]]
    more = ", …" if len(each) > MOST_NAMES else ""
    return f" ({', '.join(shown)}{more})" if shown else ""
