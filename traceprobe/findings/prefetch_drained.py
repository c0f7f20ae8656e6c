"""Did batches that lay ready hide a slow loader at first?"""

from __future__ import annotations

from traceprobe.findings.evidence import Evidence, lines, unanswered
from traceprobe.records.report import Finding
from traceprobe.verdict import drift

ID = "prefetch-drained"
RULE = (
    "The data wait per iteration rises once within the capture, from little or nothing, and "
    "lengthens the step: the loader's queue of ready batches ran dry. See Loader queue for the "
    "test that it has to pass. Any rank is enough."
)
VERIFY = (
    "A longer capture of the same run begins with the same fast steps, and its step time "
    "approaches the one after them. So does the time of many steps without a profiler."
)
ADVICE = (
    "The first part of the capture is faster than the run. Start profiling later and profile "
    "more steps, so that the loader's queue (`num_workers` times `prefetch_factor` batches) is "
    "used up before; time the run over many more steps than that. Then see `data-wait`."
)


def check(evidence: Evidence) -> Finding:
    """A data wait that begins within the capture, once the queue of ready batches is empty."""
    title = "The capture begins with batches that were ready"
    fewest = 2 * drift.FEWEST
    used = max((r.summary.iterations_used for r in evidence.ranks), default=0)
    if not used or not evidence.observed("idle_data_wait"):
        why = "the trace shows no step waiting for data" if used else "no iterations to compare"
        return unanswered(ID, "not-applicable", title, why)
    if used < fewest:
        return unanswered(
            ID,
            "inconclusive",
            title,
            f"{used} used iterations; to find a change takes {fewest}",
            "Profile more steps.",
        )
    found = evidence.drift
    if found is None:
        return Finding(
            id=ID,
            status="pass",
            title=title,
            saving_ms_per_step=None,
            evidence=["no clear rise of the data wait within the capture"],
            advice="",
        )
    before, after = found.before, found.after
    where = f" on rank {found.rank}" if len(evidence.ranks) > 1 else ""
    return Finding(
        id=ID,
        status=evidence.grade(after.share),
        title=title,
        saving_ms_per_step=None,
        evidence=lines(
            f"from iteration {found.index} ({found.label}) on{where} a step waits for data: "
            f"{before.data_wait_ns / 1e6:.2f} ms before, {after.data_wait_ns / 1e6:.2f} ms "
            f"({after.share:.1%} of the step) after",
            f"the step has {before.step_ns / 1e6:.2f} ms in the {before.iterations} iterations "
            f"before, {after.step_ns / 1e6:.2f} ms in the {after.iterations} after",
            _throughput(evidence, found),
        ),
        advice=ADVICE,
    )


def _throughput(evidence: Evidence, found: drift.Drift) -> str:
    """Samples per second of the run, where the capture knows how many a step has."""
    samples = (evidence.workload or {}).get("samples_per_step")
    if not isinstance(samples, (int, float)) or samples <= 0:
        return ""
    before, after = (1e9 * samples / part.step_ns for part in (found.before, found.after))
    return f"{before:.1f} samples/s before, {after:.1f} after"
