"""What of an Nsight Systems export is passed on: its tables and columns, and what texts say.

Numbers are passed on from these columns as they are; texts from those that `text` knows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

import msgspec

from traceprobe.ingest.nsight.gpu_metrics import is_known
from traceprobe.slicing.public_values import is_public_thread, public_record
from traceprobe.vocabulary import quoted, told

Value = str | bool | None
_ON_DEVICE = (
    "start end deviceId contextId greenContextId streamId correlationId globalPid graphNodeId "
)
_NVTX = (
    "eventId start end eventType rangeId category color text globalTid endGlobalTid textId "
    "domainId uint64Value int64Value doubleValue uint32Value int32Value floatValue jsonText "
    "binaryData"
)
_OVERHEAD = "start end eventClass globalTid correlationId nameId returnValue overheadType"
_PARAMETERS, _CODES = "name value", "id name label"
_CONTEXT = "hwId vmId processId deviceId contextId"
COUNTERS = "TARGET_INFO_GPU_METRICS"
"""Names of sampled counters; unknown ones stay behind."""
COLUMNS: Mapping[str, frozenset[str]] = {
    table: frozenset(columns.split())
    for table, columns in {
        "CUPTI_ACTIVITY_KIND_KERNEL": _ON_DEVICE
        + "demangledName shortName mangledName launchType cacheConfig registersPerThread gridX "
        "gridY gridZ blockX blockY blockZ clusterX clusterY clusterZ staticSharedMemory "
        "dynamicSharedMemory localMemoryPerThread localMemoryTotal gridId sharedMemoryExecuted "
        "sharedMemoryLimitConfig graphId",
        "CUPTI_ACTIVITY_KIND_MEMCPY": _ON_DEVICE
        + "bytes copyKind deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId "
        "dstContextId migrationCause virtualAddress copyCount",
        "CUPTI_ACTIVITY_KIND_MEMSET": _ON_DEVICE + "value bytes memKind",
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": _ON_DEVICE + "graphId graphExecId",
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": _ON_DEVICE
        + "deprecatedSyncType syncType eventId eventSyncId",
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT": _ON_DEVICE + "timestamp eventId eventSyncId",
        "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId "
        "returnValue",
        "CUPTI_ACTIVITY_KIND_OVERHEAD": _OVERHEAD,
        "PROFILER_OVERHEAD": _OVERHEAD,
        "CUDA_GRAPH_EVENTS": "start end eventClass globalTid nameId graphId originalGraphId "
        "graphExecId",
        "NVTX_EVENTS": _NVTX,
        "NVTXT_EVENTS": _NVTX,
        "NVTX_PAYLOAD_SCHEMAS": "domainId schemaId type flags numEntries payloadSize alignTo",
        "NVTX_PAYLOAD_SCHEMA_ENTRIES": "domainId schemaId idx flags type name offset "
        "arrayOrUnionDetail",
        "NVTX_PAYLOAD_ENUMS": "domainId schemaId numEntries size",
        "NVTX_PAYLOAD_ENUM_ENTRIES": "domainId schemaId idx name value isFlag",
        "TARGET_INFO_GPU": "vmId id name cuDevice totalMemory smCount smMajor smMinor "
        "computeMajor computeMinor threadsPerWarp clockRate memoryBandwidth l2CacheSize "
        "constantMemory asyncEngines isDiscrete maxBlocksPerSm maxRegistersPerBlock "
        "maxRegistersPerSm maxShmemPerBlock maxShmemPerBlockOptin maxShmemPerSm "
        "maxThreadsPerBlock maxWarpsPerSm busLocation chipName",
        "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId pid numMultiprocessors",
        "TARGET_INFO_CUDA_CONTEXT_INFO": f"nullStreamId {_CONTEXT} parentContextId isGreenContext "
        "numMultiprocessors",
        "TARGET_INFO_CUDA_NULL_STREAM": f"streamId {_CONTEXT}",
        "TARGET_INFO_CUDA_STREAM": f"streamId {_CONTEXT} priority flag",
        "TARGET_INFO_SESSION_START_TIME": "utcEpochNs systemClockNs",
        "ANALYSIS_DETAILS": "globalVid duration startTime stopTime",
        "PROCESSES": "globalPid pid name",
        "ThreadNames": "nameId priority globalTid",
        "DIAGNOSTIC_EVENT": "timestamp timestampType source severity text globalPid",
        "META_DATA_EXPORT": _PARAMETERS,
        "EXPORT_META_DATA": _PARAMETERS,
        "ENUM_CUDA_MEMCPY_OPER": _CODES,
        "ENUM_CUDA_MEM_KIND": _CODES,
        "ENUM_CUDA_KERNEL_LAUNCH_TYPE": _CODES,
        "ENUM_CUPTI_STREAM_TYPE": _CODES,
        "ENUM_CUPTI_SYNC_TYPE": _CODES,
        "ENUM_DIAGNOSTIC_SEVERITY_LEVEL": _CODES,
        "ENUM_NSYS_EVENT_CLASS": _CODES,
        "ENUM_NSYS_EVENT_TYPE": _CODES,
        "GPU_METRICS": "timestamp typeId metricId value",
        COUNTERS: "typeId sourceId metricId metricName",
        "traceprobe": "rank json",
    }.items()
}
"""Columns by table; those of the reader, and what viewers show beside them."""
STRINGS = frozenset({"nameId", "textId", "demangledName", "shortName", "mangledName"})
"""Columns that hold the id of a string."""
_LIBRARIES = "nccl*"
"""Whose payloads of ranges stay: they are numbers by a known layout."""
# Not every parameter of the export: some hold the names of its files.
_PUBLIC_PARAMETER = re.compile(
    r"EXPORT_(PRODUCT|SCHEMA|PLATFORM|ARCH)\w*|EXPORT_(PARAM|CONFIG)_(TIME|TABLES|LAZY)\w*"
)
_CLEAR = {
    *(("META_DATA_EXPORT", "value"), ("EXPORT_META_DATA", "value")),
    *(("NVTX_PAYLOAD_SCHEMA_ENTRIES", "name"), ("NVTX_PAYLOAD_ENUM_ENTRIES", "name")),
}
"""Columns whose texts are passed on if all their words are known."""
_THREAD_NAME = 39
"""Type of an NVTX event that names a thread."""


def public_text(table: str, column: str, present: list[str]) -> str | None:
    """SQL expression of the text in a column of a row `t`; None where none is passed on.

    Args:
        present: the columns of the table.
    """
    value = f't."{column}"'
    if table.startswith(("NVTX_EVENTS", "NVTXT_EVENTS")):
        if column == "binaryData":
            return f"CASE WHEN {_of_library(present)} THEN {value} END"
        if column == "jsonText":
            return f"CASE WHEN {_of_library(present)} THEN {_call('numbers', value)} END"
        names_thread = f"t.eventType IS {_THREAD_NAME}" if "eventType" in present else "0"
        return f"CASE WHEN NOT {names_thread} OR {_call('thread', value)} THEN {value} END"
    if table.startswith("ENUM_") or (table, column) in _CLEAR:
        return _call("clear", value)
    return {
        ("TARGET_INFO_GPU", "name"): value,
        ("TARGET_INFO_GPU", "chipName"): value,
        # Nobody's business, but other tools group by it.
        ("TARGET_INFO_GPU", "busLocation"): "NULL",
        ("META_DATA_EXPORT", "name"): value,
        ("EXPORT_META_DATA", "name"): value,
        ("PROCESSES", "name"): "'python'",
        ("DIAGNOSTIC_EVENT", "text"): _call("quoted", value),
        (COUNTERS, "metricName"): value,
        ("traceprobe", "json"): _call("record", value),
    }.get((table, column))


def public_rows(table: str, present: list[str]) -> str:
    """SQL condition on a row `t` for its texts alone."""
    if table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        return _call("parameter", "t.name")
    if table == COUNTERS and "metricName" in present:
        return _call("counter", "t.metricName")
    if table == "ThreadNames" and "nameId" in present:
        return f"t.nameId IN (SELECT id FROM source.StringIds WHERE {_call('thread', 'value')})"
    if table.startswith("ENUM_") and "label" in present:
        return f"{_call('clear', 't.label')} IS NOT NULL"
    return "1"


FUNCTIONS: Mapping[str, Callable[[str], Value]] = {
    "parameter": lambda name: _PUBLIC_PARAMETER.fullmatch(name) is not None,
    "thread": is_public_thread,
    "counter": is_known,
    "quoted": quoted,
    "clear": lambda value: value if told(value) == value else None,
    "numbers": lambda value: _numbers(value),
    "record": lambda value: _record(value),
}
"""What the expressions call, with one text each."""


def _call(function: str, value: str) -> str:
    """SQL call of one of the functions, whose text may be no UTF-8."""
    return f"{function}(CAST({value} AS BLOB))"


def _of_library(present: list[str]) -> str:
    names = [f"t.text GLOB '{_LIBRARIES}'"] if "text" in present else []
    if "textId" in present:
        names.append(
            f"t.textId IN (SELECT id FROM source.StringIds WHERE value GLOB '{_LIBRARIES}')"
        )
    return f"({' OR '.join(names)})" if names else "0"


def _record(written: str) -> str:
    """What the capture of traceprobe left in an export, as public as it gets."""
    try:
        return json.dumps(public_record(json.loads(written)), sort_keys=True)
    except (ValueError, RecursionError):
        return "{}"


def _numbers(payload: str) -> str | None:
    """A payload as JSON with its numbers under known names."""
    try:
        content = msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    return json.dumps({k: v for k, v in content.items() if type(v) is int and told(k) == k})
