"""Do backward passes go through the same layers again?"""

from __future__ import annotations

from traceprobe.findings.evidence import HOST_IDLE, Evidence
from traceprobe.findings.less_backward import part_of_backward, without_kernels
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import counted
from traceprobe.records.rank import Rank
from traceprobe.records.repeated_backward import RepeatedBackward


@rule(
    "retained-graph",
    title="Several backward passes go through the same layers",
    definition="Duration of the kernels of nodes of backward passes that had run before for the "
    "same forward operator, by its autograd sequence number; of the rank with most of it. Where "
    "a backward pass itself is recorded (`create_graph=True`), nothing is counted. The saving is "
    "all of it, and of the idle time of `host-overhead` no more than the host spends between their "
    "launches.",
    verify="Add the losses and call `backward()` once: gradients stay the same within rounding, "
    "and `repeated_backward` is not in the summary of the ranks.",
    of_gpu=True,
)
def retained_graph(evidence: Evidence) -> Answer:
    """Backward work that one pass for the sum of all losses would do once."""
    found = [(each, rank) for rank in evidence.ranks if (each := _of(rank)) is not None]
    if not found:
        return not_applicable("no backward pass is known to go through a graph again")
    most, rank = max(found, key=lambda pair: pair[0].total_ns / pair[0].iterations)
    ms = most.total_ns / most.iterations / 1e6
    part = part_of_backward(rank, most.kernels / most.iterations)
    kernels = counted(round(most.kernels / most.iterations, 1), "kernel")
    return Answer(
        evidence.flag(ms),
        [
            f"{evidence.amount(ms)} in {kernels} {evidence.per} of layers that an earlier backward "
            "pass had gone through",
            f"on rank {rank.rank} alone" if len(found) == 1 < len(evidence.ranks) else "",
        ],
        evidence.saving(ms + part * evidence.launching_ms("backward"), "backward", *HOST_IDLE),
        "Add the losses and call `backward()` once, instead of once for each with "
        "`retain_graph=True`: the gradients are the same, and shared layers are gone through "
        "once.",
        changes=without_kernels(evidence, ms, part),
    )


def _of(rank: Rank) -> RepeatedBackward | None:
    found = rank.summary.repeated_backward
    return found if isinstance(found, RepeatedBackward) else None
