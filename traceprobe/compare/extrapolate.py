"""What a step would take on more ranks, from the steps of runs on fewer.

The model starts from a measured run, the anchor, and changes three things:

- transfers grow as `allreduce.Links` says, relative to what it says of the anchor, so that at the
  anchor itself the model is the measurement;
- what was exposed of them grows in that proportion, and what exceeds the room to hide it is exposed
  too. The room is the backward pass without its first part: messages are taken to become ready
  evenly through the pass, so the first of m waits for 1/m of it. A run that hid more has that room;
- computation and loading change with the work of a rank, which strong scaling makes less. Overhead,
  waiting for ranks and all else stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

import msgspec

from traceprobe.records.run import Algorithm
from traceprobe.verdict.allreduce import Links, Message, better, fit, is_known

ALGORITHMS: tuple[Algorithm, Algorithm] = ("ring", "tree")
MODELLED = 0.9
"""Part of the transfer that must be of messages whose sizes and operations are known."""


class Sized(msgspec.Struct, frozen=True):
    """A run as the model needs it, ms per step.

    Args:
        work: of one rank and step, in any unit that the runs share.
        scaling_ms: the part of the step that changes with the work of a rank.
        constant_ms: the part that does not. exposed_ms: exposed transfer, the rest of the step.
        transfer_ms: transfer of all collectives; None where that is not known.
        messages: those whose sizes and operations are known.
        room_ms: backward pass that may hide communication.
        sizes: why the sizes of messages are missing, where they are.
    """

    world_size: int
    work: float
    scaling_ms: float
    constant_ms: float
    exposed_ms: float
    transfer_ms: float | None
    messages: Sequence[Message]
    room_ms: float
    sizes: str | None = None

    @property
    def step_ms(self) -> float:
        """The whole step."""
        return self.scaling_ms + self.constant_ms + self.exposed_ms


class Nodes(msgspec.Struct, frozen=True):
    """Where machines end: GPUs of one, and GB/s between two, as far as the user has said."""

    gpus: int | None = None
    gbps: float | None = None

    def several(self, ranks: int) -> bool:
        """Whether so many ranks need more than one node."""
        return self.gpus is not None and ranks > self.gpus


class Predicted(msgspec.Struct, frozen=True):
    """A step of the model, ms."""

    step_ms: float
    transfer_ms: float
    exposed_ms: float


class Unpredictable(ValueError):
    """The runs do not tell; the message says why, in a few words."""


def predict(
    runs: Sequence[Sized], ranks: int, work: float, nodes: Nodes, algorithm: Algorithm
) -> Predicted:
    """The step of `ranks` ranks that do `work` each.

    Raises:
        Unpredictable: the runs do not tell.
    """
    several = [run for run in runs if run.world_size > 1]
    if not several:
        raise Unpredictable("one rank alone does not communicate: a run of several is needed")
    known = [run for run in several if run.transfer_ms is not None]
    if not known:
        raise Unpredictable(
            "no run tells transfer from waiting for ranks: the traces of all its ranks are needed"
        )
    anchor = min(known, key=lambda run: (abs(log2(ranks / run.world_size)), run.world_size))
    scale = work / anchor.work
    rest = anchor.scaling_ms * scale + anchor.constant_ms
    if not anchor.transfer_ms:
        return Predicted(rest, 0.0, 0.0)
    growth = _growth(known, anchor, ranks, nodes, algorithm)
    messages = anchor.messages
    transfer = anchor.transfer_ms * _mean(growth, [m.total_ms for m in messages])
    exposed = anchor.exposed_ms * _mean(growth, [m.total_ms * m.exposed for m in messages])
    room = scale * _room(anchor, anchor.transfer_ms)
    exposed = min(max(exposed, transfer - room), max(transfer, anchor.exposed_ms))
    return Predicted(rest + exposed, transfer, exposed)


def likelier(runs: Sequence[Sized], nodes: Nodes) -> Algorithm:
    """The algorithm that explains the transfers better, inside a node where there are any."""
    for several in (False, True):
        ring, tree = (links(runs, nodes, several, name) for name in ALGORITHMS)
        if ring is not None or tree is not None:
            return better(ring, tree)
    return "ring"


def links(runs: Sequence[Sized], nodes: Nodes, several: bool, algorithm: Algorithm) -> Links | None:
    """The links inside a node, or those of runs that needed several."""
    fitting = [
        message
        for run in runs
        for message in run.messages
        if nodes.several(run.world_size) == several
    ]
    return fit(fitting, algorithm)


def _growth(
    runs: Sequence[Sized], anchor: Sized, ranks: int, nodes: Nodes, algorithm: Algorithm
) -> list[float]:
    """How much longer each message of the anchor takes among `ranks`."""
    sized_ms = sum(message.total_ms for message in anchor.messages)
    if sized_ms < MODELLED * (anchor.transfer_ms or 0):
        raise Unpredictable(
            f"the model needs the sizes of messages of {anchor.world_size} ranks"
            + (
                f": {anchor.sizes.rstrip('.')}"
                if anchor.sizes
                else ", and operations that it knows"
            )
        )
    before = _links(runs, anchor.world_size, nodes, algorithm)
    after = _links(runs, ranks, nodes, algorithm)
    return [
        after.ms(m.operation, m.bytes, ranks) / before.ms(m.operation, m.bytes, anchor.world_size)
        for m in anchor.messages
    ]


def _links(runs: Sequence[Sized], ranks: int, nodes: Nodes, algorithm: Algorithm) -> Links:
    several = nodes.several(ranks)
    found = links(runs, nodes, several, algorithm)
    if found is not None:
        return found
    inside = links(runs, nodes, False, algorithm)
    if several and nodes.gbps is None:
        raise Unpredictable(
            f"that takes more than one node of {nodes.gpus} GPUs, and how fast nodes are joined "
            "is not known: give --inter-node-gbps"
        )
    if inside is None or nodes.gbps is None:
        raise Unpredictable("no bandwidth explains the transfers of the runs")
    return inside.across(nodes.gbps)


def _room(anchor: Sized, transfer: float) -> float:
    count = sum(message.count for message in anchor.messages)
    evenly = anchor.room_ms * max(1 - 1 / count, 0.0) if count else 0.0
    return max(evenly, transfer - anchor.exposed_ms)


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Weighted mean; 1 without any weight."""
    total = sum(weights)
    if total <= 0:
        return 1.0
    return sum(v * w for v, w in zip(values, weights, strict=True)) / total


def usable(operation: str, size: int | None, ranks: int | None, world_size: int) -> bool:
    """Whether collectives can be extrapolated: known, sized, and of all ranks."""
    return is_known(operation) and bool(size) and ranks == world_size > 1
