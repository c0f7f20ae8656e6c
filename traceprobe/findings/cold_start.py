"""Does the capture show training, or how it is set up?"""

from __future__ import annotations

from msgspec import UnsetType

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import Answer, rule
from traceprobe.formatting import duration, percent
from traceprobe.records.report import Status
from traceprobe.verdict.no_training import cold_share, warm_up
from traceprobe.verdict.thresholds import FIXED


@rule(
    "cold-start",
    title="The capture begins before the program is warm",
    definition="Idle time of the GPU inside set-up calls: they last at least ten times as long as "
    "other calls of their name, and 0.2 ms; a launch is one only for the first time that its "
    "kernel runs. Compilation by `torch.compile` is set-up too, unless it goes on; what recurs in "
    "every iteration alike is none. The worst rank counts. Nothing is saved, since a training run "
    "does this once.",
    verify="A capture that begins some steps later has no such calls.",
    of_capture=True,
    of_gpu=True,
)
def cold_start(evidence: Evidence) -> Answer:
    """The GPU waits for calls that a process makes only once."""
    worst = max(evidence.ranks, key=cold_share)
    share, host = cold_share(worst), worst.summary.host
    known = [] if isinstance(host.set_up, UnsetType) else host.set_up
    cold = share > FIXED.cold_start
    status: Status = "fail" if cold else "warn" if share >= evidence.thresholds.notable else "pass"
    return Answer(
        status,
        [
            f"the GPU waits for set-up calls for {percent(share)} of the analysed time "
            f"({duration(host.set_up_idle_ns)})",
            *(
                f"{calls.count} × {calls.name}, the longest {duration(calls.longest_ns)}"
                for calls in (known if status != "pass" else [])
            ),
        ],
        advice="" if status == "pass" else f"Run a few steps first: {warm_up(evidence.ranks)}.",
    )
