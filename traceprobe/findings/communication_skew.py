"""Do ranks wait for each other?"""

from __future__ import annotations

from msgspec import UNSET

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.more_computing import More, more_computing
from traceprobe.findings.rule import Answer, inconclusive, not_applicable, rule
from traceprobe.formatting import duration, significant
from traceprobe.records.run import Run
from traceprobe.replay.scenario import Changes
from traceprobe.verdict.pipeline import is_pipeline
from traceprobe.verdict.thresholds import FIXED
from traceprobe.verdict.wording import late

SLOWEST = (
    "Look at the slowest rank first: its own finding is the cause, the collective is only where "
    "the others wait."
)
BY_CAUSE = {
    "io": "its loader is late. See `data-wait` for what its workers do, and give them no more work "
    "than those of the other ranks.",
    "overhead": "its host is late. See `host-overhead` and `host-pauses` for what else it does.",
    "compute": "it computes longer. Give it batches of the size and the length that the others "
    "get, and check whether its GPU is slower or shared.",
}
"""What to do about a straggler, by what it spends more time on."""
SLOW_ONES = (
    "Look at these ranks first: what they spend more time on is the cause, the collective is only "
    "where the others wait."
)
ALL_RANKS = "Analyse the trace files of all ranks together: `traceprobe analyze rank*.json.gz`."
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
    "what the late ranks spend more time on. Of a straggler that computes longer it says what "
    "it has more of than the mean of the others, from a tenth more on: kernels, else thread "
    "blocks, which is data, else time for as many of both, which is a slower GPU; in a pipeline "
    "it is the stage. The saving is all of it, of a straggler the mean of the others.",
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
    left = evidence.skew_left_ms(ms)
    # The mean of the ranks counts a straggler, too, which does not wait.
    others = len(evidence.ranks) - (run.straggler_rank is not None)
    waited = left * len(evidence.ranks) / max(others, 1)
    classes = ["communication"] + ["idle_data_wait"] * (run.unseen_skew_ms is not UNSET)
    step = evidence.corrected_step_ms()
    who = late(run, evidence.step_ms())
    more, straggler = None, evidence.straggler
    if who and straggler is not None and run.straggler_cause == "compute":
        more = more_computing(straggler, [r for r in evidence.ranks if r is not straggler])
    return Answer(
        evidence.grade(left / step if step else 0.0),
        [
            f"{evidence.amount(ms)} inside collectives is waiting, {duration(run.transfer_ns)} "
            f"is transfer ({run.collectives_matched} collectives matched)",
            f"{significant(left)} ms of it is left once the profiler's part is taken out"
            if left < FIXED.told_apart * ms and evidence.flag(ms) != "pass"
            else "",
            *who[:1],
            "" if more is None else more.told,
            *who[1:],
        ],
        evidence.saving(waited, *classes),
        _advice(run, more) if who else SLOWEST,
        changes=_changes(run, pipelined=is_pipeline(evidence.ranks)),
    )


def _changes(run: Run, *, pipelined: bool) -> Changes:
    """What mending it changes: nobody shares out a slow host, or a slow loader, evenly."""
    shared = run.straggler_cause not in ("io", "overhead")
    if run.straggler_rank is None or (pipelined and shared):
        return Changes(removed=frozenset({"skew"}))
    return Changes(removed=frozenset({"straggler"}), margin=FIXED.shared_evenly if shared else 0.0)


def _advice(run: Run, more: More | None) -> str:
    if run.straggler_rank is not None:
        why = BY_CAUSE.get(run.straggler_cause or "", "") if more is None else more.advice
        return f"Look at rank {run.straggler_rank} first: {why}" if why else SLOWEST
    return TURNS if run.late_ranks is UNSET else SLOW_ONES
