"""Do the stages of a pipeline wait for each other's micro-batches?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import percent
from traceprobe.records.report import Status
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.pipeline import Schedule, bubble_ms, is_pipeline, schedule, turns_ms
from traceprobe.verdict.thresholds import FIXED

MORE = (
    "Give the pipeline more micro-batches per step: the bubble shrinks with their number. "
    "Interleaved stages shrink it further; 1F1B needs less memory than GPipe, which allows more of "
    "them."
)
TURNS = ("idle_latency", "idle_sync", "idle_host")
"""What waiting for another GPU of the process is in the partition."""
FOLLOW = (
    "The GPUs compute their parts of the model by turns (as with `device_map`). Split the batch "
    "into micro-batches that follow each other through them (`torch.distributed.pipelining`); or, "
    "if the model fits on one GPU, train a copy on each (DDP), else a shard of it (FSDP)."
)
BALANCE = (
    "The stages wait longer than their schedule has to let them: make them equally long, and see "
    "what delays the micro-batches."
)


@rule(
    "pipeline-bubble",
    title="Pipeline stages wait for each other",
    definition="Time per step that a stage waits in messages from one rank to another, beyond "
    "their transfer and while nothing is computed, of the rank that waits least: all ranks wait at "
    "least that long, in turns. The transfer is the shorter duration on the two ranks of a "
    "message, or the shortest of its size where one rank is known. The ideal of GPipe and 1F1B is "
    "(stages − 1) / (micro-batches + stages − 1). With four micro-batches a stage no more than "
    "that is asked for; where their number is not known, up to what two such stages wait. A GPU "
    "waits for another one of its process where it idles though its work was launched, while that "
    "one computes. The saving is all of it.",
    verify="Double the micro-batches of a step without changing their size and time it without a "
    "profiler: the step gets less than twice as long, by one bubble.",
)
def pipeline_bubble(evidence: Evidence) -> Answer:
    """Waiting in messages between two ranks, which all stages take turns in."""
    ms = bubble_ms(evidence.ranks)
    if ms is None:
        return not_applicable("no messages from one rank to another")
    in_process = bool(turns_ms(evidence.ranks)) and not is_pipeline(evidence.ranks)
    # Without a profiler there may be less communication than in the trace.
    ms = min(ms, evidence.communication_ms())
    world = evidence.run.world_size if evidence.run is not None else 1
    plan = schedule(evidence.ranks, world)
    share = evidence.share(ms)
    status: Status = "pass" if _is_short(share, plan) else evidence.grade(share)
    matters = status in ("warn", "fail")
    longer = plan is not None and share > FIXED.bubble_excess * plan.ideal
    return Answer(
        status,
        [
            f"{evidence.amount(ms)} in which a GPU waits for what another one computes"
            if in_process
            else f"{evidence.amount(ms)} of waiting in messages from one rank to another",
            f"the ideal of GPipe and 1F1B is {percent(plan.ideal)}, with {plan.stages} stages and "
            f"{plan.micro_batches} micro-batches as the number of messages tells"
            if plan is not None
            else "the ideal of GPipe and 1F1B is (stages − 1) / (micro-batches + stages − 1)",
            "one rank alone cannot tell the bubble from waiting for a slower stage"
            if len(evidence.ranks) == 1
            else "",
        ],
        evidence.saving(ms, "communication", *(TURNS if in_process else ())) if matters else None,
        _advice(in_process=in_process, longer=longer) if matters else "",
        # What the GPUs of one process need of each other is in no replay.
        changes=Changes(micro_batches=2.0) if matters and not in_process else None,
    )


def _advice(*, in_process: bool, longer: bool) -> str:
    if in_process:
        return FOLLOW
    return f"{BALANCE} {MORE}" if longer else MORE


def _is_short(share: float, plan: Schedule | None) -> bool:
    """Whether the stages wait no more than those with as many micro-batches as help."""
    if plan is None:
        return share <= Schedule(2, 2 * FIXED.micro_batches_a_stage).ideal
    enough = plan.micro_batches >= FIXED.micro_batches_a_stage * plan.stages
    return enough and share <= FIXED.bubble_excess * plan.ideal
