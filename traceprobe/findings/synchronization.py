"""Does the program wait for the GPU where it need not?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import UnsetType

from traceprobe.findings.called_operators import told_by_operators
from traceprobe.findings.device_waits import DeviceWaits, device_waits
from traceprobe.findings.evidence import HOST_IDLE, Evidence
from traceprobe.findings.offloading import KEEP, offloads_activations
from traceprobe.findings.owned_time import waiting_operators
from traceprobe.findings.recorded_cores import taken
from traceprobe.findings.rule import NO_CALLS, Answer, rule
from traceprobe.formatting import counted, plain, shorten
from traceprobe.replay.reads import PREPARING
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.thresholds import FIXED

MAX_NAME = 80
MOST_PLACES = 3
"""Operators that a sentence names."""


@rule(
    "synchronization",
    title="Synchronisation keeps the GPU waiting",
    definition="Blocking calls per step; idle time inside them, and after them until the host is "
    "ahead of the GPU again, but no more than the calls have lasted: without them the host would "
    "be earlier by that, and what it does after them takes its time in either case. Added to that "
    "is host work done only to read values, and what the profiler slowed the host by, without "
    "which it would wait longer. Waiting for data is not counted. The saving is that idle time, "
    "and kernels that only compute what is read. Where waiting is more than half of all overhead, "
    "the saving has the latency of launches, too, since a host that is ahead hides it, and what "
    "the step is longer by without a profiler; and what the verdict keeps of overhead decides the "
    "state, without what other programs took of a busy machine: `host-overhead` then asks for what "
    "is left.",
    verify='`torch.cuda.set_sync_debug_mode("warn")` names the lines. After the change '
    "`host.syncs_per_step` is near 0.",
    of_gpu=True,
)
def synchronization(evidence: Evidence) -> Answer:
    """Blocking calls, and the idle GPU until the host is ahead of it again."""
    if not evidence.observed("idle_sync"):
        return NO_CALLS
    waits = device_waits(evidence)
    most, classes = _bound(evidence, waits)
    copies = _copies(evidence)
    removed = {"sync", "reads"} if waits.reading_ms else {"sync"}
    share = waits.seen_ms / (evidence.corrected_step_ms() or 1.0)
    if waits.explain:
        kept = evidence.verdict.shares.get("overhead", 0.0) - taken(evidence.blocks.values())
        share = max(share, kept)
    return Answer(
        evidence.grade(share) if waits.matters else "pass",
        [
            f"{counted(waits.per_step, 'blocking call')} {evidence.per}{_calls(evidence)}",
            _places(evidence) if waits.matters else "",
            _awaited(copies),
            f"{evidence.amount(waits.seen_ms)} of idle GPU in them and until the host is ahead "
            "again, as far as the calls delayed the host",
        ],
        evidence.saving(most, *classes) if waits.matters else None,
        _cause(evidence)
        or _advice(copies, _named(evidence), waits.per_step, _copied_us(evidence, copies)),
        evidence.sites("idle_sync"),
        Changes(removed=frozenset(removed), margin=FIXED.usual_margin if waits.reading_ms else 0.0),
    )


def _cause(evidence: Evidence) -> str:
    """What to do about a mistake that is known to make the host wait; empty without one."""
    return told_by_operators(evidence, waits=True) or KEEP * offloads_activations(evidence)


def _bound(evidence: Evidence, waits: DeviceWaits) -> tuple[float, tuple[str, ...]]:
    """The most that is saved, and of which classes.

    Of a host that is ahead no launch is late. Where waiting explains most of what is overhead, the
    latency of launches goes with it, and what the capture does not show.
    """
    kernels = waits.preparing_ms
    phases = (PREPARING,) if kernels else ()
    if not waits.explain:
        return waits.most_ms + kernels, ("idle_sync", "idle_host", *phases)
    latency = evidence.exclusive_ms("idle_latency") - evidence.fed_ms("idle_latency")
    most = waits.most_ms + latency + evidence.unseen_ms("overhead")
    return min(most, evidence.overhead_ms()) + kernels, ("idle_sync", *HOST_IDLE, *phases)


def _named(evidence: Evidence) -> Mapping[str, float]:
    """The calls per step by name, of the rank with most of them."""
    return _most(r.summary.host.blocking_calls for r in evidence.ranks)


def _calls(evidence: Evidence) -> str:
    """The calls by name, as a phrase."""
    most = _named(evidence)
    return ": " + ", ".join(f"{plain(n)} {name}" for name, n in most.items()) if most else ""


def _places(evidence: Evidence) -> str:
    """The operators that wait, with their lines; empty where the trace has neither."""
    places = waiting_operators(evidence.owners)
    named = [f"{plain(n)} {shorten(place, MAX_NAME)}" for place, n in places[:MOST_PLACES]]
    return ", ".join(named) + (", …" if len(places) > MOST_PLACES else "")


def _copies(evidence: Evidence) -> Mapping[str, float]:
    """The copies that calls wait for, of the rank with most of them, by their way."""
    return _most(r.summary.host.awaited_copies for r in evidence.ranks)


def _most(each: Iterable[dict[str, float] | UnsetType]) -> Mapping[str, float]:
    """The counts with the largest sum; empty where none are known."""
    known = [counts for counts in each if not isinstance(counts, UnsetType)]
    return max(known, key=lambda counts: sum(counts.values()), default={})


def _awaited(copies: Mapping[str, float]) -> str:
    """What the calls wait for, where that is copies; else empty."""
    words = {
        "d2h": "for a copy to the host, whose value the program reads",
        "h2d_pinned": "for a copy to the GPU from pinned memory, without `non_blocking=True`",
        "h2d_pageable": "for a copy to the GPU from pageable memory",
    }
    told = [f"{_times(copies[way])} {what}" for way, what in words.items() if way in copies]
    return "they wait " + ", ".join(told) if told else ""


def _times(count: float) -> str:
    return "once" if count == 1 else f"{plain(count)} times"


def _copied_us(evidence: Evidence, copies: Mapping[str, float]) -> float:
    """How long a copy to the host takes the GPU, mean; 0 where calls wait for none."""
    count = copies.get("d2h", 0.0)
    return 1e3 * evidence.busy_ms("d2h") / count if count else 0.0


def _advice(
    copies: Mapping[str, float], calls: Mapping[str, float], count: float, copied_us: float
) -> str:
    """What to change first, by what most calls wait for.

    Args:
        copied_us: as of `_copied_us`.
    """
    half = FIXED.mostly_copied * count
    if sum(n for name, n in calls.items() if "DeviceSynchronize" in name) > half:
        return (
            "Leave out `torch.cuda.synchronize()`: training does not need it, and CUDA events "
            "(`torch.cuda.Event`) time a step without making the host wait."
        )
    if copies.get("h2d_pinned", 0.0) > half:
        return (
            "Copy with `non_blocking=True`: the memory is pinned, so the host need not wait for "
            "the copy, and launches the step meanwhile."
        )
    if copies.get("h2d_pageable", 0.0) > half:
        return (
            "Pin the memory that is copied (`pin_memory=True`), and copy with "
            "`non_blocking=True`: the host then waits for no copy."
        )
    if copies.get("d2h", 0.0) > half and copied_us >= FIXED.values_copied_us:
        return (
            "Whole tensors are copied to the host: do on the GPU what is done with them there (an "
            "average of the weights, a metric), less often, or copy them together, with "
            "`non_blocking=True` into pinned memory."
        )
    return (
        "Keep values on the GPU: no `.item()`, `.cpu()`, `print(loss)` or `if tensor:` in the "
        "step; log every N steps, and copy with `non_blocking=True`."
    )
