"""Does the host pause without the trace saying what for?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.host_stalls import look_at
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import significant
from traceprobe.records.run import straggler_of

_CLASS = "idle_unexplained"


@rule(
    "unexplained-idle",
    title="The GPU idles, and no call, range or operator says why",
    title_on_cpu="No operator runs, and no range says why",
    definition="Idle time per step of unknown cause (`idle_unexplained`). Where the trace has "
    "frames of the program, they say where the host was; whether they load data or compute on "
    "the CPU they do not say. The saving is all of it, or what the straggler has, if "
    "that is more.",
    verify="Time the loop without a profiler and without what it does there, or annotate that: its "
    "time is then in another class.",
)
def unexplained_idle(evidence: Evidence) -> Answer:
    """Pauses of the host, with the line of the program that it was in."""
    ms, most = evidence.exclusive_ms(_CLASS), evidence.idle_ms(_CLASS)
    if not ms:
        return not_applicable("all idle time has a cause")
    sites = evidence.delaying_sites(_CLASS)
    where = look_at(sites)
    return Answer(
        evidence.grade(evidence.share(most)),
        [
            f"{evidence.amount(ms)} of {evidence.idle} of unknown cause",
            f"{significant(most)} ms on rank {straggler_of(evidence.run)}, which the others "
            "wait for"
            if most > ms
            else "",
        ],
        evidence.saving(most, _CLASS),
        (
            f"{where}: move what it does off the step, into the loader's workers or another "
            "process (threads of Python take turns), or do it less often."
            if where
            else "Record the program's lines (`traceprobe profile`), or annotate what it does "
            '(`torch.profiler.record_function("data_load")`).'
        ),
        sites,
    )
