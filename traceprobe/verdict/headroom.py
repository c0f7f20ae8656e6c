"""Between which bounds the shortest step is that software alone could reach.

A floor must hold for every program that computes the same at the same precision and batch, with the
work shared among the GPUs as it is. So only what all such programs do counts: the operations of the
model that no algorithm leaves out, parameters and optimizer state once to the GPU's memory and
back, gradients once over the wire. What a fused kernel keeps on the chip does not count, nor what
is computed again; and as all of these can run at once, the floor is the largest of them, not their
sum. Nothing is taken from the time that something took: a floor without its work or its peak known
is left out.

What is no floor: the loader and the host, which are software, and copies to the device, as data
may be kept there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from traceprobe.formatting import significant, size
from traceprobe.records.headroom import Floor, Headroom
from traceprobe.records.memory import MOST_BYTES, Memory
from traceprobe.records.rank import Rank
from traceprobe.records.roofline import Peaks, Roofline
from traceprobe.verdict.counted import least_of, of_model, work_of
from traceprobe.verdict.gpu_specs import find_gpu
from traceprobe.verdict.links import nvlink_gbps
from traceprobe.verdict.precision import ran
from traceprobe.verdict.thresholds import FIXED

OTHER_PRECISION = frozenset({"lower-precision", "tf32-off"})
"""Findings that ask for another precision than that of the bounds."""
DENSE = frozenset({"Adam", "AdamW", "Adamax", "Adagrad", "NAdam", "RAdam", "RMSprop", "SGD"})
"""Optimizers that read and write all of their state in each step, as far as gradients are dense."""
_HALF = ["bf16", "fp16"]
"""Equally fast where a device has both, so that one stands for the other."""
_NAMES: Mapping[str, Sequence[Sequence[str]]] = {
    **{name: [_HALF] for name in ("half", *_HALF)},
    "fp32 or tf32": [["tf32"], ["fp32"]],
    "fp64": [["fp64_tensor"], ["fp64"]],
}
"""What a precision may have run as, each with those that are as fast: the fastest counts."""
_MATRIX_UNITS = frozenset({"tf32", "half", "bf16", "fp16", "fp8", "fp32 or tf32"})
"""Precisions whose operations take turns on the same units."""

Flops = Mapping[str, float]
"""Operations of a step of one device, by precision."""


def headroom(now_ms: float, reachable_ms: float, floors: Sequence[Floor]) -> Headroom | None:
    """The bounds, ms; None where no floor says anything, or one contradicts the step.

    Args:
        now_ms: the step as it is. reachable_ms: what the replay holds to be within reach.
    """
    now, reachable, least = (
        round(ms, 6) for ms in (now_ms, reachable_ms, max((f.ms for f in floors), default=0.0))
    )
    if not FIXED.headroom_least * now <= least <= now or least <= 0:
        return None
    return Headroom(
        now_ms=now,
        floor_ms=least,
        reachable_ms=min(max(reachable, least), now),
        floors=sorted(floors, key=lambda floor: (-floor.ms, floor.name)),
    )


def floors_of(
    ranks: Sequence[Rank],
    roofline: Roofline | None,
    workload: Mapping[str, object] | None,
    least: Flops | None,
    memory: Memory | None,
) -> list[Floor]:
    """Every floor that is known, those of one resource once.

    Args:
        ranks: all of the run, of one kind of device.
        least: operations that every way to compute the same takes, from the operators of the trace.
    """
    if roofline is None or any(rank.device.kind == "cpu" for rank in ranks):
        return []
    floors = [
        _math(ranks, roofline, workload, least),
        _memory(ranks, roofline, workload, memory),
        _gradients(ranks, memory),
    ]
    return [floor for floor in floors if floor is not None and floor.ms > 0]


def _math(
    ranks: Sequence[Rank],
    roofline: Roofline,
    workload: Mapping[str, object] | None,
    least: Flops | None,
) -> Floor | None:
    """The operations of the model at the highest rates that the device may have."""
    names = ran(rank.summary.kernel_ns for rank in ranks)
    work = work_of(workload)
    counted = None if work is None else least_of(work)
    if counted is None and roofline.flops_per_step is not None:
        # Half of it: a causal mask may hide as much.
        whole = of_model(work, roofline.flops_per_step, names) or {}
        counted = {name: FIXED.headroom_counted * flops for name, flops in whole.items()}
    found = [
        (ms, flops)
        for flops, by_names in ((counted, names), (least, None))
        if flops and (ms := _math_ms(flops, roofline, by_names)) is not None
    ]
    if not found:
        return None
    ms, flops = max(found, key=lambda each: each[0])
    said = " and ".join(
        f"{significant(count / 1e12)} TFLOP in {name}"
        for name, count in sorted(flops.items())
        if count
    )
    return Floor(
        name="math",
        ms=round(ms, 6),
        why=f"forward and backward pass compute at least {said}, {_source(roofline)}",
    )


def _math_ms(flops: Flops, roofline: Roofline, names: str | None) -> float | None:
    """Least time of the operations; those of matrix units one after the other, ms.

    Args:
        names: precision by the names of the kernels, which may be faster than what was counted.
    """
    times: dict[bool, float] = {True: 0.0, False: 0.0}
    for name, count in flops.items():
        counted = _fastest(name, roofline)
        if count > 0 and counted is None:
            return None
        if count > 0 and counted is not None:
            by_name = None if names is None else _fastest(names, roofline)
            units = name in _MATRIX_UNITS
            ms = count / max(counted, by_name or 0.0) / 1e9
            times[units] = times[units] + ms if units else max(times[units], ms)
    return max(times.values())


def _fastest(precision: str, roofline: Roofline) -> float | None:
    """The highest rate that products of a precision may have, TFLOP/s."""
    found = [_peak(names, roofline) for names in _NAMES.get(precision, [[precision]])]
    if precision == "fp32":
        split = _peak(["tf32"], roofline)
        found.append(None if split is None else split / FIXED.tf32_products)
    return max((each for each in found if each is not None), default=None)


def _peak(names: Sequence[str], roofline: Roofline) -> float | None:
    def of(peaks: Peaks | None) -> float | None:
        tflops = {} if peaks is None else peaks.tflops
        return max((tflops[name] for name in names if name in tflops), default=None)

    return _most(of(roofline.measured), of(roofline.published))


def _most(measured: float | None, published: float | None) -> float | None:
    """A rate that nothing exceeds: as published, or by what one kernel reached, if that is less."""
    known = [FIXED.headroom_peak * measured] if measured else []
    return min([*known, *([published] if published else [])], default=None)


def _memory(
    ranks: Sequence[Rank],
    roofline: Roofline,
    workload: Mapping[str, object] | None,
    memory: Memory | None,
) -> Floor | None:
    """Weights and state of the optimizer, from the memory and back, but for what L2 may keep.

    What stays in L2 from one step to the next is neither read nor written.
    """
    gbps = _most(
        None if roofline.measured is None else roofline.measured.bandwidth_gbps,
        None if roofline.published is None else roofline.published.bandwidth_gbps,
    )
    gpu = find_gpu(*ranks[0].device.facts)
    if gbps is None or gpu is None or gpu.l2_mb is None:
        return None
    moved = max(_updated(workload), _held(memory)) - 2 * gpu.l2_mb * 2**20
    ms = moved / gbps / 1e6
    return Floor(
        name="memory",
        ms=round(ms, 6),
        why=f"weights and optimizer state move {size(int(max(moved, 0.0)))} to the GPU and back, "
        f"{_source(roofline)}",
    )


def _updated(workload: Mapping[str, object] | None) -> float:
    """Bytes of an update as the recording counted it, less those of gradients, or 0.

    A gradient that is used where it is made need not be in memory: of three accesses to each
    parameter that is one, of more it is less.
    """
    update = (work_of(workload) or {}).get("optimizer")
    moved = update.get("bytes") if isinstance(update, dict) else None
    return 2 / 3 * moved if isinstance(moved, int) and 0 < moved <= MOST_BYTES else 0.0


def _held(memory: Memory | None) -> float:
    """Twice the bytes that the update changes, by what the device held, or 0."""
    step = None if memory is None else memory.measured or memory.predicted
    if memory is None or step is None or memory.optimizer not in DENSE:
        return 0.0
    changed = _gradient_bytes(memory)
    return 2.0 * (changed + min(step.most.optimizer_state, 2 * changed))


def _gradient_bytes(memory: Memory | None) -> int:
    """Bytes of weights that have gradients; 0 where that is not known."""
    step = None if memory is None else memory.measured or memory.predicted
    return 0 if step is None else min(step.most.weights, step.most.gradients)


def _gradients(ranks: Sequence[Rank], memory: Memory | None) -> Floor | None:
    """Gradients over NVLink once, as switches that add up messages would have it."""
    gbps = nvlink_gbps(ranks) if len(ranks) > 1 else None
    steps = [rank.summary for rank in ranks if rank.summary.iterations_used]
    if gbps is None or not steps:
        return None
    sent = [
        sum(
            group.count * (group.bytes or 0)
            for group in summary.collectives
            if group.operation == "all_reduce"
        )
        / summary.steps
        for summary in steps
    ]
    moved = min(sum(sent) / len(sent), _gradient_bytes(memory))
    return Floor(
        name="all-reduce",
        ms=round(moved / gbps / 1e6, 6),
        why=f"{size(int(moved))} of gradients leave each GPU, at the published peak of NVLink",
    )


def _source(roofline: Roofline) -> str:
    if roofline.measured is None:
        return "at the published peak"
    return "at the published peak, or at what was measured and a margin where that is less"
