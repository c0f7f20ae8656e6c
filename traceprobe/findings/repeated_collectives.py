"""Does every micro-batch repeat communication that is needed once per update?"""

from __future__ import annotations

from statistics import fmean

from msgspec import UNSET

from traceprobe.findings.communication_exposed import transfer_ms
from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.replay.scenario import Changes

REDUCE_ONCE = (
    "Reduce gradients only after the last backward pass before the update: put the others under "
    "`no_sync()` (DDP, FSDP1), use `set_requires_gradient_sync(False)` (FSDP2), or "
    "`accelerator.accumulate(model)`."
)
GATHER_ONCE = (
    "Parameters do not change between these passes: keep them gathered where memory allows "
    "(`reshard_after_forward=False`, and `set_reshard_after_backward(False)` for all passes but "
    "the last), or make fewer and larger micro-batches."
)


@rule(
    "repeated-collectives",
    title="Every micro-batch repeats communication that is needed once per update",
    definition="Collectives of 1 MB and more that each backward pass before an update makes with "
    "the same sizes: reductions of gradients, which add up over the passes, and gatherings of "
    "sharded parameters, which do not change. Where no size is known, as many that take 2 % of the "
    "longest one's time and more, and together less than 1.5 times as long in one pass as in "
    "another. Where anything is reduced in a forward pass the model itself communicates, and "
    "nothing is said. The saving is their part of the transfer but for one pass.",
    verify="`collectives_per_step` falls to what one pass needs, and losses stay the same.",
)
def repeated_collectives(evidence: Evidence) -> Answer:
    """Collectives of all passes before an update but one."""
    found = [rank.summary.repeated_collectives for rank in evidence.ranks]
    known = [each for each in found if each is not UNSET]
    if not known or len(known) < len(found):
        return not_applicable("no backward pass repeats the collectives of another")
    passes = max(each.passes for each in known)
    reduced = fmean(each.reduced_ns / each.all_ns for each in known)
    gathered = fmean(each.gathered_ns / each.all_ns for each in known)
    part = reduced + gathered
    without = {"communication": round(1 / (1 - part), 3)}
    ms = part * transfer_ms(evidence)
    return Answer(
        evidence.flag(min(ms, evidence.exclusive_ms("communication"))),
        [
            f"{passes} backward passes before an update, each with the same collectives",
            f"{100 * reduced:.0f} % of communication reduces gradients again" if reduced else "",
            f"{100 * gathered:.0f} % of communication gathers parameters again" if gathered else "",
        ],
        evidence.saving(ms, "communication"),
        " ".join([REDUCE_ONCE] * (reduced > 0) + [GATHER_ONCE] * (gathered > 0)),
        changes=Changes(speedup=without, fewer=without),
    )
