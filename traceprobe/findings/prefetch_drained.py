"""Did batches that lay ready hide a slow loader, at first or throughout?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence
from traceprobe.findings.rule import Answer, inconclusive, not_applicable, rule
from traceprobe.formatting import counted, duration, percent
from traceprobe.verdict.drift import Drift
from traceprobe.verdict.thresholds import FIXED

_ADVICE = (
    "Start profiling later and profile more steps, so that the loader's queue (`num_workers` times "
    "`prefetch_factor` batches) is used up before; time the run over many more steps than that. "
    "Then see `data-wait`."
)


@rule(
    "prefetch-drained",
    title="The capture begins with prefetched batches",
    definition="The data wait per iteration rises once within the capture, from little or nothing, "
    "and lengthens the step: the loader's queue of ready batches ran dry. See Loader queue for the "
    "test that it has to pass. Any rank is enough. Or it outlasted the capture, whose steps are "
    "shorter than the time in which the loader's workers make their batches; or, where nothing is "
    "known of its workers' pace, far shorter than those without a profiler.",
    verify="A longer capture of the same run begins with the same fast steps, and its step time "
    "approaches the one after them. So does the time of many steps without a profiler.",
)
def prefetch_drained(evidence: Evidence) -> Answer:
    """A data wait that begins once the queue of ready batches is empty, in the capture or after."""
    fed = evidence.made_before
    if fed is not None:
        return Answer(evidence.grade(fed.hidden), [fed.sentence, _queue(evidence)], advice=_ADVICE)
    fewest = 2 * FIXED.drift_side
    used = max((r.summary.iterations_used for r in evidence.ranks), default=0)
    if not used:
        return not_applicable("no iterations to compare")
    if not evidence.observed("idle_data_wait"):
        return not_applicable("the trace shows no step waiting for data")
    if used < fewest:
        return inconclusive(
            f"{used} used iterations, but finding a change takes {fewest}", "Profile more steps."
        )
    drift = evidence.drift
    if drift is None:
        return Answer("pass", ["no clear rise of the data wait within the capture"])
    before, after = drift.before, drift.after
    where = f" on rank {drift.rank}" if len(evidence.ranks) > 1 else ""
    return Answer(
        evidence.grade(after.share),
        [
            f"from iteration {drift.index} ({drift.label}) on, a step{where} waits "
            f"{duration(after.data_wait_ns)} for data ({percent(after.share)} of the step), "
            f"before it {duration(before.data_wait_ns)}",
            f"a step takes {duration(before.step_ns)} in the {before.iterations} iterations "
            f"before and {duration(after.step_ns)} in the {after.iterations} after",
            _throughput(evidence, drift),
            _queue(evidence),
        ],
        advice=f"The first part of the capture is faster than the run. {_ADVICE}",
    )


def _throughput(evidence: Evidence, drift: Drift) -> str:
    """Samples per second of the run, where the capture knows how many a step has."""
    samples = (evidence.workload or {}).get("samples_per_step")
    if not isinstance(samples, (int, float)) or samples <= 0:
        return ""
    before, after = (1e9 * samples / side.step_ns for side in (drift.before, drift.after))
    return f"{before:.1f} samples/s before, {after:.1f} after"


def _queue(evidence: Evidence) -> str:
    """How many batches can lie ready, where the capture knows the loader."""
    loader = evidence.loader
    if loader is None or not loader.workers or not loader.prefetch_factor:
        return ""
    ready = counted(loader.workers * loader.prefetch_factor, "batch", "batches")
    return (
        f"{ready} can be ready ahead: {counted(loader.workers, 'worker')} with "
        f"`prefetch_factor={loader.prefetch_factor}`"
    )
