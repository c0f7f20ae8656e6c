"""Do ranks wait for each other?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence, lines, unanswered
from traceprobe.records.report import Finding
from traceprobe.verdict.wording import late

ID = "communication-skew"
RULE = (
    "Time per step inside collectives beyond the shortest duration of each among the ranks, "
    "mean over the ranks. Where this is above 1 % of the step, the evidence names the rank that "
    "came last for two thirds of it, or says that ranks take turns, and what the late ranks "
    "have more of. The saving is all of it."
)
VERIFY = (
    "Time each rank alone on the same data without communication. The straggler is slower. If "
    "all are equal, look at uneven batches."
)
SLOWEST = "Look at the slowest rank first: its own finding is the cause, the collective the place."
TURNS = (
    "No single rank is to blame. Look at what varies from step to step on each of them: batches of "
    "different size, loading, garbage collection, other processes on the machine."
)


def check(evidence: Evidence) -> Finding:
    """Time in collectives beyond the shortest duration among the ranks."""
    title = "Ranks wait for the slowest one"
    run = evidence.run
    if run is None:
        return unanswered(ID, "not-applicable", title, "one process, one rank")
    if run.skew_ns is None or run.transfer_ns is None:
        return unanswered(
            ID,
            "inconclusive",
            title,
            f"the run has {run.world_size} ranks, and their collectives could not be matched",
            "Analyse the trace files of all ranks together: `traceprobe analyze rank*.json.gz`.",
        )
    ms = run.skew_ns / 1e6
    who = late(run, evidence.step_ms())
    turns = run.straggler_rank is None and bool(who)
    return Finding(
        id=ID,
        status=evidence.grade(evidence.share(ms)),
        title=title,
        saving_ms_per_step=evidence.saving(ms),
        evidence=lines(
            f"{ms:.2f} ms {evidence.per} ({evidence.share(ms):.1%}) inside collectives is waiting, "
            f"{run.transfer_ns / 1e6:.2f} ms is transfer ({run.collectives_matched} "
            "collectives matched)",
            *who,
        ),
        advice=TURNS if turns else SLOWEST,
    )
