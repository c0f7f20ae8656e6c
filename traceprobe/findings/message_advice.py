"""What to do about communication that is not hidden, by what most of it is."""

from __future__ import annotations

from collections import Counter
from statistics import fmean

import msgspec

from traceprobe.findings.evidence import Evidence
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.thresholds import FIXED

SHARDED = frozenset({"all_gather", "reduce_scatter"})
EXCHANGED = frozenset({"all_to_all", "send_recv"})
_OF_TRAINING = ("backward", "recompute", "optimizer", "graph")
"""Phases of which a step of training has some; a graph may have any."""
_LESS = (
    "Send less: accumulate gradients over more batches (`no_sync()`), reduce in bf16, or give each "
    "rank more work."
)
_HIDDEN = Changes(overlapped=frozenset({"communication"}))


class Remedy(msgspec.Struct, frozen=True):
    """What to do first and then, and what the iterations are played with.

    Args:
        gradients: whether it is about the gradients of a model of which each rank has all.
    """

    first: str
    then: str = ""
    changes: Changes | None = _HIDDEN
    gradients: bool = True


FORWARD_ONLY = Remedy(
    "These steps have no backward pass and no update, so no gradients are sent: the model itself "
    "communicates, as where its tensors, sequences or experts are split. Split it over fewer GPUs, "
    "or over such as NVLink joins, and give each rank more work.",
    changes=None,
    gradients=False,
)
EXCHANGE = Remedy(
    "Most of it is exchanged between pairs of ranks (all-to-all, send and receive), as of "
    "experts, sharded embeddings or the stages of a pipeline: begin it beside work that does not "
    "need it, such as that of another part of the batch, balance what the ranks send each other, "
    "or send 16 bits.",
    gradients=False,
)
SHARDS = Remedy(
    "Most of it gathers and scatters sharded parameters: fetch them before they are needed "
    "(`set_modules_to_forward_prefetch`, or `forward_prefetch=True` of FSDP1), or shard over fewer "
    "GPUs.",
    "Send less: keep parameters gathered after the forward pass (`reshard_after_forward=False`) "
    "where memory allows, communicate in bf16, or give each rank more work.",
    gradients=False,
)
FEWER = Remedy(
    "Send fewer and larger messages: raise `bucket_cap_mb`.",
    _LESS,
    Changes(bucket_mb=FIXED.bucket_mb),
)
EARLIER = Remedy(
    "Reduce during the backward pass, as DDP does: now no communication is hidden. Several "
    "messages (a smaller `bucket_cap_mb`, the default first bucket) let the first start early.",
    _LESS,
)
TOO_LONG = Remedy(
    _LESS,
    "The messages take longer than the backward pass, so buckets alone cannot hide them.",
    Changes(speedup={"communication": FIXED.less_traffic}),
)
OVERLAP = Remedy(
    "Tune `bucket_cap_mb` so that the all-reduce starts earlier in the backward pass.", _LESS
)


def remedy(evidence: Evidence, transfer_ms: float, *, small: bool, overlap_pct: float) -> Remedy:
    """What fits this run.

    Args:
        transfer_ms: what all messages of a step take, hidden or not.
        small: whether the messages are small.
        overlap_pct: how much of communication is hidden.
    """
    if evidence.busy_ms("forward") and not evidence.busy_ms(*_OF_TRAINING):
        return FORWARD_ONLY
    exposed = _exposed_ns(evidence)
    half = sum(exposed.values()) / 2
    if half and sum(exposed[name] for name in EXCHANGED) > half:
        return EXCHANGE
    if half and sum(exposed[name] for name in SHARDED) > half:
        return SHARDS
    if small:
        return FEWER
    backward = evidence.busy_ms("backward", "recompute")
    if 0 < backward < transfer_ms:
        return TOO_LONG
    return EARLIER if overlap_pct < FIXED.barely_overlapped else OVERLAP


def brief(evidence: Evidence) -> bool:
    """Whether many messages take little more than the latency of one, whatever their size."""
    groups = [group for rank in evidence.ranks for group in rank.summary.collectives]
    count = sum(group.count for group in groups)
    per_step = [rank.summary.collectives_per_step or 0.0 for rank in evidence.ranks]
    if not count or fmean(per_step) < FIXED.many_messages:
        return False
    return sum(group.duration_ns for group in groups) / count < 1e3 * FIXED.brief_message_us


def _exposed_ns(evidence: Evidence) -> Counter[str]:
    """Of all ranks, by operation."""
    exposed: Counter[str] = Counter()
    for rank in evidence.ranks:
        for group in rank.summary.collectives:
            exposed[group.operation] += group.exposed_ns
    return exposed
