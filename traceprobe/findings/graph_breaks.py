"""Does a compiled model run in pieces?"""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from msgspec import UNSET

from traceprobe.findings.attention_unfused import counted_ms
from traceprobe.findings.evidence import HOST_IDLE, Evidence, factor_without
from traceprobe.findings.host_stalls import cost_ms, line_sites
from traceprobe.findings.owned_time import inductor_ms
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import counted, plain, significant
from traceprobe.model.sidecar import CompilerNotes
from traceprobe.records.host_stalls import CompiledRegions
from traceprobe.records.rank import Rank
from traceprobe.records.site import Site
from traceprobe.records.sites import MOST
from traceprobe.replay.scenario import Changes, together
from traceprobe.verdict.thresholds import FIXED

_ADVICE = (
    "`TORCH_LOGS=graph_breaks` names lines and reasons: take `print`, `.item()` and `if` on "
    "values of tensors out of the compiled code; for a region that may break, compile its "
    "blocks one by one. A break inside a loop leaves all of its function uncompiled."
)


@rule(
    "graph-breaks",
    title="Graph breaks cut compiled code into pieces",
    definition="Calls of compiled functions (`Torch-Compiled Region`) inside another, which are "
    "how Dynamo goes on after a graph break; several beside each other are functions that are "
    "compiled whole. The saving is the time of element-wise kernels, reductions and copies of "
    "forward and backward pass that no compiled graph launches, where graphs launch most of the "
    "kernels, else such a part of it as calls of `OptimizedModule` launch of what no graph does of "
    "the forward pass, and the idle time in broken functions between their graphs. Where the "
    "trace shows no operators and a notable part of the step is in kernels that `torch.compile` "
    "wrote, the breaks are those that the recording noted since the program began, and the saving "
    "is the time of all such kernels that are not fused. `unfused-kernels` does not count it "
    "again.",
    verify="`torch._dynamo.explain(model)(*inputs)` counts no breaks, or "
    "`torch.compile(…, fullgraph=True)` does not raise; "
    "`host.compiled_regions.breaks_per_step` is 0.",
    of_gpu=True,
)
def graph_breaks(evidence: Evidence) -> Answer:
    """Compiled functions called from within another, and what is left uncompiled."""
    found = compiled_regions(evidence)
    if not found:
        return _noted(evidence)
    calls = fmean(each.regions_per_step for each in found)
    breaks = fmean(each.breaks_per_step for each in found)
    made = f"{counted(calls, 'call')} of compiled functions {evidence.per}"
    if breaks < FIXED.breaks:
        inside = plain(breaks) if breaks else "none"
        return Answer("pass", [f"{made}, {inside} inside another"])
    eager, late = eager_ms(evidence), cost_ms(evidence, _regions)
    return Answer(
        evidence.flag(eager + late),
        [
            f"{made}, {plain(breaks)} of them inside another, whose graph is broken there",
            f"{significant(eager)} ms {evidence.per} in element-wise kernels, reductions and "
            f"copies that no graph launches, {significant(late)} ms of idle GPU between graphs",
        ],
        evidence.saving(eager + late, "other", "softmax", *HOST_IDLE),
        _ADVICE,
        line_sites([each.lines for each in found], 0.0) or _noted_sites(evidence.compiler),
        _unbroken(evidence, eager, late),
    )


def compiled_regions(evidence: Evidence) -> list[CompiledRegions]:
    """What the ranks call of compiled functions."""
    each = (_regions(rank) for rank in evidence.ranks)
    return [regions for regions in each if regions is not None]


def eager_ms(evidence: Evidence) -> float:
    """Time per step in kernels that a compiler would fuse, and that a graph break leaves alone."""
    notes = _notes(evidence)
    if notes is not None:
        return _unfused_ms(evidence) if notes.breaks else 0.0
    return _of_regions(
        evidence, lambda each: each.eager_ns if each.breaks_per_step >= FIXED.breaks else 0
    )


def launched_ms(evidence: Evidence) -> float:
    """Time per step in such kernels that compiled graphs launch."""
    return _of_regions(evidence, lambda each: each.launched_ns)


def _of_regions(evidence: Evidence, ns: Callable[[CompiledRegions], int]) -> float:
    """A time of compiled functions per step, mean of the ranks that call some, ms."""
    found = [
        ns(regions) / rank.summary.steps
        for rank in evidence.ranks
        if (regions := _regions(rank)) is not None
    ]
    return fmean(found) / 1e6 if found else 0.0


def _notes(evidence: Evidence) -> CompilerNotes | None:
    """What the recording noted, where the trace cannot show it and much of the step is compiled."""
    notes = evidence.compiler
    if notes is None or "operators" in evidence.profiled or compiled_regions(evidence):
        return None
    return None if evidence.flag(inductor_ms(evidence.owners)) == "pass" else notes


def _noted(evidence: Evidence) -> Answer:
    """The answer by what the recording noted.

    Kernels that no break leaves alone may be among those that are not fused, so they are to be as
    much as `unfused-kernels` asks for.
    """
    notes = _notes(evidence)
    if notes is None:
        return not_applicable("the trace shows no calls of compiled functions")
    if not notes.breaks:
        return Answer("pass", ["the recording noted no graph break"])
    ms, fused = _unfused_ms(evidence), evidence.kernel_ms("fused")
    return Answer(
        "warn" if evidence.share(ms) >= evidence.thresholds.bound else "pass",
        [
            f"graphs broke at {counted(notes.breaks, 'place')} since the program began, as the "
            "recording noted; how often a step runs them is not in this trace",
            f"{evidence.amount(ms)} in element-wise kernels, reductions and copies, "
            f"{significant(fused)} ms in fused kernels",
        ],
        evidence.saving(ms, "other", "softmax"),
        _ADVICE,
        _noted_sites(notes),
        evidence.faster(FIXED.fusion_usual * ms, FIXED.fusion_margin),
    )


def _unfused_ms(evidence: Evidence) -> float:
    """Time per step in kernels that are not fused, but for what is asked for of attention."""
    classes = ("other", "softmax")
    return evidence.kernel_ms(*classes) - counted_ms(evidence, *classes)


def _noted_sites(notes: CompilerNotes | None) -> list[Site]:
    """The first places that the recording noted, of which none is known to cost more."""
    return [] if notes is None else line_sites([dict.fromkeys(notes.lines[:MOST], 1)], 0.0)


def _regions(rank: Rank) -> CompiledRegions | None:
    found = rank.summary.host.compiled_regions
    return None if found is UNSET else found


def _unbroken(evidence: Evidence, eager: float, late: float) -> Changes | None:
    fused = evidence.faster(FIXED.fusion_usual * eager, FIXED.fusion_margin)
    sooner = _sooner(max(late, _launching_ms(evidence)), evidence.step_ms())
    return fused if sooner is None else sooner if fused is None else together(fused, sooner)


def _launching_ms(evidence: Evidence) -> float:
    """What the host usually takes less per step, where what breaks leave uncompiled is compiled.

    All launches are taken to cost the host the same.
    """
    shares = [
        found.eager_kernels / rank.summary.host.launches_per_step
        for rank in evidence.ranks
        if (found := _regions(rank)) is not None and rank.summary.host.launches_per_step
    ]
    spared = 1 - 1 / FIXED.fewer_launches
    return min(fmean(shares), 1.0) * spared * evidence.step_ms() if shares else 0.0


def _sooner(ms: float, now: float) -> Changes | None:
    """The host faster by what it takes less for what is left uncompiled.

    At which launches that is is not known, so all come sooner by one factor.

    Args:
        ms: what it takes less per step. now: the captured step, ms.
    """
    if ms <= 0 or not now:
        return None
    return Changes(speedup={"host": factor_without(ms, now)}, margin=FIXED.usual_margin)
