"""How much of the capture could be used?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import Answer, not_applicable, rule
from traceprobe.model.accounting import SKIPPED_AS_BEGUN, SKIPPED_AS_EMPTY, SKIPPED_AS_LONG
from traceprobe.records.rank import Iteration
from traceprobe.verdict.no_training import gpu_rows_missing

_ADVICE = {
    "capture cut": "Synchronise before the profiler stops.",
    SKIPPED_AS_BEGUN: "Synchronise before the profiler starts.",
    "warm-up": "Let the program warm up before it is recorded "
    "(`schedule(wait=1, warmup=2, active=6)`).",
    SKIPPED_AS_EMPTY: "Name the ranges that are steps, if these are none (`--step`).",
}
"""By the reason that it mends. What `--steps` leaves out is chosen; speeds have another finding."""


@rule(
    "unused-iterations",
    title="Iterations are left out",
    definition="Iterations left out of the summary, and why. The last one of every rank has no end "
    "and is expected to be missing, and one in which nothing happens before the capture ends is "
    "none.",
    verify="`iterations[].skip_reason` names the reason of each. A new capture leaves out the last "
    "one only.",
    of_capture=True,
)
def unused_iterations(evidence: Evidence) -> Answer:
    """Iterations left out beyond the last one, which never has an end."""
    iterations = [i for rank in evidence.ranks for i in _begun(rank.iterations)]
    if not iterations:
        return not_applicable(
            "no step marker: the whole capture is one window",
            "Call `prof.step()` each iteration, or annotate steps and name them with `--step`.",
        )
    if all(map(gpu_rows_missing, evidence.ranks)):
        return not_applicable("the capture has no rows of the GPU's work")
    # Those that do more than the others count in the verdict, or it names them.
    long = SKIPPED_AS_LONG
    skipped = [i for i in iterations if not i.used and not (i.skip_reason or "").startswith(long)]
    reasons = Counter((i.skip_reason or "unknown").split(":")[0] for i in skipped)
    mended = [_ADVICE[reason] for reason in sorted(reasons) if reason in _ADVICE]
    warned = mended and len(skipped) > len(evidence.ranks)
    return Answer(
        "warn" if warned else "pass",
        [
            f"{len(iterations) - len(skipped)} of {len(iterations)} iterations are used",
            *(f"{count} left out: {reason}" for reason, count in sorted(reasons.items())),
        ],
        advice=" ".join(mended) if warned else "",
    )


def _begun(iterations: Sequence[Iteration]) -> Sequence[Iteration]:
    """The end of a step opens the next one, of which the capture may hold nothing: that is none."""
    if iterations and iterations[-1].skip_reason == SKIPPED_AS_EMPTY:
        return iterations[:-1]
    return iterations
