"""The turns that the devices of one process take."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET
from msgspec.structs import replace

from traceprobe.records.rank import Rank


def taking_turns(ranks: Sequence[Rank]) -> list[Rank]:
    """The devices of one process, each with as much waiting for others as all of them have.

    Those that compute the parts of a model by turns wait for each other. What one waits beyond the
    one that waits least, as while that alone evaluates or updates the parameters, is no turn.
    """
    waits = [rank.summary.host.awaiting_device_ns() / rank.summary.steps for rank in ranks]
    least = min(waits) if len(waits) > 1 else 0.0
    return [
        _waiting(rank, least / own if own else 0.0) for rank, own in zip(ranks, waits, strict=True)
    ]


def _waiting(rank: Rank, part: float) -> Rank:
    """The rank with a part of its waiting for other devices."""
    host = rank.summary.host
    known = {} if host.awaits_device_ns is UNSET else host.awaits_device_ns
    kept = {cause: round(part * ns) for cause, ns in known.items()}
    kept = {cause: ns for cause, ns in kept.items() if ns}
    if kept == known:
        return rank
    host = replace(host, awaits_device_ns=kept or UNSET)
    return replace(rank, summary=replace(rank.summary, host=host))
