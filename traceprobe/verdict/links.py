"""What joins the ranks: bandwidth and latency by the transfers of a run, beside NVLink's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceprobe.records.rank import Rank
from traceprobe.records.run import Links
from traceprobe.verdict.allreduce import Message, fit, is_known
from traceprobe.verdict.gpu_specs import find_gpu


def links(ranks: Sequence[Rank], world_size: int) -> Links | None:
    """Fitted to the collectives of the whole run that were matched on all ranks.

    Waiting for ranks is not in their transfer, so this is the wire as the library drives it. The
    model of a message is that of a ring (`verdict.allreduce`).

    Returns:
        None with fewer than two ranks, and where no such message has a known size.
    """
    messages = _messages(ranks, world_size)
    fitted = fit(messages, "ring") if world_size > 1 else None
    if fitted is None:
        return None
    peak = nvlink_gbps(ranks)
    return Links(
        gbps=round(fitted.gbps, 3),
        latency_us=round(fitted.latency_us, 3) if fitted.latency_known else None,
        fit_error=round(fitted.error, 4),
        messages=len(messages),
        nvlink_gbps=peak,
    )


def _messages(ranks: Sequence[Rank], world_size: int) -> list[Message]:
    """One for each operation and size, mean over the ranks."""
    groups: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for rank in ranks:
        for group in rank.summary.collectives:
            whole = group.group_size in (None, world_size) and group.bytes
            if whole and is_known(group.operation) and group.matched and group.transfer_ns:
                ms = group.transfer_ns / group.matched / 1e6
                key = (group.operation, group.bytes or 0)
                groups.setdefault(key, []).append((ms, float(group.count)))
    means = {key: np.mean(values, axis=0).tolist() for key, values in groups.items()}
    return [
        Message(operation, size, world_size, ms, count, exposed=0.0)
        for (operation, size), (ms, count) in sorted(means.items())
    ]


def nvlink_gbps(ranks: Sequence[Rank]) -> float | None:
    """What NVLink of the devices does in one direction; None where they differ or are not known.

    AMD's Infinity Fabric has none: each pair of GPUs has a link of its own, so how much of all of
    them a collective can use depends on how many take part.
    """
    gpus = [find_gpu(*facts) for facts in {rank.device.facts for rank in ranks}]
    peaks = {gpu.nvlink_gbps if gpu and gpu.vendor == "nvidia" else None for gpu in gpus}
    return peaks.pop() if len(peaks) == 1 else None
