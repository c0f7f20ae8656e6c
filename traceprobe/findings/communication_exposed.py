"""Does the GPU stand still for communication?"""

from __future__ import annotations

from statistics import fmean

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.message_advice import brief, per_step, remedy
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import counted, plain, significant
from traceprobe.verdict.pipeline import bubble_ms
from traceprobe.verdict.thresholds import FIXED

BUFFERS = (
    "Buffers are broadcast in every step: set `broadcast_buffers=False` if they need not be the "
    "same on all ranks."
)


@rule(
    "communication-exposed",
    title="Communication is not overlapped with computation",
    definition="Time per step in communication while no other kernel runs. The saving is all "
    "transfer, hidden or not: collectives take multiprocessors and bandwidth from the kernels "
    "beside them. Where the step without a profiler is known, that is what the verdict has of it, "
    "and what is hidden.",
    verify="Run the same script without DDP, each rank for itself, and time it without a profiler. "
    "The difference is what communication costs.",
)
def communication_exposed(evidence: Evidence) -> Answer:
    """Collectives during which no other kernel runs."""
    summaries = [r.summary for r in evidence.ranks]
    communication = [s.communication for s in summaries if s.communication is not None]
    if not communication:
        return not_applicable("no communication kernels")
    ms = evidence.exclusive_ms("communication")
    counts = [n for s in summaries if (n := s.collectives_per_step) is not None]
    # Waiting between the stages of a pipeline has a finding of its own.
    bubble = evidence.share(bubble_ms(evidence.ranks) or 0.0)
    status = evidence.grade(evidence.verdict.shares.get("communication", 0.0) - bubble)
    matters = status in ("warn", "fail")
    size = _mean_bytes(evidence)
    small = matters and size is not None and size < FIXED.small_message
    short = matters and size is None and brief(evidence)
    hidden = hidden_ms(evidence)
    overlap = fmean(c.overlap_pct for c in communication)
    broadcasts = per_step(evidence, "broadcast")
    whole_ms = transfer_ms(evidence)
    found = remedy(evidence, whole_ms, small=small or short, overlap_pct=overlap, matters=matters)
    advice = [found.first, found.then]
    if matters and broadcasts and found.gradients:
        advice.insert(1, BUFFERS)
    return Answer(
        status,
        [
            f"{evidence.amount(ms)} of communication while nothing is computed",
            f"{overlap:.1f} % of communication overlaps with computation"
            + (f" and slows it, {significant(hidden)} ms besides" if hidden else "")
            + (f", {counted(fmean(counts), 'collective')} per step" if counts else ""),
            f"messages are small: {(size or 0) / 1e3:.1f} kB on average" if small else "",
            "messages are small: most of their time is latency" if short else "",
            f"{plain(broadcasts)} broadcasts per step, as DDP makes for buffers"
            if broadcasts
            else "",
            evidence.worst("communication"),
        ],
        evidence.saving(whole_ms, "communication"),
        " ".join(filter(None, advice)),
        changes=found.changes,
    )


def transfer_ms(evidence: Evidence) -> float:
    """All transfer, hidden or not: it takes multiprocessors and bandwidth from kernels beside it.

    Without communication, steps whose collectives were hidden to 95 % and more got shorter by half
    of what the collectives take (docs/validation/README.md), so exposed time is no upper bound.
    """
    run = evidence.run
    if run is not None and run.transfer_ns is not None:
        whole = run.transfer_ns / 1e6
    else:
        whole = evidence.busy_ms("communication")
    if evidence.quality.observer_effect is not None:
        # Beside the profiler a host that sends is slower, too.
        whole = min(whole, evidence.communication_ms() + hidden_ms(evidence))
    return min(whole, evidence.corrected_step_ms())


def hidden_ms(evidence: Evidence) -> float:
    """Communication beside computation, ms per step."""
    return max(evidence.busy_ms("communication") - evidence.exclusive_ms("communication"), 0.0)


def _mean_bytes(evidence: Evidence) -> float | None:
    """Mean message; None where the size or the number of any rank's messages is not known."""
    amounts = [
        (r.summary.communication.bytes_per_step, r.summary.collectives_per_step)
        for r in evidence.ranks
        if r.summary.communication is not None
    ]
    sizes = [size / count for size, count in amounts if size is not None and count]
    return fmean(sizes) if sizes and len(sizes) == len(amounts) else None
