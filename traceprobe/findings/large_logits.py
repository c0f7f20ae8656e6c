"""Do output layer and loss over a large vocabulary take much of the step?"""

from __future__ import annotations

from msgspec import UNSET

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import percent, significant
from traceprobe.records.logits import Logits
from traceprobe.verdict.thresholds import FIXED


@rule(
    "large-logits",
    title="Scores of all words take much of the step",
    definition="Duration of the kernels of forward and backward pass whose operators have a "
    "dimension as large as the classes that a loss tells apart, from 10,000 classes on: output "
    "layer, loss, and their gradients; lookups left out. The rank with most of it counts. The "
    "saving is all of it at most: how many positions have a label is not in the trace. Only "
    "recorded shapes show it.",
    verify="`logits.positions` falls, and losses stay the same.",
    of_gpu=True,
)
def large_logits(evidence: Evidence) -> Answer:
    """Logits of positions that may have no label, and a loss that is not fused with them."""
    found = [(rank.summary.logits, rank.summary.steps) for rank in evidence.ranks]
    known = [(each, steps) for each, steps in found if each is not UNSET]
    if not known:
        return not_applicable("no loss over 10,000 classes or more is known")
    most, steps = max(known, key=lambda of: of[0].total_ns / of[1])
    ms = most.total_ns / steps / 1e6
    return Answer(
        "warn" if evidence.share(ms) >= FIXED.much_for_logits else "pass",
        _told(evidence, most, steps),
        evidence.saving(ms, "forward", "backward", "recompute"),
        "Compute logits only where there is a label: select masked words, or tokens that are "
        "neither prompt nor padding, before the output layer. Where all have one, compute output "
        "layer and loss in parts that never hold all logits (Liger's fused linear cross entropy, "
        "`torch.compile` of both).",
    )


def _told(evidence: Evidence, logits: Logits, steps: int) -> list[str]:
    ms, products = (ns / steps / 1e6 for ns in (logits.total_ns, logits.products_ns))
    return [
        f"{evidence.amount(ms)} in output layer and loss over {logits.classes:,} classes, of "
        f"{round(logits.positions / steps):,} positions",
        f"{significant(products)} ms of it ({percent(products / ms, 0)}) is products of matrices, "
        "the rest moves logits through memory",
    ]
