"""Checks of one input: is in it what a verdict rests on?"""

from __future__ import annotations

import re

from traceprobe.doctor.check import Checks, Judgement, absent
from traceprobe.doctor.evidence import THRESHOLDS, Evidence
from traceprobe.formatting import counted, percent
from traceprobe.timeline import phases
from traceprobe.verdict.compared_steps import HEAVY
from traceprobe.verdict.thresholds import FIXED

MOST_LINKED = 0.99
_SERIOUS = (
    (re.compile(r"driver version .* not supported", re.I), "nsys does not know the driver"),
    (re.compile(r"\b(dropped|lost|overflow)", re.I), "events were dropped"),
    (re.compile(r"CUPTI_ERROR"), "CUPTI reported an error"),
)
_PERHAPS = re.compile(r"Not all CUDA events", re.IGNORECASE)
"""Said of every capture that ends before the program does; it matters where work is gone."""


CHECKS = Checks[Evidence]()


@CHECKS.add(
    "gpu-work",
    tests="Whether GPU work is in the file. Warns where the report would describe a CPU run.",
    meaning="Every share is that of the CPU threads. Nothing is said of a GPU.",
    fix="If the run used a GPU: profile with `ProfilerActivity.CUDA`, and let `traceprobe "
    "doctor` without an input look at the machine.",
)
def _gpu_work(evidence: Evidence) -> Judgement:
    if not evidence.on_gpu:
        return "warn", "no GPU work: the report describes the CPU threads of the process"
    devices = len(evidence.trace.devices)
    return "ok", f"{evidence.part.gpu_ops} GPU ops on {devices} device{'s' if devices > 1 else ''}"


@CHECKS.add(
    "api-rows",
    tests="Whether the calls of the CUDA or HIP API are in the file. Fails where none is.",
    meaning="Idle time cannot be explained and phases cannot be determined: `idle_unexplained` and "
    "`unattributed` hold what belongs to `io`, `overhead` and the phases.",
    fix="Record the CPU too: `activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`, "
    "`nsys profile --trace=cuda,nvtx`.",
)
def _api_rows(evidence: Evidence) -> Judgement:
    if not evidence.on_gpu:
        return absent("a CPU run launches nothing")
    count = len(evidence.trace.host_calls)
    if not count:
        return "fail", "the file has no calls of the CUDA or HIP API"
    return "ok", f"{counted(count, 'call')} of the GPU's API"


@CHECKS.add(
    "launches-linked",
    tests="GPU ops of the iterations that count whose launch is in the file. Warns below "
    "99 %, fails below 90 %.",
    meaning="Without its launch a kernel has no phase and no iteration, and the gap before it "
    "no cause: `unattributed` is too high, the phases and the causes of idle time too low.",
    fix="Start the profiler when the GPU is idle (`torch.cuda.synchronize()`), with a warm-up "
    "step; export all of an Nsight report.",
)
def _linked(evidence: Evidence) -> Judgement:
    if not evidence.on_gpu:
        return absent("a CPU run launches nothing")
    linked = evidence.trace.gpu_ops["linked"].to_numpy()[evidence.summarised]
    if not len(linked):
        return absent("no GPU op lies in an iteration that counts")
    share = float(linked.mean())
    text = f"{int(linked.sum())} of {len(linked)} GPU ops have their launch in the file"
    if share >= MOST_LINKED:
        return "ok", text
    return ("fail" if share < THRESHOLDS.coverage else "warn"), text


@CHECKS.add(
    "coverage",
    tests="Launches of the iterations that count with a GPU row, and iterations before the "
    "last with less than 99 %. Warns of such iterations, fails where the launches that count "
    "have less than 90 %; without steps it only warns.",
    meaning="The capture lost GPU work. What is lost looks like idle time, so such iterations "
    "are left out; below 90 % no verdict is given.",
    fix="Synchronise before the profiler stops, capture fewer steps, and nothing beside what "
    "is needed.",
)
def _coverage(evidence: Evidence) -> Judgement:
    known = [r.summary.coverage for r in evidence.records if r.summary.coverage is not None]
    if not evidence.on_gpu or not known:
        return absent("no launch is in the file")
    lowest, cut = min(known), _cut(evidence)
    text = f"{percent(lowest)} of the launches that count have a GPU row"
    if cut:
        text += f"; {counted(cut, 'iteration was', 'iterations were')} cut and left out"
    if lowest >= THRESHOLDS.coverage:
        return ("warn" if cut else "ok"), text
    # Of a whole capture nothing is known of its borders, so there it costs confidence only.
    steps = any(record.step_marker is not None for record in evidence.records)
    return ("fail" if steps else "warn"), text


def _cut(evidence: Evidence) -> int:
    """Iterations that lost GPU rows; the last one has no end and is left out in any case."""
    return sum(
        iteration.coverage is not None and iteration.coverage < FIXED.iteration_coverage
        for record in evidence.records
        for iteration in record.iterations[:-1]
    )


@CHECKS.add(
    "records-dropped",
    tests="Kineto's own record counts, which some builds write: whether CUPTI stopped early. "
    "Fails then.",
    meaning="GPU rows are missing from some moment on: compute and communication are too low, "
    "idle too high.",
    fix="Capture fewer steps; raise Kineto's limit (`KINETO_CONFIG` with "
    "`ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB`).",
)
def _dropped(evidence: Evidence) -> Judgement:
    audit = evidence.audit
    if audit.stopped_early is None:
        return absent("the file has no record counts of Kineto")
    if audit.stopped_early:
        return "fail", "CUPTI stopped early, for lack of buffers"
    return "ok", f"CUPTI did not stop early; {audit.out_of_range} records lay outside the window"


@CHECKS.add(
    "nsys-diagnostics",
    tests="What Nsight Systems noted of the capture: an unknown driver, errors of CUPTI, "
    "dropped events; and that events may be missing, where iterations lack GPU rows. Warns.",
    meaning="GPU rows may be missing: compute and communication are too low, idle too high.",
    fix="Use an nsys that is as new as the driver. The diagnostics of the report in Nsight "
    "Systems have the whole text.",
)
def _diagnostics(evidence: Evidence) -> Judgement:
    if evidence.trace.origin.format != "nsys":
        return absent("only Nsight Systems writes diagnostics")
    messages = evidence.audit.diagnostics
    texts = [text for _, text in messages]
    losses = [words for pattern, words in _SERIOUS if any(map(pattern.search, texts))]
    if any(map(_PERHAPS.search, texts)) and _cut(evidence):
        losses.append("perhaps not all CUDA events were collected, and iterations lack GPU rows")
    if losses:
        return "warn", "; ".join(losses)
    return "ok", f"{len(messages)} messages, none of lost GPU work" if messages else "no messages"


@CHECKS.add(
    "excerpt",
    tests="Whether an Nsight export was limited in time. Warns.",
    meaning="Work at the borders has lost its launch, or its GPU row: iterations there are "
    "left out, and their kernels have no phase.",
    fix="Export the whole report: `nsys export --type sqlite`.",
)
def _excerpt(evidence: Evidence) -> Judgement:
    if evidence.warned("filtered-export"):
        return "warn", "the export is an excerpt in time"
    return "ok", "not an excerpt of a longer export"


@CHECKS.add(
    "graphs",
    tests="How CUDA graphs were captured. Warns of whole replays, fails where launches of "
    "graphs have no GPU row at all.",
    meaning="A whole replay counts as busy, also where the GPU idles inside it, and has no "
    "phases: compute is too high, idle too low. Without a row the GPU looks idle while it "
    "works.",
    fix="Capture with `--cuda-graph-trace=node`; export with nsys 2024 or later.",
)
def _graphs(evidence: Evidence) -> Judgement:
    if evidence.warned("graph-launches-unrecorded"):
        return "fail", "launches of CUDA graphs have no GPU row"
    if evidence.warned("graph-level-capture"):
        return "warn", "CUDA graphs were captured as whole replays"
    if not evidence.trace.gpu_ops["graph"].any():
        return absent("no CUDA graphs")
    return "ok", "the kernels of CUDA graphs are in the file"


@CHECKS.add(
    "phases",
    tests="Kernel time with a known phase. Warns below 98 %.",
    meaning="Bounds hold, but `unattributed` has what belongs to forward, backward or "
    "optimizer, and the confidence is lower.",
    fix='Annotate the phases (`record_function("forward")`, NVTX), or name your ranges with '
    "`--phase NAME=REGEX`.",
)
def _phases(evidence: Evidence) -> Judgement:
    known = [r.summary.attributed_share for r in evidence.records]
    shares = [share for share in known if share is not None]
    if not shares:
        return absent("no kernels")
    lowest = min(shares)
    text = f"the phase of {percent(lowest)} of the kernel time is known"
    return ("ok" if lowest >= FIXED.attributed else "warn"), text


@CHECKS.add(
    "data-ranges",
    tests="Whether ranges mark the loading of data. Warns where none does and the GPU waits "
    "for the host for 5 % of the time or more.",
    meaning="Waiting for data is recognised only where the step thread is outside of every range "
    "and call; the rest counts as host overhead: `io` may be too low, `overhead` too high.",
    fix='Wrap the loader: `record_function("data_load")`, an NVTX range, or '
    "`--phase data=REGEX` for ranges that exist.",
)
def _data_ranges(evidence: Evidence) -> Judgement:
    trace = evidence.trace
    marks = phases.phase_ranges(trace.host_ranges, trace.names, phases.compile_phase_names({}))
    if marks.select("data").any():
        return "ok", "ranges mark the loading of data"
    window = sum(r.summary.window_ns for r in evidence.records)
    late = sum(
        r.summary.partition_ns[cause] or 0
        for r in evidence.records
        for cause in ("idle_host", "idle_sync", "idle_data_wait", "idle_unexplained")
    )
    share = late / window if window else 0.0
    if share < THRESHOLDS.notable:
        return "ok", (
            "no range marks loading, but the device waits for the host only "
            f"{percent(share)} of the time"
        )
    return (
        "warn",
        f"no range marks loading, and the device waits for the host {percent(share)} of the time",
    )


@CHECKS.add(
    "collective-metadata",
    tests="PyTorch's notes of collectives (`record_param_comms`): name, type, both sizes and "
    "group size. Warns where one lacks any.",
    meaning="Sizes, bytes per step and bandwidths of those collectives are unknown. Times hold.",
    fix="Record with PyTorch 2.2 or later.",
)
def _collective_metadata(evidence: Evidence) -> Judgement:
    audit = evidence.audit
    if not audit.collectives:
        return absent("PyTorch noted no collectives")
    if audit.incomplete:
        return "warn", f"{audit.incomplete} of {audit.collectives} notes of collectives lack fields"
    return "ok", f"{audit.collectives} notes of collectives are complete"


@CHECKS.add(
    "collective-sizes",
    tests="Whether each collective that ran has a message size and a group. Warns where not.",
    meaning="Bytes per step and bandwidths are unknown. Times and shares hold.",
    fix="Kineto: PyTorch 2.2 or later. Nsight: `nsys export --include-blobs=true`.",
)
def _collective_sizes(evidence: Evidence) -> Judgement:
    summaries = [r.summary.communication for r in evidence.records]
    known = [c for c in summaries if c is not None]
    if not evidence.collectives or not known:
        return absent("no communication")
    why = next((c.sizes for c in known if c.sizes is not None), None)
    if why is None:
        return "ok", f"sizes and groups of {evidence.collectives} collectives are known"
    return "warn", why.rstrip(".")


@CHECKS.add(
    "nccl-ranges",
    tests="NCCL's own NVTX ranges, in an Nsight export with collectives. Warns without.",
    meaning="The operation is known by the kernel's name only, and process groups cannot be "
    "told apart: collectives of several groups may be matched wrongly between ranks.",
    fix="Trace NVTX too (`nsys profile --trace=cuda,nvtx`), without a domain filter.",
)
def _nccl_ranges(evidence: Evidence) -> Judgement:
    trace = evidence.trace
    if trace.origin.format != "nsys" or not evidence.collectives:
        return absent("only for Nsight exports with communication")
    ids = trace.host_ranges["name"].unique().to_list()
    count = sum(trace.names[i].startswith("nccl") for i in ids)
    if not count:
        return "warn", f"{evidence.collectives:,} collectives, and no NVTX range of NCCL"
    return "ok", "NCCL's own NVTX ranges are in the file"


@CHECKS.add(
    "rank-noted",
    tests="Whether each process of a distributed run says which rank it is. Warns where not.",
    meaning="Ranks are numbered by file name, else by position: a straggler may be given the "
    "wrong number. Times hold.",
    fix="Start the profiler after `init_process_group` (Kineto); write the rank into the file "
    "name; profile each rank by itself, with RANK in its environment (Nsight).",
)
def _rank_noted(evidence: Evidence) -> Judgement:
    world = evidence.trace.metadata.get("world_size") or 1
    if not evidence.collectives and world < 2:
        return absent("nothing shows several ranks")
    pids = {device.pid for device in evidence.trace.devices}
    without = len(pids - set(evidence.part.rank_of))
    if without:
        return "warn", f"{without} of {len(pids)} processes do not say which rank they are"
    return "ok", f"rank {', '.join(str(r) for r in sorted(evidence.part.rank_of.values()))}"


@CHECKS.add(
    "profiler-options",
    tests="Whether call stacks or memory were recorded. Warns then.",
    meaning="Both slow the host: idle time and `overhead` are too high, by up to several times "
    "the step.",
    fix="Record without `with_stack` and `profile_memory`; where the step time without a profiler "
    "is not known, tell it with `--unprofiled-step-ms`.",
)
def _options(evidence: Evidence) -> Judgement:
    marks = evidence.trace.profiled
    extra = sorted(marks & HEAVY - {"operators"})
    if extra:
        return "warn", f"the profiler recorded {', '.join(extra)}"
    return "ok", f"recorded besides the GPU: {', '.join(sorted(marks)) or 'nothing heavy'}"
