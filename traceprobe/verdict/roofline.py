"""The step beside the roofs of the hardware: T = T_math + T_mem + the rest.

The work is what the recording counted before training; the times are those of the trace, and the
step is the one that was timed without a profiler where there is one.

An operator that multiplies matrices overlaps its loads with its math, so it takes the longer of the
two at least. Other operators compute next to nothing and take their traffic. So the least time of a
phase is max(math, traffic of matrices) + other traffic. `math_ms` is the first term's math, and
`memory_ms` what is left of the floor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from traceprobe.model.taxonomy import COMPUTE_PHASES
from traceprobe.records.operator_work import Operators
from traceprobe.records.peaks import MeasuredPeaks
from traceprobe.records.rank import DeviceInfo, Rank, mean_step_ms
from traceprobe.records.report import Quality, Verdict
from traceprobe.records.roofline import (
    Limit,
    Peaks,
    PhaseWork,
    Roofline,
    Utilisation,
)
from traceprobe.verdict import gpu_specs as gpus
from traceprobe.verdict.counted import (
    PASSES,
    Work,
    added,
    executed,
    of_model,
    ranks_of,
    total_of,
    work_of,
)
from traceprobe.verdict.operator_roofline import beside_roofline, rate
from traceprobe.verdict.precision import ran
from traceprobe.verdict.sampled_units import limit_of_units, sampled_units
from traceprobe.verdict.thresholds import FIXED

_SAME = {"bf16": "half", "fp16": "half"}
_BYTES = (
    "the traffic of a compiled model is not known: the compiler decides what stays in registers"
)
_NO_MFU = "how much the model computes is not known, so there is no MFU: "
_TELL = "describe the step with `traceprobe.capture.work`, or give --flops-per-step"
FILLED = ("multiprocessors_covered", "occupancy")
"""What a trace may say of how much of the GPU its kernels fill, as parts of 1."""
_LIMIT_WORDS: Mapping[Limit, str] = {
    "math": "they are bound by math",
    "memory": "they are bound by memory traffic",
    "neither": "neither explains it, so they are small, badly shaped or waiting",
}


def roofline(
    ranks: Sequence[Rank],
    quality: Quality,
    workload: Mapping[str, object] | None,
    occupancy: Mapping[str, float] | None = None,
    flops_per_step: float | None = None,
    measured: MeasuredPeaks | None = None,
    operators: Operators | None = None,
) -> Roofline | None:
    """The roofline of a run; None where there are no steps, or nothing is known but a CPU.

    Args:
        ranks: of one kind of device; their phases are averaged.
        occupancy: `multiprocessors_covered` and `occupancy` while kernels run, as parts of 1.
        flops_per_step: of all ranks, where the user knows better than the recording.
        measured: peaks of this device.
        operators: of a step, where the trace has the sizes of their operands.
    """
    timed = [rank for rank in ranks if rank.summary.iterations_used]
    traced_step_ms = mean_step_ms(timed)
    if traced_step_ms is None:
        return None
    device = timed[0].device
    same = all(rank.device.facts == device.facts for rank in timed)
    work = work_of(workload) if flops_per_step is None else None
    total = total_of(workload) if flops_per_step is None else flops_per_step
    if total is None and device.kind == "cpu":
        return None
    gpu = gpus.find_gpu(*device.facts) if same and device.kind == "gpu" else None
    published = None if gpu is None else _published(gpu)
    own_peaks = None if measured is None else _measured(measured)
    effect = quality.observer_effect
    step = effect.step_ms if effect is not None else traced_step_ms
    times = _times(timed)
    kernels = sum(times[name] or 0.0 for name in COMPUTE_PHASES)
    of_one = None if total is None else total / max(ranks_of(workload), len(timed))
    names = ran(rank.summary.kernel_ns for rank in timed)
    model = of_model(work, of_one, names)
    phases = _phases(work, times, published, own_peaks)
    math = _sum([phase.math_ms for phase in phases]) if work else None
    memory = _memory(phases) if work else None
    rest = None if math is None or memory is None else max(step - math - memory, 0.0)
    mfu = _share(_least_ms(model, published, None), step)
    hfu = _share(_least_ms(executed(work), published, None), step) if work else None
    units = sampled_units(timed)
    return Roofline(
        device=device.name if same else None,
        step_ms=round(step, 6),
        unprofiled=effect is not None,
        published=published,
        measured=own_peaks,
        flops_per_step=of_one,
        achieved_tflops=None if of_one is None else _rounded(of_one / step / 1e9),
        mfu=mfu,
        hfu=hfu,
        phases=phases,
        kernel_ms=round(kernels, 6),
        math_ms=_rounded(math),
        memory_ms=_rounded(memory),
        rest_ms=_rounded(rest),
        limit=limit_of_units(units) or _limit(math, memory, kernels),
        utilisation=_utilisation(timed, times, step, occupancy, mfu),
        notes=_notes(work, workload, total, gpu, device, same=same, names=names),
        operators=UNSET if operators is None else beside_roofline(operators, own_peaks, published),
        sampled=UNSET if units is None else units,
    )


def with_limit(verdict: Verdict, record: Roofline | None) -> Verdict:
    """A verdict of `compute` that says whether math or memory bounds the kernels, and why."""
    if verdict.bound != "compute" or record is None:
        return verdict
    if record.limit is None:
        return verdict
    reason = f"{_why(record)}: {_LIMIT_WORDS[record.limit]}"
    return replace(verdict, limit=record.limit, reasons=[*verdict.reasons, reason])


def _why(record: Roofline) -> str:
    """What the limit is from: counters where they tell one, else work at peak rates."""
    units = record.sampled
    if units and limit_of_units(units):
        return (
            f"by counters of the GPU tensor cores are active for {100 * units.tensor_active:.0f} % "
            f"of the kernels' time, memory for {100 * units.dram:.0f} %"
        )
    math_ms = record.math_ms or 0.0  # known, or there were no limit
    math = f"math would take {100 * math_ms / record.kernel_ms:.0f} % of the kernels' time"
    memory = (
        "memory traffic is not known"
        if record.memory_ms is None
        else f"memory traffic {100 * record.memory_ms / record.kernel_ms:.0f} %"
    )
    return f"at peak rates {math}, {memory}"


def _published(gpu: gpus.Gpu) -> Peaks:
    name = gpu.name if gpu.slice is None else f"{gpu.name} MIG {gpu.slice}"
    return Peaks(
        source=f"{name}: {gpu.source}",
        tflops={precision: round(peak, 4) for precision, peak in gpu.peaks.items()},
        bandwidth_gbps=None if gpu.bandwidth_gbps is None else round(gpu.bandwidth_gbps, 2),
    )


def _measured(peaks: MeasuredPeaks) -> Peaks:
    """Without rates that round to 0, as of a very slow CPU: they are no peaks."""
    return Peaks(
        source=f"measured on {peaks.device} with PyTorch {peaks.torch}",
        tflops={precision: rate for precision, rate in peaks.tflops.items() if rate},
        bandwidth_gbps=peaks.copy_gbps or None,
    )


def _times(ranks: Sequence[Rank]) -> dict[str, float | None]:
    """Exclusive ms per step of phases and communication, the mean of the ranks that know them."""
    times: dict[str, float | None] = {}
    for name in (*COMPUTE_PHASES, "communication"):
        known = [
            ns / rank.summary.iterations_used / 1e6
            for rank in ranks
            if (ns := rank.summary.partition_ns.get(name)) is not None
        ]
        times[name] = sum(known) / len(known) if known else None
    return times


def _least_ms(
    flops: Mapping[str, float] | None, published: Peaks | None, measured: Peaks | None
) -> float | None:
    """The operations at peak; None where a peak is not known."""
    if flops is None:
        return None
    total = 0.0
    for precision, count in flops.items():
        peak = rate(precision, measured, published)
        if peak is None:
            return None
        total += count / peak / 1e9
    return total


def _phases(
    work: Work | None,
    times: Mapping[str, float | None],
    published: Peaks | None,
    measured: Peaks | None,
) -> list[PhaseWork]:
    if work is None:
        return []
    counted = {name: (work[name], times[name]) for name in PASSES}
    if not times["recompute"]:  # some traces cannot tell it from the backward pass
        counted = _joined(counted, "backward", ("backward", "recompute"))
    if times["graph"]:  # a replay has forward and backward pass in one
        counted["graph"] = ({"flops": {}, "bytes": 0, "matrix_bytes": 0}, times["graph"])
        counted = _joined(counted, "graph", tuple(counted))
    phases = [
        _phase(name, phase, ms, published, measured, fused=bool(work.get("compiled")))
        for name, (phase, ms) in counted.items()
        if phase["flops"] or phase["bytes"]
    ]
    update = work.get("optimizer")
    moved = update.get("bytes") if isinstance(update, dict) else None
    if isinstance(moved, int):
        phase = {"flops": {}, "bytes": moved, "matrix_bytes": 0}
        phases.append(
            _phase("optimizer", phase, times["optimizer"], published, measured, fused=False)
        )
    return phases


Counted = dict[str, tuple[Work, float | None]]


def _joined(counted: Counted, name: str, members: tuple[str, ...]) -> Counted:
    """Some phases as one."""
    parts = [counted[member] for member in members]
    known = [ms for _, ms in parts if ms is not None]
    whole = {
        "flops": added([phase["flops"] for phase, _ in parts]),
        "bytes": sum(phase["bytes"] for phase, _ in parts),
        "matrix_bytes": sum(phase["matrix_bytes"] for phase, _ in parts),
    }
    left = {key: value for key, value in counted.items() if key not in members}
    return {**left, name: (whole, sum(known) if known else None)}


def _phase(
    name: str,
    work: Work,
    ms: float | None,
    published: Peaks | None,
    measured: Peaks | None,
    *,
    fused: bool,
) -> PhaseWork:
    flops, moved = dict(work["flops"]), None if fused else int(work["bytes"])
    count = sum(flops.values())
    peaks = measured if measured and measured.bandwidth_gbps else published
    bandwidth = None if peaks is None else peaks.bandwidth_gbps
    math = _least_ms(flops, published, measured)
    memory = floor = None
    if moved is not None and bandwidth:
        memory = moved / bandwidth / 1e6
        matrices = work["matrix_bytes"] / bandwidth / 1e6
        floor = None if math is None else max(math, matrices) + memory - matrices
    return PhaseWork(
        phase=name,
        ms=_rounded(ms),
        flops={precision: int(n) for precision, n in flops.items()},
        bytes=moved,
        math_ms=_rounded(math),
        memory_ms=_rounded(memory),
        floor_ms=_rounded(floor),
        tflops=_rounded(count / ms / 1e9) if ms and count else None,
        gbps=_rounded(moved / ms / 1e6) if ms and moved else None,
        intensity=_rounded(count / moved) if moved and count else None,
    )


def _memory(phases: Sequence[PhaseWork]) -> float | None:
    """Traffic that no math hides; no more than a phase has time for, as a cache may save some."""
    total = 0.0
    for phase in phases:
        if phase.floor_ms is None or phase.math_ms is None or phase.ms is None:
            return None
        total += min(phase.floor_ms - phase.math_ms, max(phase.ms - phase.math_ms, 0.0))
    return total


def _limit(math: float | None, memory: float | None, kernels: float) -> Limit | None:
    """What explains most of the kernels' time; None where the work is not known well enough."""
    if math is None or not kernels:
        return None
    if memory is None:
        return "math" if math >= FIXED.explained * kernels else None
    if math + memory < FIXED.explained * kernels:
        return "neither"
    return "math" if math >= memory else "memory"


def _utilisation(
    ranks: Sequence[Rank],
    times: Mapping[str, float | None],
    step: float,
    occupancy: Mapping[str, float] | None,
    mfu: float | None,
) -> Utilisation:
    busy = covered = filled = None
    if ranks[0].device.kind == "gpu":
        # Kernels of the trace in a step without a profiler, which slows the host and not the GPU.
        busy = _share(sum(ms or 0.0 for ms in times.values()), step)
    if busy is not None and occupancy:
        covered, filled = (round(busy * occupancy[name], 6) for name in FILLED)
    return Utilisation(busy=busy, covered=covered, occupancy=filled, mfu=mfu)


def _notes(
    work: Work | None,
    workload: Mapping[str, object] | None,
    total: float | None,
    gpu: gpus.Gpu | None,
    device: DeviceInfo,
    *,
    same: bool,
    names: str | None,
) -> list[str]:
    notes = []
    if total is None:
        notes.append(_why_no_mfu(workload))
    if work is not None and work.get("compiled"):
        notes.append(_BYTES)
    if not same:
        notes.append("the ranks have different devices, so there is no peak to hold them against")
    elif gpu is None and device.kind == "gpu":
        notes.append(
            f"{device.name or 'the device'} is not in the table of GPUs: measure its peaks with "
            "`traceprobe roofline --measure`"
        )
    if work is not None and names is not None:
        asked = executed(work)
        most = max(asked, key=lambda name: asked[name], default=None)
        if most is not None and _SAME.get(most, most) != names:
            notes.append(
                f"the settings say {most}, the names of the kernels {names}: peaks are those of "
                f"{most}"
            )
    return notes


def _why_no_mfu(workload: Mapping[str, object] | None) -> str:
    """What a recording of ours lacks, or how the work gets to be known."""
    if workload is None:
        return f"{_NO_MFU}record with `traceprobe profile`, {_TELL}"
    missing = workload.get("work_missing")
    if not isinstance(missing, str):
        return f"{_NO_MFU}{_TELL}"
    # Only the kind of the error: its text may name what is private.
    kind = missing.partition(":")[0]
    named = kind if kind.isidentifier() else "an error"
    return f"{_NO_MFU}the recording could not count it ({named}); {_TELL}"


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _share(part: float | None, whole: float) -> float | None:
    return None if part is None else round(part / whole, 6)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
