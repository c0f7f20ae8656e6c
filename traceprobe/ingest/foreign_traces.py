"""Traces of other tools and devices that look like ours: what they are, by what they hold.

They are refused by name, since a reader of another dialect would find operators without a GPU and
call that a run on a CPU.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from traceprobe.system import shell

READS = (
    "traceprobe reads traces of PyTorch's profiler from NVIDIA and AMD GPUs and from CPUs, and "
    "SQLite exports of Nsight Systems"
)
"""What is supported, as the end of a refusal."""
_PROFILE = (
    ", which knows neither iterations nor phases (record with torch.profiler, which has the same "
    "kernels on ROCm)"
)
_ASCEND = "a trace of Ascend NPUs, by torch_npu or MindSpore"
_XLA = "a trace of XLA's profiler (JAX, TensorFlow or a TPU)"
FOREIGN_PROCESSES = frozenset({"Ascend Hardware", "CANN", "Browser", "Renderer"})
"""Names of processes that are those of a tool or a device, whatever program runs there."""
_PROCESSES = (
    (re.compile(r"Ascend Hardware$|CANN$"), _ASCEND),
    (re.compile(r"/(host|device|job):"), _XLA),
    (re.compile(r"\d+ (CPU H(IP|SA) API|GPU\d+|COPY)$"), f"a trace of rocprof{_PROFILE}"),
    (re.compile(r"Renderer$|Browser$"), "a trace of the Chrome browser"),
)
FOREIGN_KEYS = {
    "viztracer_metadata": "a trace of VizTracer",
    "rocprofiler-sdk-tool": f"a trace of rocprofv3{_PROFILE}",
    "androidProcessDump": "a trace of Android",
}
"""Top-level keys that only other tools write, and whose they are."""
FOREIGN_CATEGORIES = {
    "mtia_ccp_events": "a trace of MTIA accelerators",
    "hpu_op": "a trace of Gaudi accelerators",
}
"""Categories that Kineto gives to the work of devices that are no GPU, and what they are."""
_FLIGHT_RECORD = "a flight-recorder dump of torch.distributed"
INSPECTOR_LOG = (
    "a log of NCCL Inspector; name it with `analyze TRACE --nccl-records`, where it tells the "
    "sizes and groups of collectives"
)
_WITHOUT_EVENTS = (
    ({"traceprobe_version"}, "a saved result of traceprobe; show it with `traceprobe render {}`"),
    (
        {"schema", "pid", "nodes"},
        "an execution trace of PyTorch or Chakra, which has no times of the GPU; record the same "
        "steps with torch.profiler (`prof.export_chrome_trace`)",
    ),
    ({"pg_config", "version"}, f"{_FLIGHT_RECORD}; `traceprobe hang` reads those of all ranks"),
    ({"resourceSpans"}, f"a trace of OpenTelemetry; {READS}"),
    ({"nodes", "samples"}, f"a CPU profile of V8; {READS}"),
    ({"profiles", "shared"}, f"a speedscope profile; {READS}"),
)
"""Top-level keys of JSON that has no events, and whose it is."""
MEMORY_TIMELINE = (
    "a memory timeline of torch.profiler, which has no kernels; name the trace of the same steps "
    "(`prof.export_chrome_trace`)"
)
"""A list of times and one of sizes."""
_HEADS = (
    (re.compile(rb'\{\s*"\$schema"\s*:\s*"https?://www\.speedscope'), "a speedscope profile"),
    (re.compile(rb'\{\s*"rocprofiler-sdk-tool"'), FOREIGN_KEYS["rocprofiler-sdk-tool"]),
    (re.compile(rb'"(Kind|Domain)","(Agent_Id|Function|Name)"'), f"a table of rocprofv3{_PROFILE}"),
    (re.compile(rb"[{\xfb][)(\xa9\xa8]"), "a profile of cProfile"),
    (
        re.compile(rb"\x80[\x02-\x05].*(device_traces|segments)", re.DOTALL),
        "a memory snapshot of PyTorch, which https://pytorch.org/memory_viz shows",
    ),
    (
        re.compile(rb"\x80[\x02-\x05].*(pg_config|pg_status|nccl_version)", re.DOTALL),
        f"{_FLIGHT_RECORD} (`traceprobe hang` reads those of all ranks)",
    ),
    (re.compile(rb"\x80[\x02-\x05]"), "a pickle, which may hold any program and is not opened"),
    (re.compile(rb"\s*<(!doctype )?html", re.IGNORECASE), "an HTML page; name the trace itself"),
    (
        re.compile(rb'\{"header":\{[^{}]*\},"metadata":\{[^{}]*"inspector_output_format_version"'),
        INSPECTOR_LOG,
    ),
    (re.compile(rb"NVR\0"), "a report of Nsight Compute"),
    (re.compile(rb"\x89PNG\r\n|\xff\xd8\xff|GIF8"), "a picture; name the trace itself"),
    (
        re.compile(rb'"?(Time \(%\)|Start \(ns\))"?,'),
        "a table of `nsys stats`; name the export that it was made of",
    ),
    (
        re.compile(rb"PK\x03\x04.{26}[^/]{1,200}/data\.pkl", re.DOTALL),
        "a file of `torch.save`, which holds tensors and no times",
    ),
    (re.compile(rb"\n.{0,300}/(host|device):(CPU|GPU|TPU|metadata)", re.DOTALL), _XLA),
)
_TABLES = (
    (re.compile(r"rocpd_"), f"a database of rocprofv3 (rocpd){_PROFILE}"),
    (re.compile(r"CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL$"), "a profile of nvprof"),
)


def of_head(head: bytes) -> str | None:
    """What a file is that begins with these bytes; None where it may be one of ours."""
    return next((what for pattern, what in _HEADS if pattern.match(head)), None)


def without_events(keys: Collection[str], name: str) -> str | None:
    """What a JSON object without trace events is, and what to do; None where it may be anything.

    Args:
        keys: its own. name: of its file, as a command in the same folder has it.
    """
    found = (what for wanted, what in _WITHOUT_EVENTS if wanted <= set(keys))
    return next((what.format(shell.file(name)) for what in found), None)


def of_chrome_trace(
    processes: Iterable[str], keys: Iterable[str], categories: Collection[str]
) -> str | None:
    """What a Chrome trace is whose processes, top-level keys and categories have these names."""
    named = set(processes)
    for pattern, what in _PROCESSES:
        if any(pattern.match(name) for name in named):
            return what
    known = (FOREIGN_KEYS[key] for key in keys if key in FOREIGN_KEYS)
    devices = (what for name, what in FOREIGN_CATEGORIES.items() if name in categories)
    return next(known, None) or next(devices, None)


def of_tables(tables: Iterable[str]) -> str | None:
    """What a SQLite database is that has these tables."""
    names = list(tables)
    found = (what for pattern, what in _TABLES if any(pattern.match(name) for name in names))
    return next(found, None)
