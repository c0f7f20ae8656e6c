"""Do ranks wait for each other?"""

from __future__ import annotations

from msgspec import UNSET

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import Answer, inconclusive, not_applicable, rule
from traceprobe.formatting import duration
from traceprobe.records.run import Run
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.wording import late

SLOWEST = (
    "Look at the slowest rank first: its own finding is the cause, the collective is only where "
    "the others wait."
)
SLOW_ONES = (
    "Look at these ranks first: what they spend more time on is the cause, the collective is only "
    "where the others wait."
)
ALL_RANKS = "Analyze the trace files of all ranks together: `traceprobe analyze rank*.json.gz`."
SAME_STEPS = (
    "Record the same steps on all ranks: with the same `schedule` on each, and `prof.step()` in "
    "each iteration."
)
TURNS = (
    "No single rank is to blame. Look at what varies from step to step on each of them: batches of "
    "different sizes, data loading, garbage collection, other processes on the machine."
)


@rule(
    "communication-skew",
    title="Ranks wait for the slowest one",
    definition="Time per step inside collectives beyond the shortest duration of each among the "
    "ranks, mean over the ranks. Where this is above 1 % of the step, the evidence names the "
    "straggler, the rank that came last for two thirds of it, or says that ranks take turns, and "
    "what the late ranks spend more time on. The saving is all of it.",
    verify="Time each rank alone on the same data without communication. The straggler is slower. "
    "If all are equal, look at uneven batches.",
)
def communication_skew(evidence: Evidence) -> Answer:
    """Time in collectives beyond the shortest duration among the ranks."""
    run = evidence.run
    if run is None:
        return not_applicable("one process, one rank")
    if run.skew_ns is None or run.transfer_ns is None:
        complete = len(evidence.ranks) >= run.world_size
        return inconclusive(
            f"the run has {run.world_size} ranks, and their collectives could not be matched",
            SAME_STEPS if complete else ALL_RANKS,
        )
    ms = run.skew_ns / 1e6
    who = late(run, evidence.step_ms())
    return Answer(
        evidence.grade(evidence.share(ms)),
        [
            f"{evidence.amount(ms)} inside collectives is waiting, {duration(run.transfer_ns)} "
            f"is transfer ({run.collectives_matched} collectives matched)",
            *who,
        ],
        evidence.saving(ms, "communication"),
        _advice(run) if who else SLOWEST,
        changes=Changes(removed=frozenset({"skew"})),
    )


def _advice(run: Run) -> str:
    if run.straggler_rank is not None:
        return SLOWEST
    return TURNS if run.late_ranks is UNSET else SLOW_ONES
