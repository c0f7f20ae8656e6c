"""What to do about communication that is not hidden, by what most of it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from traceprobe.findings.evidence import Evidence
from traceprobe.formatting import counted, significant
from traceprobe.model.contention import HIDDEN_COST, SLOW_GBPS
from traceprobe.records.rank import Rank
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.thresholds import FIXED

SHARDED = frozenset({"all_gather", "reduce_scatter"})
REDUCED = frozenset({"all_reduce", "reduce_scatter"})
_SHARDING = "fsdp::all_gather_copy_in"
EXCHANGED = frozenset({"all_to_all", "send_recv"})
_LESS = (
    "Send less: accumulate gradients over more batches (`no_sync()`), reduce in bf16, or give each "
    "rank more work."
)


class Remedy(msgspec.Struct, frozen=True):
    """What to do first and then, and what the iterations are played with.

    Args:
        hides: whether what is played is that communication is hidden, besides.
        gradients: whether it is about the gradients of a model of which each rank has all.
    """

    first: str
    then: str = ""
    changes: Changes | None = None
    gradients: bool = True
    hides: bool = False


FORWARD_ONLY = Remedy(
    "Use fewer GPUs, or GPUs connected by NVLink, and give each rank more work: these steps have "
    "no backward pass and no update, so no gradients are sent, and the model itself communicates "
    "(tensor, sequence or expert parallelism, for example).",
    gradients=False,
)
OF_LAYERS = Remedy(
    "Part of it is reduced in the forward pass, so the model itself communicates, as in tensor "
    "parallelism: the next layer needs each sum, and buckets hide none of them. Split the model "
    "over fewer GPUs, or GPUs connected by NVLink, give each rank more work, or compute another "
    "part of the batch meanwhile.",
    gradients=False,
)
EXCHANGE = Remedy(
    "Most of it is exchanged between pairs of ranks (all-to-all, send and receive), as of "
    "experts, sharded embeddings or the stages of a pipeline: overlap it with independent work, "
    "such as that of another part of the batch, balance what the ranks send each other, or send "
    "16-bit values.",
    gradients=False,
    hides=True,
)
SHARDS = Remedy(
    "Most of it gathers and scatters sharded parameters: fetch them before they are needed "
    "(`set_modules_to_forward_prefetch`, or `forward_prefetch=True` of FSDP1), or shard over fewer "
    "GPUs.",
    "Send less: keep parameters gathered after the forward pass (`reshard_after_forward=False`) "
    "where memory allows, communicate in bf16, or give each rank more work.",
    gradients=False,
    hides=True,
)
ONE_UNIT = replace(
    SHARDS,
    first="Most of it gathers and scatters sharded parameters, of all layers at once, so that "
    "nothing is left to compute beside it. Where FSDP has the model as one unit, shard each layer "
    "by itself (`fully_shard` of each, `auto_wrap_policy` of FSDP1): one is fetched while another "
    "computes.",
)
BROADCASTS = Remedy(
    "Most of it is broadcasts. Where DDP makes them, of buffers such as a queue of samples, set "
    "`broadcast_buffers=False` if these need not be the same on all ranks; where the program makes "
    "them, of parameters, overlap them with independent work.",
    _LESS,
    gradients=False,
)
FEWER = Remedy(
    "Send fewer and larger messages: raise `bucket_cap_mb`.",
    _LESS,
    Changes(bucket_mb=FIXED.bucket_mb),
)
FEWER_AND_EARLIER = replace(
    FEWER,
    first="Send fewer and larger messages, and during the backward pass, as DDP does: now none is "
    "hidden. In DDP raise `bucket_cap_mb`.",
)
FLAT = Remedy(
    "Send fewer and larger messages: most are broadcasts of single tensors; flatten these into one "
    "(`torch.cat`), broadcast that, and split it again.",
    _LESS,
    Changes(bucket_mb=FIXED.bucket_mb),
    gradients=False,
)
EARLIER = Remedy(
    "Reduce during the backward pass, as DDP does: now no communication is hidden. Several "
    "messages (a smaller `bucket_cap_mb`, the default first bucket) let the first start early.",
    _LESS,
    hides=True,
)
TOO_LONG = Remedy(
    _LESS,
    "The messages take longer than the backward pass, so buckets alone cannot hide them.",
    Changes(speedup={"communication": FIXED.less_traffic}),
)
OVERLAP = Remedy(
    "Tune `bucket_cap_mb` so that the all-reduce starts earlier in the backward pass.",
    _LESS,
    hides=True,
)


def remedy(
    evidence: Evidence,
    transfer_ms: float,
    *,
    small: bool,
    overlap_pct: float,
    matters: bool = True,
) -> Remedy:
    """What fits this run, with all that it is played with.

    Args:
        transfer_ms: what all messages of a step take, hidden or not.
        small: whether the messages are small.
        overlap_pct: how much of communication is hidden.
        matters: whether there is enough of it to look for what makes it.
    """
    exposed = _exposed_ns(evidence)
    if matters and _mostly(exposed, "broadcast") and not _mostly_broadcasts(evidence):
        return replace(BROADCASTS, changes=_without("broadcast", exposed))
    found = _fitting(evidence, exposed, transfer_ms, small=small, overlap_pct=overlap_pct)
    if not found.hides:
        return found
    phases = ("backward", "recompute") if found.gradients else ("forward", "backward", "recompute")
    wire = "slow" if _slow_wire(evidence, transfer_ms) else "fast"
    shards = found in (SHARDS, ONE_UNIT)
    cost = HIDDEN_COST["shards" if shards and wire == "fast" else wire]
    return replace(found, changes=_hidden(evidence, transfer_ms, phases, cost))


def _fitting(
    evidence: Evidence,
    exposed: Mapping[str, int],
    transfer_ms: float,
    *,
    small: bool,
    overlap_pct: float,
) -> Remedy:
    if evidence.infers:
        return FORWARD_ONLY
    if _mostly(exposed, *EXCHANGED):
        return EXCHANGE
    if _reduces_forward(evidence):
        return OF_LAYERS
    barely = overlap_pct < FIXED.barely_overlapped
    if _mostly(exposed, *SHARDED):
        at_once = barely and 0 < per_step(evidence, "all_gather") <= FIXED.gathers_of_a_unit
        return ONE_UNIT if at_once else SHARDS
    if small:
        if _mostly_broadcasts(evidence):
            return FLAT
        return FEWER_AND_EARLIER if barely else FEWER
    backward = evidence.busy_ms("backward", "recompute") / _passes_without_sync(evidence)
    if 0 < backward < transfer_ms:
        return TOO_LONG
    return EARLIER if barely else OVERLAP


def _reduces_forward(evidence: Evidence) -> bool:
    """Whether layers add up what their ranks have: several sums are in each forward pass.

    One or two may be of a loss, or of how many samples a batch has. Sharded parameters are gathered
    in a forward pass, and nothing is reduced there.
    """
    reduced = forward = 0.0
    for rank in evidence.ranks:
        for group in rank.summary.collectives:
            if group.operation in REDUCED:
                reduced += group.count
                forward += 0 if isinstance(group.forward, UnsetType) else group.forward
    passes = sum(rank.summary.steps * _passes(rank) for rank in evidence.ranks)
    return forward >= max(FIXED.sums_of_layers * passes, FIXED.forward_sums * reduced)


def _passes(rank: Rank) -> int:
    """Forward passes of a step."""
    passes = rank.summary.micro_batches
    return 1 if isinstance(passes, UnsetType) else passes


def _passes_without_sync(evidence: Evidence) -> int:
    """Backward passes before an update, of which the last alone may have communication beside it.

    Where each of them communicates all of them do.
    """
    summaries = [rank.summary for rank in evidence.ranks]
    if any(summary.repeated_collectives is not UNSET for summary in summaries):
        return 1
    return min(map(_passes, evidence.ranks))


def _hidden(
    evidence: Evidence,
    transfer_ms: float,
    phases: Sequence[str],
    cost: tuple[float, float, float],
) -> Changes:
    """Communication hidden by some phases, whose kernels get slower beside it.

    Args:
        cost: as in `HIDDEN_COST`.
    """
    hidden = frozenset({"communication"})
    summaries = [rank.summary for rank in evidence.ranks]
    known = [name for name in phases if all(s.busy_ns[name] for s in summaries)]
    beside = {name: evidence.busy_ms(name) for name in known}
    if not beside:
        return Changes(overlapped=hidden)
    least, likely, most = cost
    exposed = min(evidence.exclusive_ms("communication"), transfer_ms)
    usual = sum(beside.values())
    factor = round(usual / (usual + likely * exposed), 4)
    return Changes(
        overlapped=hidden,
        speedup=dict.fromkeys(beside, factor),
        margin=(most - least) / 2 / (1 - likely),
    )


def _slow_wire(evidence: Evidence, transfer_ms: float) -> bool:
    """Whether messages of known sizes are slower than over links between GPUs."""
    records = [rank.summary.communication for rank in evidence.ranks]
    sizes = [each.bytes_per_step for each in records if each is not None]
    known = [size for size in sizes if size is not None]
    return bool(known) and fmean(known) < SLOW_GBPS * 1e6 * transfer_ms


def brief(evidence: Evidence) -> bool:
    """Whether many messages take little more than the latency of one, whatever their size."""
    groups = [group for rank in evidence.ranks for group in rank.summary.collectives]
    count = sum(group.count for group in groups)
    per_step = [rank.summary.collectives_per_step or 0.0 for rank in evidence.ranks]
    if not count or fmean(per_step) < FIXED.many_messages:
        return False
    return sum(group.duration_ns for group in groups) / count < 1e3 * FIXED.brief_message_us


def _mostly(exposed: Mapping[str, int], *operations: str) -> bool:
    """Whether more than half of the exposed time is of some operations."""
    mine = sum(exposed.get(name, 0) for name in operations)
    return 2 * mine > sum(exposed.values())


def _without(operation: str, exposed: Mapping[str, int]) -> Changes:
    """Communication without an operation, by what of the exposed time is left."""
    whole = sum(exposed.values())
    left = whole - exposed[operation]
    if not left:
        return Changes(removed=frozenset({"communication"}))
    return Changes(speedup={"communication": round(whole / left, 3)})


def per_step(evidence: Evidence, *operations: str) -> float:
    """Messages per step of some operations, or of all without any; mean over the ranks."""
    return fmean(
        sum(
            group.count_per_step or 0
            for group in rank.summary.collectives
            if not operations or group.operation in operations
        )
        for rank in evidence.ranks
    )


def in_small_shards(evidence: Evidence) -> str:
    """That FSDP gathers many small groups of parameters, as a sentence; empty where it does not.

    Each group keeps the host busy for about as long, whatever its size.
    """
    groups = [
        group
        for rank in evidence.ranks
        for group in rank.summary.collectives
        if group.operation == "all_gather"
    ]
    count, known = per_step(evidence, "all_gather"), [g for g in groups if g.bytes is not None]
    passes = max(map(_passes, evidence.ranks))
    if _SHARDING not in evidence.operators or count < FIXED.many_shards * passes or not known:
        return ""
    size = sum(g.count * (g.bytes or 0) for g in known) / sum(g.count for g in known)
    if size >= 1e6 * FIXED.bucket_mb:
        return ""
    return (
        "Shard larger modules: `fully_shard` each block of the model, not each layer in it. Now "
        f"parameters are gathered {counted(round(count), 'time')} {evidence.per}, "
        f"{significant(size / 1e6)} MB on average. "
    )


def _mostly_broadcasts(evidence: Evidence) -> bool:
    """Whether most messages are broadcasts, and more than DDP makes of a model's buffers."""
    count = per_step(evidence, "broadcast")
    return count >= FIXED.many_messages and 2 * count > per_step(evidence)


def _exposed_ns(evidence: Evidence) -> Counter[str]:
    """Of all ranks, by operation."""
    exposed: Counter[str] = Counter()
    for rank in evidence.ranks:
        for group in rank.summary.collectives:
            exposed[group.operation] += group.exposed_ns
    return exposed
