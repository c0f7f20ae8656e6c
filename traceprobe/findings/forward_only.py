"""Is there a forward pass that nothing is learned from?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.host_stalls import line_sites
from traceprobe.findings.needless_work import left_out, most_needless
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import listed


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
    found = most_needless(evidence, lambda rank: rank.summary.forward_only)
    if found is None:
        return not_applicable("no forward kernels are known to have no backward pass")
    ms, kernels = found.ms, found.per_step(found.work.kernels, "kernel")
    return Answer(
        evidence.flag(ms),
        [
            f"{evidence.amount(ms)} in {kernels} {evidence.per} that have no backward pass",
            found.alone,
            f"most of it in {listed([f'`{name}`' for name in found.work.operators])}",
        ],
        evidence.saving(ms, "forward"),
        "If nothing needs what it computes, leave that pass out. If something does, such as a log "
        "or another model, run it under `torch.no_grad()`, which keeps no activations for a "
        "backward pass, and less often.",
        line_sites([found.work.lines], ms),
        left_out(evidence, found, "forward"),
    )
