"""Do collectives reach the speed of the links between the GPUs?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import UNSET

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.recorded_facts import has_nvlink
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import counted
from traceprobe.records.rank import Rank
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.links import nvlink_gbps
from traceprobe.verdict.thresholds import FIXED

TRANSPORT = (
    "NCCL is not using NVLink: run with NCCL_DEBUG=INFO and check which transport it chooses "
    "(`via P2P`, `via SHM`, `via NET/Socket`). Unset NCCL_P2P_DISABLE and NCCL_SHM_DISABLE, give "
    "each process all GPUs of its machine, and check with `nvidia-smi topo -m` how they are "
    "connected."
)
SIZES = (
    "Analyse the files of all ranks together, with the sizes of messages: those of "
    "`torch.profiler`, or of `nsys export --include-blobs=true`."
)


LIMITED = (
    "NCCL may drive the links with one channel alone, which is one block of threads: unset "
    "NCCL_MAX_NCHANNELS and NCCL_MAX_CTAS, and give process groups no `max_ctas`. Else it "
)


class Message(msgspec.Struct, frozen=True):
    """Equal collectives of a rank; `ms` is its part of their transfer in a step."""

    operation: str
    bytes: int
    busbw_gbps: float
    ms: float
    channels: int | None


@rule(
    "bus-bandwidth",
    title="Collectives are much slower than the links",
    definition="Bus bandwidth of collectives of 16 MB and more, as nccl-tests defines it, from "
    "their transfer (the shortest duration among the ranks), over what NVLink of these GPUs does "
    "in one direction. Below 15 % they do not go over NVLink. The saving is what their transfer "
    "would be shorter by at full speed.",
    verify="Run `all_reduce_perf -b 16M -e 256M -g N` of nccl-tests on the same GPUs, and the "
    "program with NCCL_DEBUG=INFO, whose log names the transport.",
)
def bus_bandwidth(evidence: Evidence) -> Answer:
    """The bus bandwidth of large messages beside the peak of NVLink."""
    if not any(r.summary.communication for r in evidence.ranks):
        return not_applicable("no communication kernels")
    peak = nvlink_gbps(evidence.ranks)
    if peak is None:
        return not_applicable("these devices are not known to be connected by NVLink")
    if has_nvlink(evidence.capture) is False:
        return not_applicable("these GPUs are not connected by NVLink")
    if not _one_machine(evidence.ranks):
        return not_applicable("the ranks may be on several machines, not connected by NVLink")
    messages = list(_large(evidence.ranks))
    if not messages:
        return not_applicable("no large message whose size and transfer are known", SIZES)
    total = sum(m.ms for m in messages)
    gbps = sum(m.busbw_gbps * m.ms for m in messages) / total
    slow = gbps < FIXED.low_bandwidth * peak
    saved = total * (1 - min(gbps / peak, 1.0))
    largest = max(messages, key=lambda m: m.ms)
    return Answer(
        evidence.grade(evidence.share(saved)) if slow else "pass",
        [
            f"{largest.operation.replace('_', '-')} at {100 * gbps / peak:.1f} % of NVLink: "
            f"{gbps:.1f} of {peak:.0f} GB/s of bus bandwidth",
            f"most of it in messages of {largest.bytes / 1e6:.1f} MB",
            f"{evidence.amount(total)} of transfer in large messages",
            f"NCCL drives them with {counted(largest.channels, 'channel')}"
            if slow and largest.channels
            else "",
        ],
        evidence.saving(saved, "communication") if slow else None,
        _advice(largest) if slow else "",
        changes=_over_nvlink(evidence, total * (1 - gbps / (FIXED.reached_bandwidth * peak))),
    )


def _advice(largest: Message) -> str:
    return TRANSPORT if largest.channels != 1 else LIMITED + TRANSPORT.removeprefix("NCCL ")


def _over_nvlink(evidence: Evidence, saved: float) -> Changes | None:
    """All collectives faster by what the large ones usually are over NVLink."""
    busy = evidence.busy_ms("communication")
    if not 0 < saved < busy:
        return None
    return Changes(speedup={"communication": round(busy / (busy - saved), 3)})


def _large(ranks: Sequence[Rank]) -> Iterator[Message]:
    """The large messages of all ranks whose transfer is that of all ranks of their group."""
    for rank in ranks:
        for group in rank.summary.collectives:
            if (
                group.busbw_gbps
                and group.bytes is not None
                and group.bytes >= FIXED.bus_message
                and group.transfer_ns
                and group.operation != "send_recv"
            ):
                # Those that were not matched take as long as those that were.
                transfer = group.transfer_ns * group.count / group.matched
                ms = transfer / rank.summary.steps / len(ranks) / 1e6
                channels = None if group.channels is UNSET else group.channels
                yield Message(group.operation, group.bytes, group.busbw_gbps, ms, channels)


def _one_machine(ranks: Sequence[Rank]) -> bool:
    """Whether each rank has a GPU of another number, as on one machine."""
    indices = [rank.device.index for rank in ranks]
    return len(set(indices)) == len(indices)
