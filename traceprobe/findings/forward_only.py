"""Is there a forward pass that nothing is learned from?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence, factor_without
from traceprobe.findings.host_stalls import line_sites
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import counted, listed
from traceprobe.records.forward_only import ForwardOnly
from traceprobe.records.rank import Rank
from traceprobe.replay.scenario import Changes


@rule(
    "forward-only",
    title="Part of the forward pass has no backward pass",
    definition="Duration of the kernels of the forward pass whose operators have an autograd "
    "sequence number (gradients are recorded) that no operator of a backward pass has; of the rank "
    "with most of it. The last iteration of a capture is left out, since its backward pass may "
    "still follow. The saving is all of it.",
    verify="Leave the pass out, and time the loop without a profiler. The loss stays what it was.",
    of_gpu=True,
)
def forward_only(evidence: Evidence) -> Answer:
    """Kernels that autograd recorded for a backward pass which never came."""
    found = [(each, rank) for rank in evidence.ranks if (each := _of(rank)) is not None]
    if not found:
        return not_applicable("no forward kernels are known to have no backward pass")
    most, rank = max(found, key=lambda pair: pair[0].total_ns / pair[0].iterations)
    ms = most.total_ns / most.iterations / 1e6
    kernels = counted(round(most.kernels / most.iterations, 1), "kernel")
    return Answer(
        evidence.flag(ms),
        [
            f"{evidence.amount(ms)} in {kernels} {evidence.per} that have no backward pass",
            f"on rank {rank.rank} alone" if len(found) == 1 < len(evidence.ranks) else "",
            f"most of it in {listed([f'`{name}`' for name in most.operators])}",
        ],
        evidence.saving(ms, "forward"),
        "If nothing needs what it computes, leave that pass out. If something does, such as a log "
        "or another model, run it under `torch.no_grad()`, which keeps no activations for a "
        "backward pass, and less often.",
        line_sites([most.lines], ms),
        _left_out(evidence, ms) if len(evidence.ranks) == 1 else None,
    )


def _of(rank: Rank) -> ForwardOnly | None:
    found = rank.summary.forward_only
    return found if isinstance(found, ForwardOnly) else None


def _left_out(evidence: Evidence, ms: float) -> Changes | None:
    """The forward pass faster by that work."""
    now = evidence.busy_ms("forward")
    if not now:
        return None
    return Changes(speedup={"forward": factor_without(ms, now)})
