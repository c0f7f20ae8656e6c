"""How long collectives take among more ranks: bandwidth and latency, fitted to measured transfers.

A message of S bytes among n ranks takes volume · S / B + hops · L, with the bus bandwidth B and the
latency L of one hop. For an all-reduce these are, as NCCL's documentation and that of nccl-tests
derive them,

    ring    volume 2(n−1)/n    hops 2(n−1)
    tree    volume 2           hops 2·log2(n)

A tree moves more but hops less; which of the two a library takes depends on sizes and links. So the
one that fits the measurements better is used, and the other tells how much depends on the choice.
One number of ranks cannot tell them apart: then it is the ring.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2, sqrt

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from traceprobe.records.run import Algorithm
from traceprobe.verdict.thresholds import FIXED

Floats = npt.NDArray[np.float64]

PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
"""How often a ring passes the whole message on."""
CHAINS = ("broadcast", "reduce")
"""Operations that send the whole message along all ranks once."""


class Message(msgspec.Struct, frozen=True):
    """Equal collectives of a step.

    Args:
        ms: transfer of one. count: how many a step.
        exposed: part of their time that no computation hides, waiting for ranks included.
    """

    operation: str
    bytes: int
    ranks: int
    ms: float
    count: float
    exposed: float

    @property
    def total_ms(self) -> float:
        """All of them in a step."""
        return self.count * self.ms


class Links(msgspec.Struct, frozen=True):
    """What joins the ranks.

    Args:
        gbps: B of the formulas, GB/s; of a ring the bus bandwidth. latency_us: of one hop.
        error: root mean square of the relative errors of the fitted transfers, weighted by their
            time. ranks: numbers of ranks that they were fitted to.
        latency_known: whether messages of different sizes were there.
    """

    algorithm: Algorithm
    gbps: float
    latency_us: float
    error: float
    ranks: tuple[int, ...]
    latency_known: bool

    def ms(self, operation: str, size: float, ranks: int) -> float:
        """Time of one message."""
        volume, hops = cost(operation, ranks, self.algorithm)
        return volume * size / self.gbps / 1e6 + hops * self.latency_us / 1e3

    def across(self, gbps: float) -> Links:
        """The same where a slower wire of `gbps` GB/s is on the way."""
        return replace(self, gbps=min(self.gbps, gbps))


def is_known(operation: str) -> bool:
    """Whether the model knows an operation."""
    return operation in PASSES or operation in CHAINS


def cost(operation: str, ranks: int, algorithm: Algorithm) -> tuple[float, float]:
    """Volume, as a multiple of the message, and hops."""
    if ranks < 2:
        return 0.0, 0.0
    if operation in CHAINS:
        return 1.0, ranks - 1.0
    passes = PASSES[operation]
    if algorithm == "tree" and operation == "all_reduce":
        return 2.0, 2 * log2(ranks)
    return passes * (ranks - 1) / ranks, passes * (ranks - 1.0)


def fit(messages: Sequence[Message], algorithm: Algorithm) -> Links | None:
    """Bandwidth and latency by which the messages take the times that they took.

    Weighted least squares of the relative errors, with neither number below 0.

    Returns:
        None where there is nothing to fit, or no bandwidth explains the times.
    """
    messages = [m for m in messages if m.ranks > 1 and m.ms > 0 and m.bytes > 0]
    if not messages:
        return None
    costs = [cost(m.operation, m.ranks, algorithm) for m in messages]
    pairs = list(zip(costs, messages, strict=True))
    per_slowness = np.array([volume * m.bytes / 1e6 / m.ms for (volume, _), m in pairs])
    per_us = np.array([hops / 1e3 / m.ms for (_, hops), m in pairs])
    weight = np.sqrt(_weights(messages))
    known = _tells_latency(messages)
    slowness, latency = 0.0, 0.0
    if known:
        table = np.stack([per_slowness, per_us], axis=1) * weight[:, None]
        slowness, latency = map(float, np.linalg.lstsq(table, weight, rcond=None)[0])
    if not known or latency < 0:
        latency = 0.0
        slowness = float((weight**2 * per_slowness).sum() / (weight**2 * per_slowness**2).sum())
    if slowness <= 0:
        return None
    off = per_slowness * slowness + per_us * latency - 1
    ranks = tuple(sorted({m.ranks for m in messages}))
    error = sqrt(float(((weight * off) ** 2).sum()))
    return Links(algorithm, 1 / slowness, latency, error, ranks, known)


def better(ring: Links | None, tree: Links | None) -> Algorithm:
    """The algorithm that explains the transfers better."""
    if ring is None or tree is None:
        return "ring" if tree is None else "tree"
    return "tree" if len(ring.ranks) > 1 and tree.error < ring.error else "ring"


def _weights(messages: Sequence[Message]) -> Floats:
    """Each message's part of the transfer of its run; all runs weigh the same; they sum to 1."""
    totals = {m.ranks: 0.0 for m in messages}
    for m in messages:
        totals[m.ranks] += m.total_ms
    return np.array([m.total_ms / totals[m.ranks] for m in messages]) / len(totals)


def _tells_latency(messages: Sequence[Message]) -> bool:
    """Whether any number of ranks has messages of clearly different sizes."""
    for ranks in {m.ranks for m in messages}:
        sizes = [m.bytes for m in messages if m.ranks == ranks]
        if max(sizes) >= FIXED.message_spread * min(sizes):
            return True
    return False
