"""Do backward passes go through the same layers again?"""

from __future__ import annotations

from traceprobe.findings.evidence import HOST_IDLE, Evidence
from traceprobe.findings.needless_work import left_out, most_needless, part_of_launches
from traceprobe.findings.rule import Answer, not_applicable, rule


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
    found = most_needless(evidence, lambda rank: rank.summary.repeated_backward)
    if found is None:
        return not_applicable("no backward pass is known to go through a graph again")
    ms, part = found.ms, part_of_launches(found, "backward")
    kernels = found.per_step(found.work.kernels, "kernel")
    return Answer(
        evidence.flag(ms),
        [
            f"{evidence.amount(ms)} in {kernels} {evidence.per} of layers that an earlier backward "
            "pass had gone through",
            found.alone,
        ],
        evidence.saving(ms + part * evidence.launching_ms("backward"), "backward", *HOST_IDLE),
        "Add the losses and call `backward()` once, instead of once for each with "
        "`retain_graph=True`: the gradients are the same, and shared layers are gone through "
        "once.",
        changes=left_out(evidence, found, "backward", part),
    )
