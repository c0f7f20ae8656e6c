"""The result of an analysis: plain records that serialise to `report.json` (schema version 1.0).

Every output (HTML, Markdown, terminal) is a pure function of a `Report`. Units are in the field
names; a quantity that was not observed is `None`, never 0.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from traceprobe.records.ablation import Ablation
from traceprobe.records.base import rendered
from traceprobe.records.cleaning import Clean
from traceprobe.records.memory import Memory
from traceprobe.records.replay import Replay
from traceprobe.records.roofline import Limit, Roofline

SCHEMA_VERSION = "1.0"

Bound = Literal["io", "compute", "communication", "overhead", "mixed", "inconclusive"]
Status = Literal["fail", "warn", "pass", "not-applicable", "inconclusive"]
DeviceKind = Literal["gpu", "cpu"]
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
Algorithm = Literal["ring", "tree"]
"""How a collective passes a message among its ranks."""
Nanoseconds = dict[str, int | None]
"""Class name to ns; None where that class was not observed in the trace."""


class Input(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    sha256: str
    format: Literal["kineto", "nsys"]
    dialect: str
    producer: str
    bytes: int
    origin_ns: str
    """Trace clock at the report's time zero, as a decimal string (beyond 2**53 in UTC traces)."""
    base_ns: str = "0"
    """What the file's own time stamps leave out of that clock, as a decimal string."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str


class ObserverEffect(msgspec.Struct, frozen=True, kw_only=True):
    profiled_step_ms: float
    unprofiled_step_ms: float
    ratio: float


class LostInput(msgspec.Struct, frozen=True, kw_only=True):
    """An input that could not be read, and why."""

    name: str
    reason: str


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    gpu_ops: int
    gpu_ops_linked: int
    launches_without_gpu_op: int
    events_repaired: int
    events_lost: int
    observer_effect: ObserverEffect | None
    warnings: list[Message]
    damage: dict[str, int] | msgspec.UnsetType = msgspec.UNSET
    """Kinds of damage, by the code of their warning; not there where there was none."""
    lost: list[LostInput] | msgspec.UnsetType = msgspec.UNSET
    """Inputs that the report had to be made without; not there where all could be read."""


class DeviceInfo(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    name: str | None
    kind: DeviceKind
    capability: str | None = None
    multiprocessors: int | None = None
    memory_bytes: int | None = None
    warp_size: int | None = None

    @property
    def facts(self) -> tuple[str | None, str | None, int | None, int | None, int | None]:
        """What the device says of itself: name, capability, multiprocessors, memory, warp size."""
        return (
            self.name,
            self.capability,
            self.multiprocessors,
            self.memory_bytes,
            self.warp_size,
        )


class StepMarker(msgspec.Struct, frozen=True, kw_only=True):
    kind: Literal["user", "range", "optimizer", "dataloader", "kernels"]
    pattern: str
    count: int
    confidence: float


class Iteration(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU window. `index` counts markers from 0; times are ns after the report's time zero."""

    index: int
    label: str
    start_ns: int | None
    end_ns: int | None
    coverage: float | None
    used: bool
    skip_reason: str | None
    collectives: int
    launches: int
    partition_ns: Nanoseconds | None
    busy_ns: Nanoseconds | None
    skew_exposed_ns: int | None = None
    """Exposed time spent waiting for the slowest rank; None where that cannot be told."""


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    mean: float
    p10: float
    p50: float
    p90: float


class Communication(msgspec.Struct, frozen=True, kw_only=True):
    total_ns: int
    exposed_ns: int
    overlapped_ns: int
    overlap_pct: float
    skew_exposed_ns: int | None = None
    """Exposed time spent waiting for the slowest rank; None where that cannot be told."""
    all_reduces_per_step: float | None = None
    """None without used iterations, or where a collective does not say what it does."""
    bytes_per_step: int | None = None
    """Messages of all collectives; None where the size of any is not in the trace."""
    sizes: str | None = None
    """Why sizes or numbers of ranks are missing; None where none is."""


class CollectiveGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives of one operation, message size and group size; totals over `count` of them."""

    operation: Operation
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


class HostToDevice(msgspec.Struct, frozen=True, kw_only=True):
    total_ns: int
    exposed_ns: int
    overlapped_ns: int
    overlap_pct: float
    bytes: int
    gbps: float | None
    pageable_bytes: int


class HostActivity(msgspec.Struct, frozen=True, kw_only=True):
    """What a partition cannot say, per used iteration or over the whole capture."""

    launches_per_step: float
    kernels_per_step: float
    mean_kernel_us: float | None
    launch_to_start_us_p50: float | None
    syncs_per_step: float
    idle_after_sync_ns: int
    """Host-late idle from a synchronisation until the host is ahead of the GPU again."""
    data_wait_inferred_ns: int
    """Part of idle_data_wait that no range names: the step thread was between the step ranges."""
    blocking_calls: dict[str, float] | msgspec.UnsetType = msgspec.UNSET
    """Calls of CUDA that wait for the GPU, per step by name, those with most first; not there
    where there are none."""
    phase_kernels: dict[str, float] | msgspec.UnsetType = msgspec.UNSET
    """Kernels per step of each phase of computation, without collectives; not there without."""


class KernelShare(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    phase: str
    count: int
    total_ns: int
    mean_ns: float
    phase_share: float | None = None
    """Part of the kernel time of its phase."""
    tensor_cores: bool | None = None
    """Whether a matrix kernel runs on tensor cores; None for others, and where no name tells."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Totals over the used iterations, or over the whole capture where there is no step marker."""

    iterations_used: int
    step_ms: StepTimes | None
    window_ns: int
    partition_ns: Nanoseconds
    share: dict[str, float]
    busy_ns: Nanoseconds
    attributed_share: float | None
    """Share of kernel time (comm excluded) whose phase is known."""
    communication: Communication | None
    h2d: HostToDevice | None
    collectives_per_step: float | None
    coverage: float | None
    """Launches and copies of the summarised time that have a GPU row."""
    host: HostActivity
    kernel_ns: dict[str, int] | None = None
    """Durations of the kernels of forward and backward pass by what they are; None on a CPU."""
    top_kernels: list[KernelShare]
    collectives: list[CollectiveGroup] = []
    collectives_left_out: int = 0
    """Groups of collectives beyond those listed."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    start_ns: int
    end_ns: int
    iteration: int | None
    cause: str
    evidence: str
    before: str | None
    after: str | None


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the timeline picture, as parallel arrays; ns after the picture's start."""

    name: str
    start_ns: list[int]
    duration_ns: list[int]
    label: list[str]
    detail: list[str]


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """One iteration. `merged` counts ops joined with a neighbour below one pixel."""

    iteration: int | None
    start_ns: int
    duration_ns: int
    lanes: list[Lane]
    merged: int


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    rank: int
    pid: int
    device: DeviceInfo
    step_marker: StepMarker | None
    iterations: list[Iteration]
    summary: Summary
    gaps: list[Gap]
    timeline: Timeline | None
    """The iteration that is most like all used ones."""
    worst: Timeline | None = None
    """The longest used iteration, where that is another."""
    input: int = 0
    """Index of the input this rank came from; its times count from that input's origin."""
    replay: Replay | msgspec.UnsetType = msgspec.UNSET
    """Not there without at least two used iterations in a row whose launches are in the trace."""

    @property
    def iteration_count(self) -> int:
        """Iterations, whether the report lists them or not."""
        listed = len(self.iterations)
        return listed or (0 if self.step_marker is None else self.step_marker.count)


class RankGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that agree in step time and shares."""

    members: list[int]
    median_rank: int


class StepMatrix(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of every rank; a row for each of `ranks`, a column for each of `labels`."""

    ranks: list[int]
    labels: list[str]
    iterations_per_bin: int
    step_ms: list[list[float | None]]


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to see in many ranks before any of them is looked at."""

    groups: list[RankGroup]
    worst_rank: int
    median_rank: int
    detailed_ranks: list[int]
    steps: StepMatrix


class Links(msgspec.Struct, frozen=True, kw_only=True):
    """What joins the ranks, fitted to the transfers of collectives of the whole run."""

    gbps: float
    """Bus bandwidth of a large message, as nccl-tests defines it."""
    latency_us: float | None
    """Of one hop of a ring; None where the messages do not differ enough in size to tell."""
    fit_error: float
    """Root mean square of the relative errors of the transfers."""
    messages: int
    """Operations and sizes that it was fitted to."""
    nvlink_gbps: float | None
    """What NVLink of these GPUs does in one direction; None where that is not known."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What only several ranks together can say; ns per step, summed over its collectives."""

    world_size: int
    collectives_matched: int
    transfer_ns: int | None
    skew_ns: int | None
    straggler_rank: int | None
    straggler_cause: str | None
    skew_causes: dict[str, float] | None = None
    """Parts of the exposed waiting by what the ranks that came last had more of; they sum to 1."""
    overview: Overview | msgspec.UnsetType = msgspec.UNSET
    """Not there with fewer than three ranks."""
    links: Links | msgspec.UnsetType = msgspec.UNSET
    """Not there where no message that was matched on all ranks has a known size."""


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """One term of the confidence; the terms add up to it (before clamping to [0, 1])."""

    name: str
    value: float
    why: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    bound: Bound
    secondary: str | None
    headline: str
    confidence: float
    confidence_terms: list[Term]
    shares: dict[str, float]
    """After corrections for the observer effect and for waiting in collectives; sums to 1."""
    reasons: list[str]
    missing: list[str]
    thresholds: dict[str, float]
    limit: Limit | msgspec.UnsetType = msgspec.UNSET
    """Of a run that is bound by compute: what its kernels' time mostly goes to. Not there for
    others, and where it is not known."""
    skew: float | msgspec.UnsetType = msgspec.UNSET
    """Part of the shares that is waiting for other ranks; it counts in them by `skew_causes`. Not
    there where one rank cannot tell it from transfer."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    status: Status
    title: str
    saving_ms_per_step: float | None
    evidence: list[str]
    advice: str
    rule: str = ""
    """How the finding and its saving are computed."""
    verify: str = ""
    """How to check it without traceprobe."""


class Report(Clean, frozen=True, kw_only=True):
    """A whole analysis. See `docs/report-json.md` for the meaning of every field."""

    schema_version: str
    traceprobe_version: str
    inputs: list[Input]
    quality: Quality
    ranks: list[Rank]
    run: Run | None
    workload: dict[str, Any] | None
    verdict: Verdict
    findings: list[Finding]
    ablation: Ablation | None = None
    """The same loop with parts taken out, measured without a profiler; None where nobody did."""
    memory: Memory | msgspec.UnsetType = msgspec.UNSET
    """What the device held in a step, and what for; not there where the capture does not say."""
    roofline: Roofline | msgspec.UnsetType = msgspec.UNSET
    """The step beside what the hardware could do; not there where neither is known."""

    def to_json(self) -> str:
        """The report as indented JSON with sorted keys, ending in a newline."""
        return msgspec.json.format(encode(self), indent=1).decode() + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Report:
        """Read a report back.

        Raises:
            msgspec.DecodeError: `text` is not JSON.
            msgspec.ValidationError: it is not a report; the message holds the offending path.
            DamagedRecord: it contradicts itself.
        """
        from traceprobe.records.soundness import sound

        return sound(msgspec.json.decode(text, type=cls))

    def to_html(self) -> str:
        """One self-contained HTML page: no network, readable without scripts."""
        return rendered(self, "html")

    def to_markdown(self) -> str:
        """A summary that fits an issue comment."""
        return rendered(self, "markdown")


def encode(report: Report) -> bytes:
    """Compact JSON with sorted keys, as embedded in the HTML page."""
    return msgspec.json.encode(report, order="sorted")
