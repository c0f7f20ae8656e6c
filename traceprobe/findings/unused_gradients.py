"""Are gradients computed that no update uses?"""

from __future__ import annotations

from traceprobe.findings.evidence import HOST_IDLE, Evidence
from traceprobe.findings.needless_work import left_out, most_needless, part_of_launches
from traceprobe.findings.rule import Answer, not_applicable, rule


@rule(
    "unused-gradients",
    title="Gradients are computed that no update uses",
    definition="In the first backward pass after an update, the gradients that are added to older "
    "ones where others begin anew, and those of the passes after it up to one that begins as many "
    "anew before any update, in a program that sets nothing to zero between its passes apart from "
    "the few gradients that an attack clears. Duration of the kernels for them: all of them after "
    "the last gradient that begins anew; before it, what adds them, casts them and computes them: "
    "of several matrix products in one node those that are called `wgrad`, or half; and all of "
    "another run of the same network, down to an input that needs no gradient. Of the rank "
    "with most of it. The saving is all of it, and of the idle time of `host-overhead` no more "
    "than the host spends between their launches.",
    verify="Set `requires_grad_(False)` on parameters that are in no optimizer, or run a network "
    "that is not updated under `torch.no_grad()`, and time the loop without a profiler. The loss "
    "stays what it was, and peak memory falls.",
    of_gpu=True,
)
def unused_gradients(evidence: Evidence) -> Answer:
    """Backward work for parameters that are in no optimizer, or not in the one that steps."""
    found = most_needless(evidence, lambda rank: rank.summary.unused_gradients)
    if found is None:
        return not_applicable("no gradients are known that no update uses")
    ms, part = found.ms, part_of_launches(found, "backward")
    gradients = found.per_step(found.work.gradients, "gradient")
    return Answer(
        evidence.flag(ms),
        [
            f"{evidence.amount(ms)} for {gradients} {evidence.per} that no update uses: they are "
            "added to those of earlier passes, which nothing has cleared",
            found.alone,
        ],
        evidence.saving(ms + part * evidence.launching_ms("backward"), "backward", *HOST_IDLE),
        "Call `requires_grad_(False)` on the parameters that no optimizer has: the frozen base "
        "under adapters, the backbone under a new head, the network of a perceptual loss. Where "
        "two networks take turns, run the one that is not updated under `torch.no_grad()`, or "
        "freeze it where gradients go through it. For gradients of inputs alone, as in an attack, "
        "call `torch.autograd.grad` with them. If the parameters were meant to learn, give them to "
        "the optimizer.",
        changes=left_out(evidence, found, "backward", part),
    )
