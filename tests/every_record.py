"""One result of every kind, each with as many of its strings as it can hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import replace

from tests.causal_records import make_causal
from tests.hang_records import make_hang
from tests.loader_records import make_loader
from tests.memory_records import make_memory
from tests.report_factory import make_ablation, make_report, make_run
from tests.scaling_runs import run_of
from tests.watch_records import make_watch
from traceprobe.compare.compare import compare
from traceprobe.compare.gpus import compare_gpus
from traceprobe.compare.ladder import ladder
from traceprobe.compare.run import observe
from traceprobe.compare.scaling import scale
from traceprobe.model.taxonomy import GPU_METRICS, LOSSES, PARTITION, SHARES
from traceprobe.records.double_precision import DoublePrecision
from traceprobe.records.forward_only import ForwardOnly
from traceprobe.records.gpu_metrics import (
    GpuMetrics,
    IterationUtilisations,
    PhaseUtilisations,
    Utilisations,
)
from traceprobe.records.host_stalls import (
    Compilations,
    CompiledFrame,
    CompiledRegions,
    DeviceAllocations,
    GarbageCollections,
)
from traceprobe.records.kernel_counters import CountedKernel, KernelCounters
from traceprobe.records.ladder import Missing
from traceprobe.records.launches import KernelSequence, Launches, LaunchQueue
from traceprobe.records.memory import PARTS
from traceprobe.records.nccl import NcclRecords
from traceprobe.records.operator_calls import OperatorCalls
from traceprobe.records.operator_work import Operators, OperatorWork
from traceprobe.records.peaks import MeasuredPeaks
from traceprobe.records.picture import HOST, OPS
from traceprobe.records.repeated_backward import RepeatedBackward
from traceprobe.records.report import LostInput, Report
from traceprobe.records.roofline import (
    Peaks,
    PhaseWork,
    Roofline,
    RooflineRecord,
    SampledUnits,
    Utilisation,
)
from traceprobe.records.summary import UnfusedAttention
from traceprobe.records.tiny_kernels import TinyKernels
from traceprobe.records.unused_gradients import UnusedGradients
from traceprobe.records.whatif import Buckets, Calibration, Predicted, WhatIf

WORDS = {*PARTITION, *SHARES, *LOSSES, *PARTS, *OPS, *HOST}


RECORD_NAMES = (
    *("report", "run", "comparison", "ladder", "scaling"),
    *("gpus", "watch", "whatif", "roofline", "peaks", "causal", "hang"),
)
"""Of what `every_record` makes, without making it."""


@cache
def every_record() -> dict[str, Any]:
    """By the name of the kind; `report` has all that a report may hold."""
    labels = ("a", "b", "c")
    several = [
        observe(
            _set(with_operators(make_report(bound), n), settings={"batch": n, "precision": bound}),
            label,
        )
        for n, (bound, label) in enumerate(zip(("io", "compute", "overhead"), labels, strict=True))
    ]
    report = _full_report()
    made = {
        "report": report,
        "run": make_run(4),
        "comparison": compare(*several[:2], 0.05),
        "ladder": ladder(several, [], [Missing(label="d", change="x", reason="no GPU")], "mine"),
        "scaling": scale([run_of(n, transfer=5 * n - 5, skew=n - 1) for n in (1, 2, 4)]),
        "gpus": compare_gpus(several, {"c": 2.0}),
        "watch": make_watch(),
        "whatif": _whatif(several[0]),
        "roofline": RooflineRecord(
            schema_version="1.0",
            traceprobe_version="0.1.0",
            headline="Compute decides.",
            inputs=["run.json"],
            roofline=report.roofline,
        ),
        "peaks": MeasuredPeaks(
            schema_version=MeasuredPeaks.SCHEMA_VERSION,
            traceprobe_version="0.1.0",
            device="NVIDIA H200",
            device_kind="gpu",
            torch="2.11.0",
            matrix_side=8192,
            repetitions=20,
            tflops={"bf16": 800.0},
            copy_gbps=4000.0,
            h2d_gbps=50.0,
        ),
        "causal": make_causal(),
        "hang": make_hang(),
    }
    assert tuple(made) == RECORD_NAMES
    return made


def _set(report: Report, **changes: Any) -> Report:
    return replace(report, workload={**(report.workload or {}), **changes})


def _full_report() -> Report:
    report = with_operators(make_report("io"), 1)
    rank = report.ranks[0]
    host = replace(rank.summary.host, **make_stalls())
    summary = replace(rank.summary, host=host, **make_counted())
    return replace(
        report,
        ranks=[replace(rank, summary=summary), *report.ranks[1:]],
        quality=replace(
            report.quality,
            lost=[LostInput(name="rank1.json", reason="empty")],
            nccl_records=[make_nccl_records()],
        ),
        ablation=make_ablation(),
        causal=make_causal(),
        memory=make_memory(),
        loader=make_loader(),
        roofline=_roofline(),
    )


def make_stalls() -> dict[str, Any]:
    """What keeps the host from launching, by field."""
    lines = {"secret_model.py(57): forward": 2_000_000}
    return {
        "device_allocations": DeviceAllocations(
            allocations_per_step=2.0,
            frees_per_step=2.5,
            iterations=4,
            frees_iterations=3,
            host_ns=3_000_000,
            cost_ns=2_000_000,
            for_room=0.5,
            lines=lines,
        ),
        "compilations": Compilations(
            iterations=4,
            host_ns=9_000_000,
            cost_ns=8_000_000,
            frames=[CompiledFrame(frame=3, versions=146)],
            lines=lines,
        ),
        "garbage_collections": GarbageCollections(
            count=5,
            iterations=3,
            host_ns=7_000_000,
            longest_ns=2_000_000,
            cost_ns=6_000_000,
            lines=lines,
        ),
        "compiled_regions": CompiledRegions(
            regions_per_step=4.0,
            breaks_per_step=2.0,
            cost_ns=1_000_000,
            eager_ns=500_000,
            eager_kernels=2.0,
            launched_ns=200_000,
            lines=lines,
        ),
    }


def make_nccl_records() -> NcclRecords:
    return NcclRecords(
        rank=0,
        source="flight_recorder",
        dump="nccl_trace_rank_0",
        calls=2000,
        damaged=0,
        kernels=90,
        covered=80,
        joined=79,
        compared=40,
        equal=39,
        score=0.9,
        rival=0.3,
    )


def with_operators(report: Report, number: int) -> Report:
    """The report with two operators, of which the number is a part of one's name and calls."""
    listed = [
        OperatorCalls(name=name, count=count, host_ns=9_000, operations=count, device_ns=10**8)
        for name, count in (("aten::copy_", 10 + number), (f"my_company::norm{number}", 5))
    ]
    rank = report.ranks[0]
    summary = replace(rank.summary, operators=listed)
    return replace(report, ranks=[replace(rank, summary=summary), *report.ranks[1:]])


def make_counted() -> dict[str, Any]:
    """What a summary says of launches, attention and counters."""
    softmax = {"matmul_half": 200_000, "memory": 0, "other": 300_000, "softmax": 100_000}
    return {
        "attention": UnfusedAttention(count=4, class_ns=softmax, fused_ns=210_000),
        "double_precision": make_double(),
        "forward_only": make_forward_only(),
        "tiny_kernels": make_tiny_kernels(),
        "micro_batches": 4,
        "repeated_backward": RepeatedBackward(total_ns=7_000, kernels=6, iterations=2),
        "unused_gradients": UnusedGradients(total_ns=9_000, kernels=12, gradients=4, iterations=2),
        "launches": make_launches(),
        "sequences": [make_sequence()],
        "gpu_metrics": make_gpu_metrics(),
        "kernel_counters": make_kernel_counters(),
    }


def make_double() -> DoublePrecision:
    """Kernels that compute with 64 bits."""
    return DoublePrecision(class_ns={"fused": 9_000}, kernels=["triton_red_fused_0"], typed=True)


def make_forward_only() -> ForwardOnly:
    """Forward work that no backward pass goes through."""
    lines = {"train.py(4): f": 8_000}
    return ForwardOnly(
        total_ns=8_000, kernels=2, iterations=2, operators={"aten::mm": 8_000}, lines=lines
    )


def make_tiny_kernels() -> TinyKernels:
    """Kernels that do little more than start and end."""
    return TinyKernels(
        count=40,
        total_ns=80_000,
        gap_ns=40_000,
        names={"vectorized_elementwise_kernel": 80_000},
        lines={"train.py(6): f": 80_000},
    )


def make_kernel_counters() -> KernelCounters:
    counted = CountedKernel(kernel="gemm", operator="aten::addmm", count=2, values=[1.5, 2.0])
    unknown = CountedKernel(kernel=None, operator=None, count=1, values=[0.0, 3.0])
    return KernelCounters(metrics=["first.sum", "second.sum"], count=3, kernels=[counted, unknown])


def make_gpu_metrics() -> GpuMetrics:
    parts = {name: n / 10 for n, name in enumerate(GPU_METRICS)}
    return GpuMetrics(
        interval_us=100.0,
        step=Utilisations(**parts),
        phases=[PhaseUtilisations(phase="forward", **parts | {"pcie_tx": None})],
        iterations=[IterationUtilisations(index=2, **parts)],
    )


def make_launches() -> Launches:
    queue = LaunchQueue(p50=0, p90=3, longest=12, empty_ns=2_000, starved_ns=1_000)
    return Launches(
        count=900,
        call_us_p50=5.0,
        call_us_p90=9.0,
        delay_us_p50=4.0,
        delay_us_p90=20.0,
        outlasting=100,
        queue=queue,
    )


def make_sequence() -> KernelSequence:
    return KernelSequence(
        kernels=["vectorized_elementwise_kernel<4, my_company_kernel>", "reduce_kernel"],
        operators=["my_company::norm", None],
        phase="forward",
        count=24,
        total_ns=100_000,
        gap_ns=1_000,
        launch_ns=5_000,
        bound_ns=0,
        line="secret_model.py(57): forward",
        within="SecretModel.layers.0",
    )


def _roofline() -> Roofline:
    return Roofline(
        device="NVIDIA H200",
        step_ms=765.0,
        unprofiled=True,
        published=Peaks(source="data sheet", tflops={"bf16": 989.5}, bandwidth_gbps=4800.0),
        measured=Peaks(source="here", tflops={"bf16": 800.0}, bandwidth_gbps=4000.0),
        flops_per_step=12e12,
        achieved_tflops=15.7,
        mfu=0.016,
        hfu=0.016,
        phases=[
            PhaseWork(
                phase="forward",
                ms=42.0,
                flops={"bf16": 4 * 10**12},
                bytes=10**10,
                math_ms=5.0,
                memory_ms=2.5,
                floor_ms=6.0,
                tflops=95.2,
                gbps=238.0,
                intensity=400.0,
            )
        ],
        kernel_ms=107.0,
        math_ms=15.0,
        memory_ms=4.0,
        rest_ms=746.0,
        limit="math",
        sampled=SampledUnits(tensor_active=0.6, dram=0.3),
        utilisation=Utilisation(busy=0.17, covered=0.1, occupancy=0.08, mfu=0.016),
        notes=["Operations are those of the model."],
        operators=Operators(
            kernel_ms=107.0,
            known_ms=90.0,
            excess_ms=8.5,
            rows=[
                OperatorWork(
                    operator="aten::addmm",
                    sizes=[[768], [16384, 768], [768, 768]],
                    precision="bf16",
                    calls=12.0,
                    ms=10.0,
                    flops=19_327_352_832,
                    bytes=51_513_600,
                    bound="math",
                    least_ms=1.5,
                    attained=0.15,
                    excess_ms=8.5,
                ),
                OperatorWork(
                    operator="aten::copy_",
                    sizes=[[16384, 768]],
                    precision="",
                    calls=1.0,
                    ms=0.5,
                    flops=0,
                    bytes=25_165_824,
                ),
            ],
            notes=["An operator is faster than the roofline allows by memory."],
        ),
    )


def _whatif(run: Any) -> WhatIf:
    predicted = Predicted(
        changes=["no waiting for data"], step_ms=130.0, low_ms=120.0, high_ms=140.0, speedup=5.9
    )
    return WhatIf(
        schema_version="1.0",
        traceprobe_version="0.1.0",
        headline="Without waiting for data a step takes 130 ms.",
        run=compare(run, run).base,
        now_ms=765.0,
        asked=predicted,
        alone=[predicted],
        buckets=Buckets(
            limit_mb=25.0,
            bytes=[10**6],
            before_bytes=[10**6],
            gbps=100.0,
            latency_us=5.0,
            fit_error=0.1,
        ),
        calibration=Calibration(
            played_ms=760.0, host=1.0, host_known=True, collectives=1.0, rest=1.0
        ),
        cautions=[],
    )


def refilled(record: Any, text: Callable[[int, str], str]) -> Any:
    """The same record with every string replaced that its type leaves open, also keys of mappings.

    Names of classes, shares and losses stay, and numbers: with others a record contradicts itself.

    Args:
        text: gets the string's number and its value.
    """
    counter = iter(range(10**6))

    def word(value: str) -> str:
        return value if value in WORDS or value.isdigit() else text(next(counter), value)

    def fill(value: Any, kind: msgspec.inspect.Type) -> Any:
        if isinstance(kind, msgspec.inspect.Metadata):
            return fill(value, kind.type)
        if isinstance(kind, msgspec.inspect.UnionType):
            for one in kind.types:
                if _fits(value, one):
                    return fill(value, one)
            return value
        if isinstance(kind, msgspec.inspect.StrType) or (
            isinstance(kind, msgspec.inspect.AnyType) and isinstance(value, str)
        ):
            return word(value)
        if value is msgspec.UNSET:
            return value
        if isinstance(kind, msgspec.inspect.ListType):
            return [fill(item, kind.item_type) for item in value]
        if isinstance(kind, msgspec.inspect.DictType):
            return {fill(k, kind.key_type): fill(v, kind.value_type) for k, v in value.items()}
        if isinstance(kind, msgspec.inspect.AnyType) and isinstance(value, Mapping):
            return {word(k): fill(v, kind) for k, v in value.items()}
        if isinstance(kind, msgspec.inspect.StructType):
            return type(value)(
                **{
                    field.name: fill(getattr(value, field.name), field.type)
                    for field in kind.fields
                }
            )
        return value

    return fill(record, msgspec.inspect.type_info(type(record)))


def _fits(value: Any, kind: msgspec.inspect.Type) -> bool:
    """Whether a value is of that member of a union."""
    if isinstance(kind, msgspec.inspect.Metadata):
        return _fits(value, kind.type)
    wanted = {
        msgspec.inspect.StrType: str,
        msgspec.inspect.ListType: list,
        msgspec.inspect.DictType: dict,
    }.get(type(kind))
    if isinstance(kind, msgspec.inspect.StructType):
        return isinstance(value, kind.cls)
    return wanted is not None and isinstance(value, wanted)
