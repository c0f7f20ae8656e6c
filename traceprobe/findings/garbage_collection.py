"""Does Python's garbage collector stop the loop?"""

from __future__ import annotations

from traceprobe.findings.evidence import HOST_IDLE, Evidence
from traceprobe.findings.host_stalls import (
    WITHOUT_STALLS,
    collections,
    cost_ms,
    line_sites,
    more_without_profiler,
)
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.formatting import counted, duration

LESS_COLLECTING = (
    "Call `gc.freeze()` before the loop, so that what lives for the whole run is not scanned "
    "again, and keep data in arrays rather than in many Python objects. Or call `gc.disable()`, "
    "and `gc.collect()` every N steps, on all ranks in the same step."
)


@rule(
    "garbage-collection",
    title="Python's garbage collector stops the loop",
    definition="Time in garbage collections in the used iterations, by the ranges that "
    "`traceprobe profile` writes around them, or the program, with such a name; collections of the "
    "youngest objects alone are not noted. The saving is the idle time in them and after them "
    "until the host is ahead again, no more than they last, or more without a profiler, as of "
    "`allocator-stalls`. What only long iterations collect counts as part of `long-iterations`.",
    verify="Time the loop without a profiler and with `gc.disable()`.",
)
def garbage_collection(evidence: Evidence) -> Answer:
    """Collections in the steps, and the idle device because of them."""
    by_rank = [(each, rank) for rank in evidence.ranks if (each := collections(rank)) is not None]
    if not by_rank:
        if any(map(collections, evidence.whole)):
            return not_applicable("only long iterations collect: `long-iterations` counts it")
        return not_applicable("no range marks a garbage collection")
    most, rank = max(by_rank, key=lambda pair: pair[0].cost_ns / pair[1].summary.steps)
    steps, used = rank.summary.steps, rank.summary.iterations_used
    among = f" in {most.iterations} of {used} iterations" if used else ""
    ms = cost_ms(evidence, collections)
    return Answer(
        evidence.grade(evidence.share(ms)),
        [
            f"{counted(most.count, 'collection')}{among}, "
            f"{duration(most.host_ns / steps)} of the host {evidence.per}, the longest "
            f"{duration(most.longest_ns)}",
            f"{evidence.amount(ms)} of {evidence.idle} in them and until the host is ahead again",
            more_without_profiler(evidence, ms),
        ],
        evidence.saving(evidence.spared_ms(ms), *HOST_IDLE),
        LESS_COLLECTING,
        line_sites([each.lines for each, _ in by_rank], ms),
        WITHOUT_STALLS,
    )
