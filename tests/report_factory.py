"""Small hand-made reports with exact numbers, one for each bound, and one made to hurt."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tests.builders.pictures import simple_picture
from traceprobe.model.taxonomy import BUSY, IDLE_CAUSES, PARTITION
from traceprobe.records.ablation import (
    INCLUDES,
    Ablation,
    AblationBound,
    AblationVerdict,
    Interval,
    Overlap,
    Share,
    Variant,
    VariantName,
)
from traceprobe.records.host_activity import HostActivity
from traceprobe.records.rank import DeviceInfo, Gap, Iteration, Rank, StepMarker
from traceprobe.records.recording import RecordedBlock, Recording
from traceprobe.records.report import (
    Bound,
    Finding,
    Input,
    Message,
    ObserverEffect,
    Quality,
    Report,
    Term,
    Verdict,
)
from traceprobe.records.run import Run
from traceprobe.records.summary import (
    CollectiveGroup,
    Communication,
    HostToDevice,
    KernelShare,
    Operation,
    StepTimes,
    Summary,
)
from traceprobe.verdict.thresholds import Thresholds

MS = 1_000_000
HIDDEN = 40
"""Communication beside kernels, ms a step."""
HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    '"><img onerror=alert(1)>',
    "<!-- <script>",
    "\u202egnp.exe\u2066 \u0645\u0631\u062d\u0628\u0627",
    "\x1b]0;owned\x07\x1b[31mred\x1b[0m\x9b31m",
    "@everyone #12 https://example.com [x](y) `tick` | pipe $x$ \U0001f600",
    "{{ 7 * 7 }}\n\nsecond line\u2028third",
    "k" * 10_000,
]

PARTITIONS: dict[Bound, dict[str, int]] = {
    "io": {"forward": 42, "backward": 58, "optimizer": 7, "h2d": 23, "idle_data_wait": 635},
    "compute": {"forward": 30, "backward": 60, "optimizer": 6, "idle_host": 2, "idle_latency": 2},
    "communication": {"forward": 20, "backward": 40, "optimizer": 5, "communication": 35},
    "overhead": {"forward": 15, "backward": 25, "idle_host": 45, "idle_sync": 10, "memory": 5},
    "mixed": {"forward": 20, "backward": 40, "idle_data_wait": 20, "idle_host": 20},
    "inconclusive": {"unattributed": 50, "idle_unexplained": 50},
}


def shares_of(partition: dict[str, int]) -> dict[str, float]:
    """The shares as defined for the verdict, from ms a class."""
    total = sum(partition.values())
    groups = {
        "io": ("idle_data_wait", "h2d"),
        "communication": ("communication",),
        "overhead": ("idle_host", "idle_sync", "idle_latency"),
        "other": ("idle_profiler", "idle_unexplained", "d2h"),
    }
    shares = {
        name: sum(partition.get(key, 0) for key in keys) / total for name, keys in groups.items()
    }
    return {**shares, "compute": 1 - sum(shares.values())}


def nanoseconds(partition: dict[str, int], steps: int = 1) -> dict[str, int | None]:
    """A whole partition in ns from ms; `recompute` stands for a class that was not observed."""
    full: dict[str, int | None] = {key: partition.get(key, 0) * MS * steps for key in PARTITION}
    if not partition.get("recompute"):
        full["recompute"] = None
    return full


def make_rank(
    partition: dict[str, int],
    rank: int = 0,
    steps: int = 12,
    name: str = "NVIDIA H200",
    hidden: float = HIDDEN,
) -> Rank:
    """A rank whose every used step looks the same; the first and the last are skipped."""
    length = sum(partition.values()) * MS
    iterations = [
        Iteration(
            index=i,
            label=f"step {i}",
            start_ns=i * length if i <= steps else None,
            end_ns=(i + 1) * length if i <= steps else None,
            coverage=1.0,
            used=0 < i <= steps,
            skip_reason={0: "warm-up", steps + 1: "no end in the capture"}.get(i),
            collectives=8,
            launches=900,
            partition_ns=nanoseconds(partition) if i <= steps else None,
            busy_ns=busy_of(partition, hidden) if i <= steps else None,
        )
        for i in range(steps + 2)
    ]
    starts = [0]
    for value in partition.values():
        starts.append(starts[-1] + value * MS)
    idle = next((key for key in IDLE_CAUSES if partition.get(key)), None)
    exposed = partition.get("communication", 0) * MS * steps
    beside = round(hidden * MS) * steps
    gap = 0 if idle is None else starts[list(partition).index(idle)]
    return Rank(
        rank=rank,
        pid=4000 + rank,
        device=DeviceInfo(index=0, name=name, kind="gpu"),
        step_marker=StepMarker(kind="range", pattern=r"step \d+", count=steps + 2, confidence=0.9),
        iterations=iterations,
        summary=Summary(
            iterations_used=steps,
            step_ms=StepTimes(
                mean=length / MS, p10=length / MS * 0.97, p50=length / MS, p90=length / MS * 1.04
            ),
            window_ns=length * steps,
            partition_ns=nanoseconds(partition, steps),
            share=shares_of(partition),
            busy_ns=busy_of(partition, hidden, steps),
            attributed_share=0.991,
            communication=Communication(
                total_ns=exposed + beside,
                exposed_ns=exposed,
                overlapped_ns=beside,
                overlap_pct=round(100 * beside / (exposed + beside or 1), 3),
            ),
            h2d=HostToDevice(
                total_ns=copied(partition) * MS * steps,
                exposed_ns=partition.get("h2d", 0) * MS * steps,
                overlapped_ns=0,
                overlap_pct=0.0,
                bytes=38_535_168 * steps,
                gbps=1.7,
                pageable_bytes=38_535_168 * steps,
            ),
            collectives_per_step=8.0,
            coverage=0.999,
            host=HostActivity(
                launches_per_step=900.0,
                kernels_per_step=880.0,
                mean_kernel_us=117.0,
                launch_to_start_us_p50=None,
                syncs_per_step=2.0,
                idle_after_sync_ns=3 * MS * steps,
                data_wait_inferred_ns=0,
            ),
            top_kernels=[
                KernelShare(
                    name=f"sm90_xmma_gemm_bf16_{i}<float, {i}>",
                    phase="backward",
                    count=120,
                    total_ns=(20 - i) * MS,
                    mean_ns=1e5 + i,
                )
                for i in range(20)
            ],
            collectives=[
                make_collectives(28_351_488, 11, steps),
                make_collectives(None, 2, steps, operation="send_recv"),
            ],
            collectives_left_out=1,
        ),
        gaps=[
            Gap(
                start_ns=i * length + gap,
                end_ns=i * length + gap + partition[idle] * MS - i,
                iteration=i,
                cause=idle,
                evidence="between the step ranges (inferred)",
                before="multi_tensor_apply_kernel",
                after="Memcpy HtoD" if i % 2 else None,
            )
            for i in range(1, steps + 1 if idle else 0)
        ],
        picture=simple_picture(partition, 3, 3 * length),
    )


def copied(partition: dict[str, int]) -> int:
    """Copies of a step, ms, which may be hidden."""
    return max(partition.get("h2d", 0), min(23, sum(partition.values())))


def busy_of(partition: dict[str, int], hidden: float, steps: int = 1) -> dict[str, int | None]:
    """The classes of work inclusive: communication is partly hidden, copies may be."""
    busy: dict[str, int | None] = {key: partition.get(key, 0) * MS * steps for key in BUSY}
    busy["communication"] = (busy["communication"] or 0) + round(hidden * MS) * steps
    busy["h2d"] = copied(partition) * MS * steps
    return {**busy, "recompute": busy["recompute"] or None}


def make_collectives(
    size: int | None, count: int, steps: int, operation: Operation = "all_reduce"
) -> CollectiveGroup:
    """Collectives of 3 ms on a rank that matched no other."""
    rate = None if size is None else round(size / (3 * MS), 3)
    return CollectiveGroup(
        operation=operation,
        dtype="float32",
        bytes=size,
        group_size=None if size is None else 2,
        count=count * steps,
        count_per_step=float(count),
        total_ns=3 * MS * count * steps,
        exposed_ns=2 * MS * count * steps,
        overlapped_ns=MS * count * steps,
        duration_ns=3 * MS * count * steps,
        matched=0,
        transfer_ns=None,
        skew_ns=None,
        algbw_gbps=None,
        busbw_gbps=None,
        algbw_at_least_gbps=rate,
        busbw_at_least_gbps=rate,
    )


def make_findings(step_ms: float = 765.0) -> list[Finding]:
    """One of every state, in an order that no output should keep."""
    return [
        Finding(
            id="cuda-graphs",
            status="not-applicable",
            title="CUDA graphs",
            saving_ms_per_step=None,
            evidence=[],
            advice="",
        ),
        Finding(
            id="overlap-communication",
            status="pass",
            title="Communication is hidden",
            saving_ms_per_step=0.1,
            evidence=["92.4 % of communication runs beside kernels"],
            advice="",
        ),
        Finding(
            id="tensor-cores",
            status="inconclusive",
            title="Tensor-core use",
            saving_ms_per_step=None,
            evidence=["kernel names say nothing"],
            advice="Capture counters.",
        ),
        Finding(
            id="pageable-copies",
            status="warn",
            title="Copies come from pageable memory",
            saving_ms_per_step=min(22.8, step_ms),
            evidence=["38.5 MB per step at 1.7 GB/s"],
            advice="Set pin_memory=True and copy with non_blocking=True.",
        ),
        Finding(
            id="data-wait",
            status="fail",
            title="The GPU waits for the data loader",
            saving_ms_per_step=min(635.0, step_ms),
            evidence=["635 ms of 765 ms per step", "12 of 12 steps"],
            advice="Raise num_workers, or move decoding to the GPU.",
        ),
    ]


def make_report(bound: Bound = "io", **changes: Any) -> Report:
    """A report with that bound; `changes` replace whole fields of it."""
    partition = PARTITIONS[bound]
    secondary: Literal["overhead"] | None = "overhead" if bound == "mixed" else None
    fields: dict[str, Any] = {
        "schema_version": Report.SCHEMA_VERSION,
        "traceprobe_version": "0.1.0",
        "inputs": [make_input("trace.json.gz")],
        "quality": Quality(
            gpu_ops=12_345,
            gpu_ops_linked=12_300,
            launches_without_gpu_op=45,
            events_repaired=0,
            events_lost=3,
            observer_effect=ObserverEffect(
                profiled_step_ms=85.1, unprofiled_step_ms=53.2, ratio=1.6
            ),
            warnings=[Message(code="events-lost", message="3 events could not be read")],
            recording=Recording(
                warmup_steps=40,
                steady=False,
                period=60,
                reason="the loop repeats itself after 60 steps, which is more than a block has",
                blocks=[
                    RecordedBlock(profiled=False, steps=10, step_ms=53.2, kept=True, sm_mhz=1980.0),
                    RecordedBlock(profiled=True, steps=11, step_ms=85.1, kept=True, sm_mhz=None),
                ],
            ),
        ),
        "ranks": [make_rank(partition)],
        "run": None,
        "workload": {"model": "resnet50", "batch": 64},
        "verdict": Verdict(
            bound=bound,
            secondary=secondary,
            headline=f"{bound} decides: see the shares of each step.",
            confidence=0.82,
            confidence_terms=[
                Term(name="margin", value=0.9, why="far above the threshold of 20 %"),
                Term(name="single-rank", value=-0.08, why="other ranks may wait"),
            ],
            shares=shares_of(partition),
            reasons=["the largest share is far above its threshold"],
            missing=["at least 3 iterations"] if bound == "inconclusive" else [],
            thresholds=Thresholds().as_dict(),
        ),
        "findings": make_findings(sum(partition.values())),
    }
    return Report(**{**fields, **changes})


def make_input(name: str) -> Input:
    """An input file of that name."""
    return Input(
        name=name,
        sha256="ab" * 32,
        format="kineto",
        dialect="C",
        producer="PyTorch 2.9",
        bytes=1_234_567,
        origin_ns="1719423456789012345",
    )


def make_empty_report() -> Report:
    """Null and empty wherever the schema allows it."""
    host = HostActivity(
        launches_per_step=0.0,
        kernels_per_step=0.0,
        mean_kernel_us=None,
        launch_to_start_us_p50=None,
        syncs_per_step=0.0,
        idle_after_sync_ns=0,
        data_wait_inferred_ns=0,
    )
    summary = Summary(
        iterations_used=0,
        step_ms=None,
        window_ns=0,
        partition_ns=dict.fromkeys(PARTITION),
        share={},
        busy_ns=dict.fromkeys(BUSY),
        attributed_share=None,
        communication=None,
        h2d=None,
        collectives_per_step=None,
        coverage=None,
        host=host,
        top_kernels=[],
    )
    rank = Rank(
        rank=0,
        pid=1,
        device=DeviceInfo(index=0, name=None, kind="cpu"),
        step_marker=None,
        iterations=[],
        summary=summary,
        gaps=[],
    )
    return make_report(
        "inconclusive",
        inputs=[],
        quality=Quality(
            gpu_ops=0,
            gpu_ops_linked=0,
            launches_without_gpu_op=0,
            events_repaired=0,
            events_lost=0,
            observer_effect=None,
            warnings=[],
        ),
        ranks=[rank],
        workload=None,
        verdict=Verdict(
            bound="inconclusive",
            secondary=None,
            headline="Nothing was measured.",
            confidence=0.0,
            confidence_terms=[],
            shares={},
            reasons=[],
            missing=[],
            thresholds={},
        ),
        findings=[],
    )


def make_run(ranks: int, bound: Bound = "communication", straggler: int | None = 1) -> Report:
    """A run of several ranks, one of which the others wait for."""
    return make_report(
        bound,
        ranks=[make_rank(PARTITIONS[bound], rank=i) for i in range(ranks)],
        inputs=[make_input(f"rank{i}.json") for i in range(ranks)],
        run=Run(
            world_size=ranks,
            collectives_matched=96,
            transfer_ns=12 * MS,
            skew_ns=23 * MS,
            straggler_rank=straggler,
            straggler_cause="idle_data_wait",
        ),
    )


def make_hostile_report() -> Report:
    """Names that try to leave their place, in every field that a trace can fill."""
    names = HOSTILE
    everything = " ".join(names)
    rank = make_rank(PARTITIONS["io"], name=names[0])
    hostile_rank = Rank(
        rank=0,
        pid=1,
        device=rank.device,
        step_marker=StepMarker(kind="user", pattern=names[0], count=14, confidence=0.5),
        iterations=rank.iterations,
        summary=rank.summary,
        gaps=[
            Gap(
                start_ns=0,
                end_ns=MS,
                iteration=1,
                cause=names[0],
                evidence=name,
                before=name,
                after=name,
            )
            for name in names
        ],
        picture=simple_picture(PARTITIONS["io"], 3, 0, names),
    )
    report = make_report("io")
    return make_report(
        "io",
        inputs=[make_input(name) for name in names],
        ranks=[hostile_rank],
        workload={name[:50]: name for name in names},
        verdict=Verdict(
            bound="io",
            secondary=names[0],
            headline=everything,
            confidence=0.5,
            confidence_terms=[Term(name=names[0], value=0.5, why=everything)],
            shares=report.verdict.shares,
            reasons=names,
            missing=names,
            thresholds={names[0]: 0.2},
        ),
        findings=[
            Finding(
                id=f"hostile-{i}",
                status="fail",
                title=name,
                saving_ms_per_step=1.0,
                evidence=names,
                advice=everything,
            )
            for i, name in enumerate(names)
        ],
    )


def make_ablation(bound: AblationBound = "io", **changes: Any) -> Ablation:
    """An ablation of a loop on a GPU that waits for its loader, or of two ranks; see its shares."""
    several = bound == "communication"
    steps: dict[VariantName, float] = {
        "io": 0.0004 if several else 700.0,
        "synthetic-host": 130.0,
        "synthetic-device": 107.0,
        "full": 110.0 if several else 765.0,
    }
    if several:
        steps |= {"full-no-comm": 73.0, "synthetic-no-comm": 70.0}
    shares = {
        "io": (0.027, 0.0, 0.051) if several else (0.86, 0.85, 0.88),
        "communication": (0.336, 0.311, 0.352) if several else None,
        "overhead": (0.055, 0.04, 0.07) if several else (0.01, 0.0, 0.03),
        "compute": (0.582, 0.57, 0.6) if several else (0.13, 0.12, 0.14),
    }
    why = "the program has no DistributedDataParallel model"
    fields: dict[str, Any] = {
        "schema_version": Report.SCHEMA_VERSION,
        "traceprobe_version": "0.1.0",
        "workload": {"name": "resnet50", "samples_per_step": 64},
        "hardware": {"gpu": "NVIDIA H200"},
        "libraries": {"torch": "2.9"},
        "flags": {"allow_tf32": True},
        "ranks": 2 if several else 1,
        "variants": [make_variant(name, ms) for name, ms in steps.items()],
        "absent": {} if several else {"full-no-comm": why, "synthetic-no-comm": why},
        "gpu_busy_ms": 64.0,
        "overlap": None
        if several
        else Overlap(serial=1.205, full=1.307, parallel=1.429, position=0.46),
        "oracle": AblationVerdict(
            bound=bound,
            secondary="overhead" if bound == "communication" else None,
            margin=0.136,
            shares={
                name: None if s is None else Share(value=s[0], low=s[1], high=s[2])
                for name, s in shares.items()
            },
            reasons=[f"{steps['full']:.2f} ms a step with everything"],
            thresholds=Thresholds().as_dict(),
        ),
    }
    return Ablation(**{**fields, **changes})


def make_variant(name: VariantName, ms: float) -> Variant:
    """Three trials that differ by a tenth; 64 samples and 4096 tokens a step."""

    def spread(value: float) -> Interval:
        return Interval(
            median=value, low=0.95 * value, high=1.05 * value, p10=0.96 * value, p90=1.04 * value
        )

    return Variant(
        name=name,
        includes=INCLUDES[name],
        steps_per_trial=10,
        trial_ms=[0.95 * ms, ms, 1.05 * ms],
        step_ms=spread(ms),
        samples_per_second=spread(64e3 / ms),
        tokens_per_second=spread(4096e3 / ms),
    )


def make_hostile_ablation() -> Ablation:
    """Text of a stranger wherever an ablation holds any."""
    everything = " ".join(HOSTILE)
    plain = make_ablation()
    variant = msgspec.structs.replace(plain.variants[0], includes=everything)
    return make_ablation(
        variants=[variant, *plain.variants[1:]],
        absent={name: name for name in HOSTILE},
        workload={name[:50]: name for name in HOSTILE},
        oracle=msgspec.structs.replace(
            plain.oracle,
            secondary=everything,
            reasons=HOSTILE,
            shares={**plain.oracle.shares, HOSTILE[0]: None},
        ),
    )


def without_calibration(report: Report) -> Report:
    """The report without a calibration."""
    quality = msgspec.structs.replace(report.quality, observer_effect=None)
    return msgspec.structs.replace(report, quality=quality)
