"""Does the host do something else while the GPU waits?"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from traceprobe.findings.data_parallel import SEE, by_threads
from traceprobe.findings.evidence import Evidence
from traceprobe.findings.host_stalls import (
    look_at,
    mean_pause_ms,
    more_without_profiler,
    pause_ms,
)
from traceprobe.findings.owned_time import inductor_ms
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.records.site import Site
from traceprobe.replay.scenario import Changes


@rule(
    "host-pauses",
    title="The host does something else, and the GPU waits",
    title_on_cpu="The program does something else between the operators",
    definition="Idle time per step (part of `idle_host`) in long stretches in which no thread that "
    "launches work makes a call or runs an operator, and in which no batch is waited for: before "
    "the backward pass or the update of a step, after results were copied to the host, or before a "
    "loader is asked for a batch. The saving is that time, or more without a profiler, as of "
    "`allocator-stalls`.",
    verify="Time the loop without a profiler and without what it does there.",
)
def host_pauses(evidence: Evidence) -> Answer:
    """Python, or a library, that keeps the host from launching."""
    ms = pause_ms(evidence)
    if not ms:
        return not_applicable("the host launches without long pauses")
    sites = longest(evidence.delaying_sites("idle_host"), ms)
    kept = evidence.verdict.shares.get("overhead", 0.0)
    where = look_at(sites) or "Record the program's lines (`traceprobe profile`)"
    return Answer(
        evidence.grade(min(evidence.share(ms), kept)),
        [
            f"{evidence.amount(ms)} of {evidence.idle} in which the host makes no call: Python, a "
            "library, the garbage collector, a file",
            evidence.on_straggler(mean_pause_ms(evidence), ms),
            more_without_profiler(evidence, ms),
        ],
        evidence.saving(evidence.spared_ms(ms), "idle_host"),
        SEE
        if by_threads(evidence)
        else f"{where}: move that work off the step, into another thread or process, "
        f"{'or do it less often' if evidence.on_cpu else 'do it less often, or on the GPU'}."
        f"{_compiles(evidence)}",
        sites,
        Changes(removed=frozenset({"pauses"})),
    )


def _compiles(evidence: Evidence) -> str:
    """That it may be the compiler, where the program uses it and the trace has no rows of it."""
    shown = evidence.compiler is not None and evidence.compiler.marked
    if shown or "operators" in evidence.profiled or not inductor_ms(evidence.owners):
        return ""
    return (
        " The program is compiled, and this trace does not record the compiler: "
        "`TORCH_LOGS=recompiles` says whether it compiles again there."
    )


def longest(sites: Sequence[Site], ms: float) -> list[Site]:
    """The first of the places of late launches, as many as there is time of pauses.

    What is beyond that time is no pause.
    """
    found, left = [], ms
    for site in sites:
        if left <= 0:
            break
        own = min(site.ms_per_step, left)
        found.append(replace(site, ms_per_step=round(own, 6), part=round(own / ms, 6)))
        left -= own
    return found
