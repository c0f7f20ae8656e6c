"""Are gradients computed that no update uses?"""

from __future__ import annotations

from traceprobe.findings.evidence import HOST_IDLE, Evidence
from traceprobe.findings.less_backward import part_of_backward, without_kernels
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import counted
from traceprobe.records.rank import Rank
from traceprobe.records.unused_gradients import UnusedGradients


@rule(
    "unused-gradients",
    title="Gradients are computed that no update uses",
    definition="In the first backward pass after an update, the gradients that are added to older "
    "ones where others begin anew, in a program that sets nothing to zero between its passes. "
    "Duration of the kernels for them: all of them after the last gradient that begins anew; "
    "before it, what adds them, casts them and computes them: of several matrix products in one "
    "node those that are called `wgrad`, or half. Of the rank with most of it. The saving is all "
    "of it, and of the idle time of `host-overhead` no more than the host spends between their "
    "launches.",
    verify="Set `requires_grad_(False)` on parameters that are in no optimizer, or run a network "
    "that is not updated under `torch.no_grad()`, and time the loop without a profiler. The loss "
    "stays what it was, and peak memory falls.",
    of_gpu=True,
)
def unused_gradients(evidence: Evidence) -> Answer:
    """Backward work for parameters that are in no optimizer, or not in the one that steps."""
    found = [(each, rank) for rank in evidence.ranks if (each := _of(rank)) is not None]
    if not found:
        return not_applicable("no gradients are known that no update uses")
    most, rank = max(found, key=lambda pair: pair[0].total_ns / pair[0].iterations)
    ms = most.total_ns / most.iterations / 1e6
    part = part_of_backward(rank, most.kernels / most.iterations)
    gradients = counted(round(most.gradients / most.iterations, 1), "gradient")
    return Answer(
        evidence.flag(ms),
        [
            f"{evidence.amount(ms)} for {gradients} {evidence.per} that no update uses: they are "
            "added to those of earlier passes, which nothing has cleared",
            f"on rank {rank.rank} alone" if len(found) == 1 < len(evidence.ranks) else "",
        ],
        evidence.saving(ms + part * evidence.launching_ms("backward"), "backward", *HOST_IDLE),
        "Call `requires_grad_(False)` on the parameters that no optimizer has: the frozen base "
        "under adapters, the backbone under a new head. Where two networks take turns, run the one "
        "that is not updated under `torch.no_grad()`, or freeze it where gradients go through it. "
        "If they were meant to learn, give them to the optimizer.",
        changes=without_kernels(evidence, ms, part),
    )


def _of(rank: Rank) -> UnusedGradients | None:
    found = rank.summary.unused_gradients
    return found if isinstance(found, UnusedGradients) else None
