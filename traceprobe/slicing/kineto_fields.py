"""What of a Kineto trace is passed on: its metadata, and the fields and arguments of events.

Names of work stay: kernels, operators and ranges. Of other texts those do whose words are known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from traceprobe.ingest.foreign_traces import FOREIGN_PROCESSES
from traceprobe.ingest.kineto.categories import CALLS, GPU, OPERATORS, OVERHEAD, RANGES, STACKS
from traceprobe.ingest.kineto.hardware_counters import CATEGORY as SAMPLED
from traceprobe.ingest.kineto.kernel_counters import CATEGORY as COUNTED
from traceprobe.ingest.kineto.sync_notes import SYNC_NOTES
from traceprobe.ingest.untrusted_values import tool_version
from traceprobe.model.annotation import ADDED
from traceprobe.slicing.public_values import is_public_thread, public_record
from traceprobe.vocabulary import digest, told

EVENT_FIELDS = ("ph", "cat", "name", "ts", "dur", "pid", "tid", "id", "bp", "s")
LEFT_OUT = (ADDED, SAMPLED, COUNTED)
"""Categories of events that are no part of a copy: what was added, and counters of the hardware,
whose names are arguments."""
METADATA_EVENTS = (
    *("process_name", "process_labels", "process_sort_index"),
    *("thread_name", "thread_sort_index"),
)
"""A tuple, as is what else is asked for values of any type: sets refuse lists and objects."""
PUBLIC_ARGUMENTS = frozenset(
    {
        *("External id", "external id", "Ev Idx", "Record function id", "correlation", "cbid"),
        *("Python parent id", "Python id", "Python module id", "Input Dims", "Input type"),
        *("Input Strides", "Sequence number", "Fwd thread id", "stream", "device", "context"),
        *("grid", "block", "shared memory", "queued", "registers per thread", "blocks per SM"),
        *("warps per SM", "est. achieved occupancy %", "graph id", "graph node id", "kind", "cid"),
        *("Total Reserved", "Total Allocated", "Bytes", "Addr", "Device Id", "Device Type"),
        *("bytes", "memory bandwidth (GB/s)", "fromDevice", "inDevice", "toDevice"),
        *("In msg nelems", "Out msg nelems", "In split size", "Out split size", "Group size"),
        *("dtype", "Collective name", "Process Group Name", "Process Group Ranks", "Rank", "Seq"),
        *("Global rank start", "Global rank stride", "Src Rank", "Dst Rank", "Op count"),
        *("Comms Id", "Process Group ID", "cuda_sync_kind", "wait_on_stream", "sort_index"),
        *("wait_on_cuda_event_id", "wait_on_cuda_event_record_corr_id", "kernel_backend"),
        *("event_id", "num_warps", "num_stages", "src", "dst", "copy kind", "src kind", "dst kind"),
    }
)
"""Arguments of events that hold numbers, shapes and kinds."""
_DEVICE = frozenset(
    {
        *("id", "name", "totalGlobalMem", "computeMajor", "computeMinor", "maxThreadsPerBlock"),
        *("maxThreadsPerMultiprocessor", "regsPerBlock", "warpSize", "sharedMemPerBlock"),
        *("numSms", "regsPerMultiprocessor", "sharedMemPerBlockOptin"),
        *("sharedMemPerMultiprocessor", "maxThreadsPerMultiProcessor"),
    }
)
_BACKENDS = ("nccl", "gloo", "mpi", "ucc", "cpu:gloo,cuda:nccl")
_CODES = frozenset(
    {
        *("X", "B", "E", "i", "I", "M", "s", "t", "f", "b", "e", "n", "C", "ac2g", "fwdbwd"),
        *("async_cpu_to_gpu", "async_gpu", "cuda_sync", "cuda_event", "HtoD", "DtoH", "DtoD"),
        *("PtoP", "HtoH", "_allgather_base", "_reduce_scatter_base", "all_to_allv", "allreduce"),
        *("allreduce_coalesced", "allgather", "allgather_coalesced", "reduce_scatter"),
        *(
            "all_to_all",
            "reduce_scatter_tensor_coalesced",
            "allgather_into_tensor_coalesced",
            "broadcast",
        ),
        *("reduce", "gather", "scatter", "send", "recv", "barrier", "wait", "init", "triton"),
    }
)
"""Phases and categories of events, directions of copies, operations: short texts of PyTorch's."""
_LABEL = re.compile(r"CPU|GPU \d{1,9}")
_FOLDER = re.compile(r"^.*[/\\](?=[^/\\]*\(\d+\))", re.DOTALL)
_SEPARATOR = re.compile(r"[/\\]")
WORK_CATEGORIES = frozenset(
    {*GPU, *CALLS, *SYNC_NOTES, *OPERATORS, *RANGES, *OVERHEAD, "gpu_user_annotation"}
)
"""Categories of events whose names are those of kernels, calls, operators and ranges."""
# Numbers, addresses and lists of them.
_NUMBERS = re.compile(
    r"[\s,\[\]()]*([-+]?\d{1,20}(\.\d{1,20})?(e[-+]?\d{1,3})?(?=[\s,\[\]()]|\Z)[\s,\[\]()]*)*"
    r"|0x[0-9a-fA-F]{1,16}"
)
_TYPES = re.compile(
    r"(c10::)?(BFloat16|Half|Float8_e\dm\d(fnu?z?)?|complex<(float|double|c10::Half)>)"
    r"|(unsigned |signed )?(char|short( int)?|int|long( int| long( int)?)?)|bfloat16"
    r"|(u?int|float)(8|16|32|64)|float8_e\dm\d(fnu?z?)?|Scalar(List)?|TensorList|GenericList"
)
"""Types of elements, as PyTorch and its compilers write them."""


def _number(value: Any) -> Any:
    return value if isinstance(value, (int, float)) else None


def _version(value: Any) -> Any:
    return value if tool_version(value) is not None else None


def _devices(value: Any) -> Any:
    """Devices by what a reader may know of them, their names among it."""
    return [
        {k: v if k == "name" else _number(v) for k, v in device.items() if k in _DEVICE}
        for device in (value if isinstance(value, list) else [])
        if isinstance(device, dict) and isinstance(device.get("name", ""), str)
    ]


def _distributed(value: Any) -> Any:
    """Of a process group: who is in it, not what it is called."""
    if not isinstance(value, dict):
        return {}
    kept = {key: _number(value[key]) for key in ("rank", "world_size", "pg_count") if key in value}
    if value.get("backend") in _BACKENDS:
        kept["backend"] = value["backend"]
    if _version(value.get("nccl_version")) is not None:
        kept["nccl_version"] = value["nccl_version"]
    return kept


_METADATA: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("schemaVersion", "baseTimeNanoseconds"), _number),
    **dict.fromkeys(("record_shapes", "with_stack", "profile_memory", "with_flops"), _number),
    "with_modules": _number,
    **dict.fromkeys(("cupti_version", "cuda_runtime_version", "cuda_driver_version"), _version),
    **dict.fromkeys(("hip_runtime_version", "hip_driver_version", "roctracer_version"), _version),
    "displayTimeUnit": lambda unit: unit if unit in ("ms", "ns") else None,
    "deviceProperties": _devices,
    "distributedInfo": _distributed,
    "traceprobe": public_record,
}
"""Keys beside the events, and what of their values is passed on."""


def public_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of the metadata of a trace, in known words."""
    return {key: _METADATA[key](value) for key, value in metadata.items() if key in _METADATA}


def public_event(event: Mapping[str, Any]) -> dict[str, Any]:
    """An event with known fields and arguments, and without the folders of source files."""
    kept = {key: _field(event[key]) for key in EVENT_FIELDS if key in event}
    named = event.get("name")
    if isinstance(named, str):
        kept["name"] = _name(named, event.get("cat"), event.get("ph"))
    arguments = event.get("args")
    if isinstance(arguments, dict):
        kept["args"] = {k: _argument(v) for k, v in arguments.items() if k in PUBLIC_ARGUMENTS}
        if event.get("ph") == "M":
            kept["args"] |= _named(named, arguments)
    return kept


def _name(name: str, category: Any, phase: Any) -> str:
    """The name of an event: of work as it is, of a frame without its folder, else known words."""
    if category in STACKS:
        frame = _FOLDER.sub("", name)
        return digest(name) if _SEPARATOR.search(frame) else frame
    uncategorised = category is None and phase != "M"  # calls, kernels and ranges of old PyTorch
    work = isinstance(category, str) and category in WORK_CATEGORIES
    known = name in METADATA_EVENTS or _is_known(name)
    return name if uncategorised or work or known else digest(name)


def _field(value: Any) -> Any:
    """Another field of an event: numbers, and texts as they tell events apart."""
    if not isinstance(value, str):
        return _number(value)
    return value if _is_known(value) else digest(value)


def _argument(value: Any) -> Any:
    """Numbers, shapes, and texts that are of a known kind."""
    if isinstance(value, (list, tuple)):
        return [_argument(item) for item in value]
    if isinstance(value, str):
        return value if _TYPES.fullmatch(value) or _is_known(value) else digest(value)
    return _number(value)


def _is_known(text: str) -> bool:
    return text in _CODES or _NUMBERS.fullmatch(text) is not None or told(text) == text


def _named(what: Any, arguments: Mapping[str, Any]) -> dict[str, str]:
    """What a metadata event names: threads of libraries keep their names, processes lose theirs."""
    label, name = (str(arguments.get(key, "")) for key in ("labels", "name"))
    if what == "process_name":  # those that tell whose trace it is are no program's
        return {"name": name if name in FOREIGN_PROCESSES else "python"}
    if what == "process_labels" and _LABEL.fullmatch(label):
        return {"labels": label}
    return {"name": name} if what == "thread_name" and is_public_thread(name) else {}
