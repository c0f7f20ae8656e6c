"""Totals over the used iterations of a device, and over its kernels, copies and collectives."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import msgspec

from traceprobe.formatting import per
from traceprobe.model.taxonomy import BUSY, KERNEL_CLASSES, PARTITION, SHARE_CLASSES, SHARES
from traceprobe.records.double_precision import DoublePrecision
from traceprobe.records.embedding_table import EmbeddingTable
from traceprobe.records.forward_only import ForwardOnly
from traceprobe.records.gpu_metrics import GpuMetrics
from traceprobe.records.host_activity import HostActivity
from traceprobe.records.kernel_counters import KernelCounters
from traceprobe.records.launches import KernelSequence, Launches
from traceprobe.records.logits import Logits
from traceprobe.records.masked_attention import MaskedAttention
from traceprobe.records.numbers import SHARE_ROUNDING
from traceprobe.records.operator_calls import OperatorCalls
from traceprobe.records.repeated_backward import RepeatedBackward
from traceprobe.records.repeated_collectives import RepeatedCollectives
from traceprobe.records.texts import Name, PhaseName, Sentence, Word
from traceprobe.records.tiny_kernels import TinyKernels
from traceprobe.records.unused_gradients import UnusedGradients

Operation = Literal[
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "copy",
    "gather",
    "other",
    "reduce",
    "reduce_scatter",
    "scatter",
    "send_recv",
]
Nanoseconds = dict[Word, int | None]
"""Class name to ns; None where that class was not observed in the trace."""


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Mean and percentiles of the used iterations, ms."""

    mean: float
    p10: float
    p50: float
    p90: float

    @property
    def ascending(self) -> bool:
        """Whether they are above 0 and the percentiles are in order."""
        return 0 < self.p10 <= self.p50 <= self.p90 and self.mean > 0


class Communication(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives of the used iterations; totals in ns."""

    total_ns: int
    exposed_ns: int
    overlapped_ns: int
    overlap_pct: float
    skew_exposed_ns: int | None = None
    """Exposed time spent waiting for the slowest rank; None where that cannot be told."""
    stage_wait_ns: int | msgspec.UnsetType = msgspec.UNSET
    """Exposed time spent waiting in messages from one rank to another, as the stages of a pipeline
    do; not there without such messages."""
    all_reduces_per_step: float | None = None
    """None without used iterations, or where a collective does not say what it does."""
    bytes_per_step: int | None = None
    """Messages of all collectives; None where the size of any is not in the trace."""
    sizes: Sentence | None = None
    """Why sizes or numbers of ranks are missing; None where none is."""


ReducedType = Literal["bfloat16", "float16", "float32", "float64"]


class CollectiveGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives of one operation, message size and group size; totals over `count` of them."""

    operation: Operation
    dtype: ReducedType | None = None
    """Of what a reduction adds up, by the names of its kernels; None where these do not tell."""
    bytes: int | None
    group_size: int | None
    count: int
    count_per_step: float | None
    total_ns: int
    exposed_ns: int
    overlapped_ns: int
    duration_ns: int
    """Sum of their durations, waiting for other ranks included."""
    matched: int
    """Those of them that were found on other ranks too."""
    transfer_ns: int | None
    skew_ns: int | None
    algbw_gbps: float | None
    """From the transfer time, where every rank of the group was matched."""
    busbw_gbps: float | None
    algbw_at_least_gbps: float | None
    """From durations that may hold waiting: the links are at least this fast."""
    busbw_at_least_gbps: float | None
    channels: int | msgspec.UnsetType = msgspec.UNSET
    """Blocks of its kernels at most, each of which drives a channel of NCCL; not there where the
    trace does not say."""
    forward: int | msgspec.UnsetType = msgspec.UNSET
    """Those of them launched in a forward pass; not there where none is."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if min(self.count, self.total_ns, self.duration_ns, self.matched) < 0:
            yield "a group of collectives takes less than no time"
        if self.exposed_ns + self.overlapped_ns != self.total_ns:
            yield "a group of collectives is not the sum of exposed and overlapped"
        if self.matched > self.count or bool(self.matched) != (self.transfer_ns is not None):
            yield "a group of collectives has transfer without matches, or the reverse"
        if self.bytes is None and self.algbw_at_least_gbps is not None:
            yield "a group of collectives has a bandwidth without bytes"


class HostToDevice(msgspec.Struct, frozen=True, kw_only=True):
    """Copies from host to device in the used iterations; totals in ns and bytes."""

    total_ns: int
    exposed_ns: int
    overlapped_ns: int
    overlap_pct: float
    bytes: int
    gbps: float | None
    pageable_bytes: int
    returned_bytes: int | msgspec.UnsetType = msgspec.UNSET
    """What backward passes bring back of what forward passes copied to the host; not there
    without, and in older reports."""


class UnfusedAttention(msgspec.Struct, frozen=True, kw_only=True):
    """Attention that writes its scores to memory, in forward and backward pass; totals."""

    count: int
    """Softmax kernels between the matrix products of attention."""
    class_ns: dict[Word, int]
    """Durations of all kernels from product to product, by class; `memory` is copies between."""
    fused_ns: int
    """What fused attention takes with products at the same rate, if no mask hides scores."""
    hidden_ns: int = 0
    """Of that, what masks hide: half of what is computed under one square of queries and keys for
    all samples and heads, as a causal mask is; a quarter where each sample has its own, or the form
    of the mask is not known."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if self.hidden_ns > self.fused_ns:
            yield "masks hide more of attention than there is"
        if min(self.count, self.fused_ns, self.hidden_ns, *self.class_ns.values(), 0) < 0:
            yield "attention takes less than no time"
        if not set(self.class_ns) <= {*KERNEL_CLASSES, "memory"}:
            yield "attention has kernels of an unknown class"


class KernelShare(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel, by name and phase, and its time in the used iterations."""

    name: Name
    phase: PhaseName
    count: int
    total_ns: int
    mean_ns: float
    phase_share: float | None = None
    """Part of the kernel time of its phase."""
    tensor_cores: bool | None = None
    """Whether a matrix kernel runs on tensor cores; None for others, and where no name tells."""
    beside_communication_ns: int | msgspec.UnsetType = msgspec.UNSET
    """Of `total_ns`, time during which a collective runs; not there without collectives, and for
    them."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if min(self.count - 1, self.total_ns, self.mean_ns) < 0:
            yield "summary: a kernel takes less than no time"
        beside = self.beside_communication_ns
        if beside is not msgspec.UNSET and not 0 <= beside <= self.total_ns:
            yield "summary: a kernel is beside communication for longer than it runs"


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Totals over the used iterations, or over the whole capture where there is no step marker."""

    iterations_used: int
    step_ms: StepTimes | None
    window_ns: int
    partition_ns: Nanoseconds
    share: dict[Word, float]
    busy_ns: Nanoseconds
    attributed_share: float | None
    """Share of kernel time (comm excluded) whose phase is known."""
    communication: Communication | None
    h2d: HostToDevice | None
    collectives_per_step: float | None
    coverage: float | None
    """Launches and copies of the summarised time that have a GPU row."""
    host: HostActivity
    kernel_ns: dict[Word, int] | None = None
    """Durations of the kernels of forward and backward pass by what they are; None on a CPU."""
    attention: UnfusedAttention | msgspec.UnsetType = msgspec.UNSET
    """Not there where there is none that is not fused, and in older reports."""
    double_precision: DoublePrecision | msgspec.UnsetType = msgspec.UNSET
    """Not there where no kernel is known to compute with 64 bits, and in older reports."""
    embedding_tables: list[EmbeddingTable] | msgspec.UnsetType = msgspec.UNSET
    """Those with dense gradients and no other use, the largest part of all gradients first; not
    there without any, and in older reports."""
    forward_only: ForwardOnly | msgspec.UnsetType = msgspec.UNSET
    """Not there where a backward pass goes through all forward work that has numbers of autograd,
    and in older reports."""
    logits: Logits | msgspec.UnsetType = msgspec.UNSET
    """Not there where no loss over many classes is known, and in older reports."""
    masked_attention: MaskedAttention | msgspec.UnsetType = msgspec.UNSET
    """Not there where no fused attention is known to read a mask, and in older reports."""
    micro_batches: int | msgspec.UnsetType = msgspec.UNSET
    """Passes of an iteration whose forward halves launch equally much; not there with one, and in
    older reports."""
    repeated_backward: RepeatedBackward | msgspec.UnsetType = msgspec.UNSET
    """Not there where no backward pass is known to go through a graph again, and in older
    reports."""
    repeated_collectives: RepeatedCollectives | msgspec.UnsetType = msgspec.UNSET
    """Not there where no backward pass before an update repeats those of another, and in older
    reports."""
    tiny_kernels: TinyKernels | msgspec.UnsetType = msgspec.UNSET
    """Not there without any, on a CPU, and in older reports."""
    unused_gradients: UnusedGradients | msgspec.UnsetType = msgspec.UNSET
    """Not there where no gradients are known that no update uses, and in older reports."""
    top_kernels: list[KernelShare]
    collectives: list[CollectiveGroup] = []
    collectives_left_out: int = 0
    """Groups of collectives beyond those listed."""
    launches: Launches | msgspec.UnsetType = msgspec.UNSET
    """Not there in older reports, on a CPU, and where no launch is known."""
    sequences: list[KernelSequence] | msgspec.UnsetType = msgspec.UNSET
    """Short kernels in a row, those that stand for the most launches first; not there without."""
    operators: list[OperatorCalls] | msgspec.UnsetType = msgspec.UNSET
    """Those of most time on the device first, then of most on the host; not there in older reports,
    on a CPU, in large runs of ranks without details, and where the trace has none."""
    gpu_metrics: GpuMetrics | msgspec.UnsetType = msgspec.UNSET
    """Not there where the profiler sampled no counters of the device."""
    kernel_counters: KernelCounters | msgspec.UnsetType = msgspec.UNSET
    """Not there where the profiler counted no kernels."""

    @property
    def steps(self) -> int:
        """What turns totals into values per step; 1 where the whole capture is one window."""
        return max(self.iterations_used, 1)

    @property
    def per(self) -> str:
        """What values over `steps` are, in words."""
        return per(self.iterations_used)

    @property
    def launch_idle_ns(self) -> int:
        """Idle time that fewer launches could save: late ones, and latency."""
        return sum(self.partition_ns.get(cause) or 0 for cause in ("idle_host", "idle_latency"))

    def class_ns(self, name: str) -> int:
        """Time of a class of the partition or of `KERNEL_CLASSES`.

        Of communication it is all that collectives take, hidden or not: they take multiprocessors
        and bandwidth from the kernels beside them, so that hidden ones cost time, too.
        """
        if name in KERNEL_CLASSES:
            return (self.kernel_ns or {}).get(name, 0)
        return (self.busy_ns if name == "communication" else self.partition_ns)[name] or 0

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        window = self.window_ns
        if set(self.share) != set(SHARES):
            yield "summary: shares differ from the contract"
        if min(self.iterations_used, window, self.collectives_left_out) < 0:
            yield "summary: a count is negative"
        if self.step_ms is not None and not self.step_ms.ascending:
            yield "summary: the step times are out of order"
        if any(ns < 0 for ns in (self.kernel_ns or {}).values()):
            yield "summary: a class of kernels takes less than no time"
        for each in (*self.top_kernels, *(self.operators or ())):
            yield from each.problems()
        if self.attention is not msgspec.UNSET:
            yield from self.attention.problems()
        if self.double_precision is not msgspec.UNSET:
            yield from self.double_precision.problems()
        for table in self.embedding_tables or ():
            yield from table.problems()
        if self.forward_only is not msgspec.UNSET:
            yield from self.forward_only.problems()
        if self.logits is not msgspec.UNSET:
            yield from self.logits.problems()
        if self.masked_attention is not msgspec.UNSET:
            yield from self.masked_attention.problems()
        if self.micro_batches is not msgspec.UNSET and self.micro_batches < 2:
            yield "an iteration has less than two micro-batches"
        if self.repeated_backward is not msgspec.UNSET:
            yield from self.repeated_backward.problems()
        if self.repeated_collectives is not msgspec.UNSET:
            yield from self.repeated_collectives.problems()
        if self.tiny_kernels is not msgspec.UNSET:
            yield from self.tiny_kernels.problems()
        if self.unused_gradients is not msgspec.UNSET:
            yield from self.unused_gradients.problems()
        if self.launches is not msgspec.UNSET:
            yield from self.launches.problems(window)
        if self.gpu_metrics is not msgspec.UNSET:
            yield from self.gpu_metrics.problems()
        if self.kernel_counters is not msgspec.UNSET:
            yield from self.kernel_counters.problems()
        for sequence in self.sequences or []:
            yield from sequence.problems(self.launch_idle_ns)
        yield from partition_problems("summary", self.partition_ns, self.busy_ns, window)
        for name, members in SHARE_CLASSES.items():
            spent = sum(self.partition_ns.get(key) or 0 for key in members)
            share = spent / window if window else 0
            if not abs(self.share.get(name, math.nan) - share) <= SHARE_ROUNDING:
                yield f"share.{name} is not that of the partition"
        if window and not abs(sum(self.share.values()) - 1) <= SHARE_ROUNDING:
            yield "share does not sum to 1"
        if (self.step_ms is None) != (self.iterations_used == 0):
            yield "step_ms without used iterations, or the reverse"
        if self.step_ms is not None and self.iterations_used:
            mean = window / self.iterations_used / 1e6
            if not math.isclose(self.step_ms.mean, mean, rel_tol=1e-5, abs_tol=2e-6):
                yield "step_ms.mean is not the mean window"
        yield from self._transfer_problems()
        yield from self._collective_problems()

    def _transfer_problems(self) -> Iterator[str]:
        """What stands in the partition and in a record of its own says the same twice."""
        communication = self.communication
        for key, record in (("communication", communication), ("h2d", self.h2d)):
            exposed, busy = self.partition_ns.get(key), self.busy_ns.get(key)
            if (record is None) != (exposed is None):
                yield f"{key} is observed in one of partition and record"
            elif record is not None:
                if record.exposed_ns != exposed or record.total_ns != busy:
                    yield f"{key}: exposed or total differ from partition or busy"
                if not 0 <= record.overlapped_ns <= record.total_ns:
                    yield f"{key}: more than all of it overlaps"
                if record.exposed_ns + record.overlapped_ns > record.total_ns:
                    yield f"{key}: exposed and overlapped exceed the total"
        # Compute alone claims time before communication, so what it does not hide is exposed.
        if communication is not None and (
            communication.exposed_ns + communication.overlapped_ns != communication.total_ns
        ):
            yield "communication is not the sum of exposed and overlapped"

    def _collective_problems(self) -> Iterator[str]:
        groups, communication = self.collectives, self.communication
        for group in groups:
            yield from group.problems()
            # Collectives that take no time at all are no communication, but they were launched.
            if group.total_ns > (communication.total_ns if communication else 0):
                yield "a group of collectives exceeds all communication"
        steps, counted = self.iterations_used, self.collectives_per_step
        if not groups or self.collectives_left_out or counted is None or not steps:
            return
        if abs(sum(group.count for group in groups) / steps - counted) > 1e-3:
            yield "collectives are counted differently in total and by group"


def partition_problems(
    name: str, partition: Nanoseconds, busy: Nanoseconds, window_ns: int
) -> Iterator[str]:
    """What is wrong with a partition and the busy times of a window that is called `name`."""
    if set(partition) != set(PARTITION) or set(busy) != set(BUSY):
        yield f"{name}: classes differ from the contract"
        return
    if sum(value or 0 for value in partition.values()) != window_ns:
        yield f"{name}: the partition does not sum to the window"
    if any((value or 0) < 0 for value in partition.values()):
        yield f"{name}: a class takes less than no time"
    for key, whole in busy.items():
        exclusive = partition[key]
        if (exclusive is None) != (whole is None):
            yield f"{name}: {key} is observed in one of partition and busy"
        elif not (exclusive or 0) <= (whole or 0) <= window_ns:
            yield f"{name}: {key} is exclusive {exclusive}, busy {whole}, window {window_ns}"
