"""Does the GPU stand still for communication?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence, lines, unanswered
from traceprobe.records.report import Finding

ID = "communication-exposed"
RULE = (
    "Time per step in communication while no other kernel runs. The saving is all transfer, "
    "hidden or not: collectives take multiprocessors and bandwidth from the kernels beside "
    "them."
)
VERIFY = (
    "Run the same script without DDP, each rank for itself, and time it without a profiler. The "
    "difference is what communication costs."
)
FEWER = "Send fewer and larger messages: raise `bucket_cap_mb`."
EARLIER = (
    "Nothing is hidden: reduce while backward runs, as DDP does, in several messages (a smaller "
    "`bucket_cap_mb`, the default first bucket), so that the first begins early."
)
BUFFERS = (
    "Buffers are sent in every step: `broadcast_buffers=False` where they need not be the same "
    "on all ranks."
)
TOO_LONG = "The messages take longer than the backward pass, so that buckets cannot hide them."
OVERLAP = "Tune `bucket_cap_mb` so that the all-reduce starts earlier in backward."
LESS = "Accumulate gradients (`no_sync()`), reduce in bf16, or give each GPU more work per step."
NONE_PCT = 5.0
"""Overlap below which communication and computation take turns."""
SMALL_BYTES = 1e6
"""Below this the start of a message costs more than its bytes on most links."""


def check(evidence: Evidence) -> Finding:
    """Collectives during which no other kernel runs."""
    title = "Communication is not hidden by computation"
    comm = [r.summary.communication for r in evidence.ranks if r.summary.communication is not None]
    if not comm:
        return unanswered(ID, "not-applicable", title, "no communication kernels")
    ms = evidence.exclusive_ms("communication")
    per_step = [r.summary.collectives_per_step for r in evidence.ranks]
    known = [c for c in per_step if c is not None]
    status = evidence.grade(evidence.verdict.shares.get("communication", 0.0))
    matters = status in ("warn", "fail")
    size = _mean_bytes(evidence)
    small = matters and size is not None and size < SMALL_BYTES
    hidden = sum(c.overlap_pct for c in comm) / len(comm)
    broadcasts = _broadcasts(evidence)
    return Finding(
        id=ID,
        status=status,
        title=title,
        saving_ms_per_step=evidence.saving(_whole_ms(evidence)),
        evidence=lines(
            f"{ms:.2f} ms {evidence.per} ({evidence.share(ms):.1%}) of communication while nothing "
            "is computed",
            f"{hidden:.1f} % of communication overlaps with "
            "computation"
            + (f", {sum(known) / len(known):.1f} collectives per step" if known else ""),
            f"messages are small: {(size or 0) / 1e3:.1f} kB on average" if small else "",
            f"{broadcasts:.3g} broadcasts per step, as DDP sends of buffers" if broadcasts else "",
            evidence.worst("communication"),
        ),
        advice=" ".join(
            lines(
                _first(evidence, small=small, hidden_pct=hidden),
                BUFFERS if matters and broadcasts else "",
                LESS,
            )
        ),
    )


def _first(evidence: Evidence, *, small: bool, hidden_pct: float) -> str:
    """What the buckets should be, or why they do not matter."""
    if small:
        return FEWER
    backward = evidence.busy_ms("backward", "recompute")
    if 0 < backward < _whole_ms(evidence):
        return TOO_LONG
    return EARLIER if hidden_pct < NONE_PCT else OVERLAP


def _broadcasts(evidence: Evidence) -> float:
    """Broadcasts per step, mean over the ranks."""
    counts = [
        sum(g.count_per_step or 0 for g in r.summary.collectives if g.operation == "broadcast")
        for r in evidence.ranks
    ]
    return sum(counts) / len(counts)


def _whole_ms(evidence: Evidence) -> float:
    """All transfer, hidden or not: it takes multiprocessors and bandwidth from kernels beside it.

    Without communication, steps whose collectives were hidden to 95 % and more got shorter by half
    of what the collectives take (docs/validation/README.md), so exposed time is no upper bound.
    """
    run = evidence.run
    if run is not None and run.transfer_ns is not None:
        whole = run.transfer_ns / 1e6
    else:
        whole = evidence.busy_ms("communication")
    return min(whole, evidence.corrected_step_ms())


def _mean_bytes(evidence: Evidence) -> float | None:
    """Mean message; None where the size or the number of any rank's messages is not known."""
    found = [
        (r.summary.communication.bytes_per_step, r.summary.collectives_per_step)
        for r in evidence.ranks
        if r.summary.communication is not None
    ]
    sizes = [size / count for size, count in found if size is not None and count]
    return sum(sizes) / len(sizes) if sizes and len(sizes) == len(found) else None
