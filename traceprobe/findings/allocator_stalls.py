"""Is device memory allocated and freed in every step?"""

from __future__ import annotations

from statistics import fmean

from traceprobe.findings.data_parallel import SEE, by_threads
from traceprobe.findings.evidence import HOST_IDLE, Evidence
from traceprobe.findings.host_stalls import (
    WITHOUT_STALLS,
    allocations,
    cost_ms,
    line_sites,
    more_without_profiler,
)
from traceprobe.findings.rule import NO_CALLS, Answer, not_applicable, rule
from traceprobe.formatting import counted

_ROOM = (
    "Leave the allocator room: a smaller batch, activation checkpointing, less else on the GPU. "
    "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`, and inputs padded to a few sizes, let it "
    "use what it has."
)
_EMPTIED = "Take `torch.cuda.empty_cache()` out of the loop: what PyTorch keeps, it uses again."


@rule(
    "allocator-stalls",
    title="Device memory is allocated and freed in every step",
    definition="Calls that take device memory from the driver or give it back (`cudaMalloc`, "
    "`cudaFree`, `cuMemMap`, `cuMemUnmap`), on the threads that launch, in more than half of the "
    "used iterations and in at least three, or with memory given back in each of two. `cudaFree` "
    "waits for the GPU. The saving is the idle "
    "time in the calls and after them until the host is ahead again, no more than they last; where "
    "the step without a profiler is known, up to what it is longer than the device's work and two "
    "fifths of the rest of the host's time, which the profiler slowed. "
    "Memory is given back to make room where an operator of ATen (`aten::…`) does it; in other "
    "ranges and without operators in the trace, where an allocation follows at once.",
    verify="`host.device_allocations` is gone; `torch.cuda.memory_stats()` counts no more "
    "`num_alloc_retries` and `num_device_free` per step.",
    of_gpu=True,
)
def allocator_stalls(evidence: Evidence) -> Answer:
    """Calls of the driver for memory, again and again, and the idle GPU because of them."""
    if not evidence.observed("idle_sync"):
        return NO_CALLS
    by_rank = [(each, rank) for rank in evidence.ranks if (each := allocations(rank)) is not None]
    if not by_rank:
        return not_applicable("no device memory is allocated or freed again and again")
    found = [each for each, _ in by_rank]
    most, worst = max(by_rank, key=lambda pair: pair[0].iterations)
    taken = round(fmean(each.allocations_per_step for each in found), 3)
    given = round(fmean(each.frees_per_step for each in found), 3)
    ms = cost_ms(evidence, allocations)
    told = [each.for_room for each in found if each.for_room is not None]
    room = fmean(told) if told else None
    status = evidence.grade(evidence.share(ms))
    return Answer(
        status,
        [
            f"{counted(taken, 'allocation')} and {counted(given, 'release')} of device memory "
            f"{evidence.per}, in {most.iterations} of {worst.summary.steps} iterations",
            _reason(room),
            f"{evidence.amount(ms)} of idle GPU in them and until the host is ahead again",
            more_without_profiler(evidence, ms),
        ],
        evidence.saving(evidence.spared_ms(ms), *HOST_IDLE),
        "" if status == "pass" else SEE if by_threads(evidence) else _advice(room),
        line_sites([each.lines for each in found], ms),
        WITHOUT_STALLS,
    )


def _reason(room: float | None) -> str:
    """What memory is given back for.

    Args:
        room: part of it that makes room for an allocation; None where none is given back.
    """
    if room is None:
        return "nothing is given back: what the program needs grows"
    if room == 0:
        return (
            "nothing is being allocated as it is given back: the program does that, as "
            "`torch.cuda.empty_cache()` does"
        )
    if room == 1:
        return (
            "it is given back in the middle of an allocation: memory is short, and the allocator "
            "makes room"
        )
    return "some of it is given back to make room, some as `torch.cuda.empty_cache()` does"


def _advice(room: float | None) -> str:
    if room is None:
        return _ROOM
    return " ".join(([_EMPTIED] if room < 1 else []) + ([_ROOM] if room > 0 else []))
