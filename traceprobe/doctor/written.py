"""Checks of one input: was the file written right, and is it whole?

Some of the rules are those of PyTorch's own trace validator, over both formats where both have the
rows.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from traceprobe.doctor.check import Checks, Judgement, absent
from traceprobe.doctor.evidence import Evidence
from traceprobe.formatting import counted, duration, percent
from traceprobe.ingest.audit_rows import SYNC_KINDS
from traceprobe.ingest.plausibility import LEAST_OVERRUN_NS, OVERRUN_MEDIANS
from traceprobe.model.codes import Bools, Int64s, Kind

MANY_EARLY = 0.01
"""Part of the launched ops: fewer that start early move no share."""
MANY_LOST = 0.01
"""Part of the events of a file."""
DAY_NS = 86_400 * 1_000_000_000
NORMALISED_NS = 10**17
"""Clocks beyond it count from 1970, not from the start of the capture."""
COVERED_WARNINGS = {
    "truncated": ("truncated-file", "truncated-steps"),
    "ranges-closed": ("open-ranges", "unfinished-events"),
    "processes": ("several-processes", "no-process-ids"),
    "excerpt": ("filtered-export",),
    "graphs": ("graph-level-capture", "graph-launches-unrecorded"),
    "gpu-work": ("cpu-run", "gpu-rows-missing"),
    "kernel-causality": ("clock-offset", "clocks-disagree", "starts-before-launch"),
}
"""Check to the warnings of the reader that it is about."""


_NO_NUMBER = "No number of a report rests on it: traceprobe "
CHECKS = Checks[Evidence]()


@CHECKS.add(
    "truncated",
    tests="Whether a Kineto trace, or its gzip stream, ends before its events do. Fails then.",
    meaning="What a profiler writes last is missing: the end of the capture where the file is "
    "in order of time, whose other steps hold; but most are written thread by thread, so that "
    "kernels of the backward pass may be missing from every step, and no share holds.",
    fix="Copy the file again; let the program finish `export_chrome_trace` before it ends.",
)
def _truncated(evidence: Evidence) -> Judgement:
    if evidence.warned("truncated-file"):
        unsure = ", so that any step may lack work" if evidence.warned("truncated-steps") else ""
        return "fail", f"the file ends in the middle of its events{unsure}"
    return "ok", "the file is complete"


@CHECKS.add(
    "damaged-events",
    tests="Events that could be read only after a repair, or not at all. Fails where more "
    "than 1 % are lost, warns of fewer and of repaired ones.",
    meaning="Lost GPU ops turn into idle time: compute and communication are too low, idle "
    "and `overhead` too high. A lost launch leaves a kernel without its phase.",
    fix="Export or copy the trace again. Names with quotes or control characters, as "
    "`with_stack=True` may record, break the JSON of some versions of PyTorch.",
)
def _damaged(evidence: Evidence) -> Judgement:
    quality, trace = evidence.trace.quality, evidence.trace
    if not quality.events_lost and not quality.events_repaired:
        return "ok", "every event could be read"
    rows = len(trace.gpu_ops) + len(trace.host_calls) + len(trace.host_ranges)
    lost = quality.events_lost / (rows + quality.events_lost) if rows else 1.0
    text = f"{counted(quality.events_lost, 'event')} lost, {quality.events_repaired:,} repaired"
    return ("fail" if lost > MANY_LOST else "warn"), text


@CHECKS.add(
    "ranges-closed",
    tests="Ranges and host events without an end. Warns.",
    meaning="They are taken to run to the end of the capture: of a phase that never closed, "
    "everything launched later is attributed to it.",
    fix="Stop the profiler outside of every range, and pop each NVTX range that was pushed.",
)
def _ranges_closed(evidence: Evidence) -> Judgement:
    if evidence.warned("open-ranges", "unfinished-events"):
        return "warn", "ranges or host events have no end"
    return "ok", "every range has an end"


@CHECKS.add(
    "processes",
    tests="Whether GPU rows can be given to the process that launched them. Fails for a Kineto "
    "file merged from several processes, warns for an export without process ids.",
    meaning="Ranks are accounted as one: work of one hides idle time of the other, so compute "
    "is too high and idle too low.",
    fix="Give traceprobe the files of the ranks as they were written, not merged; export with "
    "an unmodified nsys.",
)
def _processes(evidence: Evidence) -> Judgement:
    if evidence.warned("several-processes"):
        return "fail", "several host processes, whose GPU rows cannot be told apart"
    if evidence.warned("no-process-ids"):
        return "warn", "the GPU rows have no process ids"
    count = len(evidence.part.rank_of) or len({device.pid for device in evidence.trace.devices})
    return "ok", f"{count} process{'es' if count > 1 else ''}"


@CHECKS.add(
    "impossible-durations",
    tests="GPU ops that outlast the start of the next op of their stream by more than 1 ms "
    "and 50 usual ops. Fails.",
    meaning="A stream runs one op after the other, so such an end is wrong. Kernels of that "
    "kind are set aside: their own work is missing. Others count as busy although the GPU may "
    "have been idle: communication or copies are too high.",
    fix="Record again, with the current driver and PyTorch; leave those steps out with `--steps`.",
)
def _runaways(evidence: Evidence) -> Judgement:
    """Ops that run far beyond the start of the next one on their stream."""
    if not evidence.on_gpu:
        return absent("a CPU run")
    if set_aside := evidence.trace.quality.warnings.get("impossible-durations"):
        return "fail", set_aside.rstrip(".")
    stream = ("pid", "device", "stream")
    over = (
        evidence.trace.gpu_ops.select(*stream, "t0", "t1")
        .sort(*stream, "t0")
        .with_columns(
            over=pl.col("t1") - pl.col("t0").shift(-1).over(stream),
            usual=(pl.col("t1") - pl.col("t0")).median().over(stream),
        )
        .filter(
            pl.col("over") > pl.max_horizontal(LEAST_OVERRUN_NS, OVERRUN_MEDIANS * pl.col("usual"))
        )
    )
    if not len(over):
        return "ok", "no GPU op outlasts the start of the next one by far"
    longest = over["over"].max()
    assert isinstance(longest, int)
    return "fail", (
        f"{len(over)} GPU ops run on while later ones of their stream run, by up to "
        f"{duration(longest)}"
    )


@CHECKS.add(
    "kernel-causality",
    tests="GPU ops that start before the call that launched them, beyond the resolution of "
    "the file. Fails for 1 % of the launched ops or more, and for an offset of the clocks, warns "
    "for fewer.",
    meaning="The clocks of host and GPU disagree in this file. The parts of the GPU's own time "
    "hold; the causes of its idle time are read at the wrong host times: waiting for data, "
    "synchronisation, host and latency may stand for each other, in either direction.",
    fix="Record again, with a newer profiler and driver.",
)
def _causality(evidence: Evidence) -> Judgement:
    launched = evidence.launched
    if not evidence.on_gpu or not len(launched):
        return absent("no GPU op has its launch in the file")
    offset = evidence.trace.quality.warnings.get("clock-offset")
    if offset is not None:
        return "fail", offset.rstrip(".")
    early = (launched["launch_t0"] - launched["t0"]).to_numpy()
    early = early[early > (1000 if evidence.whole_microseconds else 0)]
    if not len(early):
        return "ok", f"none of {len(launched)} GPU ops starts before its launch"
    text = (
        f"{len(early)} of {len(launched)} GPU ops start before their launch, by up to "
        f"{duration(int(early.max()))}"
    )
    return ("fail" if len(early) >= MANY_EARLY * len(launched) else "warn"), text


@CHECKS.add(
    "clock",
    tests="The resolution and the span of the time stamps. Warns of a Kineto trace in whole "
    "microseconds, fails where more than a day lies between the first and the last op.",
    meaning="Whole microseconds: kernels and gaps shorter than that are rounded, so a run of "
    "very short kernels has too much or too little idle latency. A leap of the clock puts one "
    "immense gap into an iteration.",
    fix="Record with PyTorch 2.4 or later, which writes nanoseconds; leave the steps around a "
    "leap out with `--steps`.",
)
def _clock(evidence: Evidence) -> Judgement:
    ops = evidence.trace.gpu_ops
    first, last = ops["t0"].min(), ops["t0"].max()
    assert isinstance(first, int)
    assert isinstance(last, int)
    if last - first > DAY_NS:
        return "fail", f"the first and the last op are {(last - first) / DAY_NS:.0f} days apart"
    if evidence.trace.origin.format == "kineto" and evidence.whole_microseconds:
        return "warn", "times are whole microseconds"
    if evidence.trace.origin.format == "nsys":
        since = "1970 (normalised)" if first > NORMALISED_NS else "the start of the capture"
        return "ok", f"nanoseconds since {since}"
    return "ok", "nanoseconds"


def _of_kind(evidence: Evidence, *kinds: str) -> Bools:
    chosen = np.isin(evidence.audit.syncs["kind"], [SYNC_KINDS.index(kind) for kind in kinds])
    return np.asarray(chosen, dtype=np.bool_)


@CHECKS.add(
    "wait-record-noted",
    tests="Rows of waits for events (Kineto with `enable_cuda_sync_events`): each should name "
    "the event record that it waits for. Warns.",
    meaning=_NO_NUMBER + "takes waits from the API calls. A critical path drawn from these "
    "rows misses edges.",
    fix="CUDA 12.9 and later do not tell PyTorch: record with `--backend nsys`. Before that, "
    "start the profiler before the streams are used.",
)
def _wait_noted(evidence: Evidence) -> Judgement:
    waits = _of_kind(evidence, "Stream Wait Event", "Event Sync")
    count = int(waits.sum())
    if not count:
        return absent("the file has no rows of waits for events")
    without = int((waits & (evidence.audit.syncs["record"] < 0)).sum())
    if without:
        return "warn", f"{without} of {count} waits do not say which event record they wait for"
    return "ok", f"{count} waits say which event record they wait for"


@CHECKS.add(
    "wait-record-past",
    tests="The event record that a wait names: it should be in the file, and earlier. Warns.",
    meaning=_NO_NUMBER + "takes waits from the API calls. A critical path drawn from these "
    "rows goes backward in time, or ends.",
    fix="Record with a newer PyTorch; give the profiler warm-up steps, so that the events "
    "waited for are recorded inside the capture.",
)
def _wait_past(evidence: Evidence) -> Judgement:
    syncs = evidence.audit.syncs
    waits = _of_kind(evidence, "Stream Wait Event") & (syncs["record"] >= 0)
    count = int(waits.sum())
    if not count:
        return absent("no wait names an event record")
    names = evidence.trace.names
    calls = evidence.trace.host_calls
    records = [i for i in calls["name"].unique().to_list() if "EventRecord" in names[i]]
    made = (
        calls.filter(pl.col("name").is_in(records)).group_by("correlation").agg(first=pl.min("t0"))
    )
    waited = {"at": syncs["t0"][waits], "correlation": syncs["record"][waits]}
    found = pl.DataFrame(waited).join(made, on="correlation", how="left")
    future = int((found["first"] > found["at"]).sum())
    missing = found["first"].null_count()
    if future or missing:
        return "warn", (
            f"of {count} waits {future} are for an event recorded later, {missing} for one that "
            "is not in the file"
        )
    return "ok", f"{count} waits are for events recorded before"


@CHECKS.add(
    "stream-sync-overlap",
    tests="Rows of stream synchronisations: no kernel of that stream should run at their "
    "start. Warns.",
    meaning=_NO_NUMBER + "never counts these rows as GPU work. Tools that do count them have "
    "too much busy time.",
    fix="Record with a newer PyTorch, or without `enable_cuda_sync_events`.",
)
def _sync_overlap(evidence: Evidence) -> Judgement:
    syncs = evidence.audit.syncs
    chosen = _of_kind(evidence, "Stream Sync")
    count = int(chosen.sum())
    if not count:
        return absent("the file has no rows of stream synchronisations")
    ops = evidence.trace.gpu_ops.filter(
        pl.col("kind").is_in([int(Kind.KERNEL), int(Kind.COMM)])
    ).sort("t0")
    overlapping = 0
    for device, stream in set(
        zip(syncs["device"][chosen].tolist(), syncs["stream"][chosen].tolist(), strict=True)
    ):
        of_stream = ops.filter((pl.col("device") == device) & (pl.col("stream") == stream))
        at = syncs["t0"][chosen & (syncs["device"] == device) & (syncs["stream"] == stream)]
        overlapping += _running(of_stream["t0"].to_numpy(), of_stream["t1"].to_numpy(), at)
    if overlapping:
        return "warn", f"a kernel of the stream still runs at the start of {overlapping} of {count}"
    return "ok", f"no kernel of the stream runs at the start of {count} stream synchronisations"


def _running(t0: Int64s, t1: Int64s, at: Int64s) -> int:
    """At how many of the instants some interval began before and has not ended."""
    if not len(t0):
        return 0
    last = np.searchsorted(t0, at, "left") - 1
    ends = np.maximum.accumulate(t1)
    return int(((last >= 0) & (ends[last] > at)).sum())


@CHECKS.add(
    "backward-sequence",
    tests="Nodes of the backward pass: one sequence number should belong to one operator. Warns.",
    meaning=_NO_NUMBER + "tells the backward pass by its threads. Arrows from forward to "
    "backward, in viewers and in other tools, lead to the wrong operator.",
    fix="Record with a newer PyTorch; profile one forward thread at a time.",
)
def _backward(evidence: Evidence) -> Judgement:
    rows = evidence.audit.backward
    keep = rows["sequence"] > 0
    if not keep.any():
        return absent("no node of the backward pass has a sequence number")
    table = pl.DataFrame({c: v[keep].astype(np.int64) for c, v in rows.items()})
    names = table.group_by("thread", "sequence").agg(pl.col("name").n_unique())["name"]
    shared = int((names > 1).sum())
    if shared:
        return "warn", f"{shared} of {len(names)} sequence numbers belong to several operators"
    return "ok", f"{len(names)} sequence numbers belong to one operator each"


@CHECKS.add(
    "sync-type",
    tests="The `syncType` of Nsight's synchronisations against the call of each. Captures of "
    "2020 to 2023 write wrong ones, later ones a few. Warns.",
    meaning=_NO_NUMBER + "goes by the names of the calls. Tools that go by the column take "
    "waits between streams for waits of the host.",
    fix="Nothing for traceprobe; for other tools, capture with Nsight Systems 2025 or later.",
)
def _sync_type(evidence: Evidence) -> Judgement:
    audit = evidence.audit
    if not audit.labelled:
        return absent("the file has no synchronisation rows with their calls")
    if audit.mislabelled:
        return "warn", (
            f"{audit.mislabelled} of {audit.labelled} synchronisations have the syncType of "
            f"another call ({percent(audit.mislabelled / audit.labelled)})"
        )
    return "ok", f"{audit.labelled} synchronisations have the syncType of their call"


@CHECKS.add(
    "other-warnings",
    tests="Warnings of the reader that no other check is about. Warns.",
    meaning="The report has the words of each warning, and what it touches.",
    fix="`traceprobe inspect` prints them.",
)
def _other_warnings(evidence: Evidence) -> Judgement:
    covered = {code for codes in COVERED_WARNINGS.values() for code in codes}
    others = sorted(set(evidence.trace.quality.warnings) - covered)
    if others:
        return "warn", f"the reader of the file warns of {', '.join(others)}"
    return "ok", "the reader of the file warns of nothing else"
