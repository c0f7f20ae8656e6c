"""Does `torch.compile` compile again and again?"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from traceprobe.findings.evidence import HOST_IDLE, Evidence
from traceprobe.findings.host_stalls import (
    WITHOUT_STALLS,
    compilations,
    cost_ms,
    line_sites,
    more_without_profiler,
)
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import counted
from traceprobe.records.host_stalls import Compilations, CompiledFrame
from traceprobe.records.rank import Rank

_ADVICE = (
    "`TORCH_LOGS=recompiles` names the guard that fails. Make a Python number that changes a "
    "tensor; for a size that changes, `torch._dynamo.mark_dynamic` or `torch.compile(…, "
    "dynamic=True)`, or pad to a few sizes."
)


@rule(
    "recompilation",
    title="`torch.compile` compiles again and again",
    definition="Time in stages of compilation, by the ranges that PyTorch writes around them, or "
    "traceprobe where it records with Nsight Systems, each until its thread makes a call or begins "
    "an operator, as what was compiled does, in at least three used iterations, one of them in the "
    "second half: before, a program may get warm. The saving is the idle time in them "
    "and after them until the host is ahead again, no more than they last, or more without a "
    "profiler, as of `allocator-stalls`. Where only long iterations compile, `long-iterations` "
    "counts it.",
    verify="`TORCH_LOGS=recompiles` prints nothing after the first steps.",
    of_gpu=True,
)
def recompilation(evidence: Evidence) -> Answer:
    """Compilations when the program should be warm, and the idle GPU because of them."""
    regular = _compiling(evidence.ranks)
    by_rank = regular or _compiling(evidence.whole)
    if not by_rank:
        return not_applicable("the trace shows no compilation after the first steps")
    found = [each for each, _ in by_rank]
    most, worst = max(by_rank, key=lambda pair: pair[0].iterations)
    host = fmean(each.host_ns / rank.summary.steps for each, rank in by_rank) / 1e6
    ms = cost_ms(evidence, compilations)
    return Answer(
        evidence.grade(evidence.share(ms)) if regular else "warn",
        [
            f"{evidence.amount(host)} of compilation on the host, in {most.iterations} of "
            f"{worst.summary.steps} iterations",
            f"{evidence.amount(ms)} of idle GPU in it and until the host is ahead again"
            if regular
            else "`long-iterations` counts what it costs",
            more_without_profiler(evidence, ms) if regular else "",
            _versions(most.frames),
        ],
        evidence.saving(evidence.spared_ms(ms), *HOST_IDLE) if regular else None,
        _ADVICE,
        line_sites([each.lines for each in found], ms),
        WITHOUT_STALLS,
    )


def _compiling(ranks: Sequence[Rank]) -> list[tuple[Compilations, Rank]]:
    """What ranks compile, of those that do."""
    return [(each, rank) for rank in ranks if (each := compilations(rank)) is not None]


def _versions(frames: Sequence[CompiledFrame]) -> str:
    """How often functions were compiled since the program began; empty where it is not known."""
    told = [f"{each.frame} has {counted(each.versions, 'version')}" for each in frames]
    return f"of the functions by Dynamo's numbers {', '.join(told)}" if told else ""
