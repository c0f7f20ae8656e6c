"""Tables of the Nsight Systems SQLite export by schema version, and their codes.

A column reads `name[:TYPE][!][@since][<until]`: `!` is NOT NULL, integers carry no type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Version = tuple[int, int, int]

SCHEMAS = (
    *("3.0.0", "3.1.2", "3.4.0", "3.7.2", "3.16.1", "3.20.3", "3.24.0", "3.24.14"),
    *("3.25.0", "3.28.1", "3.30.1"),
)
PRODUCTS = {
    "3.0.0": "2022.4.2.1",
    "3.1.2": "2023.1.2.43",
    "3.4.0": "2023.3.1.92",
    "3.7.2": "2023.4.4.54",
    "3.16.1": "2024.6.2.225",
    "3.20.3": "2025.3.2.0",
    "3.24.0": "2025.5.2.266",
    "3.24.14": "2026.1.1.204",
    "3.25.0": "2026.2.1.210",
    "3.28.1": "2026.4.1.101",
    "3.30.1": "2026.5.1.77",
}

_ON_DEVICE = (
    "start! end! deviceId! contextId! greenContextId@3.7.2 streamId! correlationId globalPid"
)
_NVTX = (
    "eventId:KEY@3.28.0 start! end eventType! rangeId category color text:TEXT globalTid "
    "endGlobalTid textId domainId uint64Value int64Value doubleValue:REAL uint32Value int32Value "
    "floatValue:REAL jsonTextId jsonText:TEXT binaryData:TEXT@3.20.0"
)
KERNEL, MEMCPY, RUNTIME = (
    f"CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "MEMCPY", "RUNTIME")
)
"""Names of tables: of GPU work, and of calls."""
TABLES = {
    "StringIds": "id! value:TEXT!",
    "META_DATA_EXPORT@3.4.0": "name:TEXT! value:TEXT",
    "EXPORT_META_DATA<3.4.0": "name:TEXT! value:TEXT",
    "META_DATA_CAPTURE@3.4.0": "name:TEXT! value:TEXT",
    "TARGET_INFO_SESSION_START_TIME": (
        "utcEpochNs utcTime:TEXT localTime:TEXT systemClockNs@3.24.14"
    ),
    "TARGET_INFO_SYSTEM_ENV": "globalVid devStateName:TEXT! name:TEXT! nameEnum! value:TEXT!",
    "ANALYSIS_DETAILS": "globalVid! duration! startTime! stopTime!",
    "PROCESSES": "globalPid pid name:TEXT",
    "ThreadNames": "nameId! priority globalTid",
    "TARGET_INFO_GPU": "vmId! id! name:TEXT uuid:TEXT cuDevice totalMemory smCount",
    "TARGET_INFO_CUDA_DEVICE@3.20.0": (
        "gpuId cudaId! pid! uuid:TEXT@3.24.14 numMultiprocessors@3.24.14"
    ),
    "GPU_METRICS@3.1.0": "timestamp rawTimestamp@3.28.0 typeId! metricId! value",
    "TARGET_INFO_GPU_METRICS@3.1.0": ("typeId! sourceId! typeName:TEXT metricId! metricName:TEXT"),
    "TARGET_INFO_CUDA_NULL_STREAM<3.7.2": "streamId! hwId! vmId! processId! deviceId! contextId!",
    "TARGET_INFO_CUDA_CONTEXT_INFO@3.7.2": (
        "nullStreamId! hwId! vmId! processId! deviceId! contextId! parentContextId isGreenContext"
    ),
    "NVTX_EVENTS": _NVTX,
    "NVTXT_EVENTS@3.28.0": "start! end eventType! text:TEXT globalTid textId domainId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start! end! eventClass! globalTid correlationId nameId! returnValue! callchainId"
    ),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        f"{_ON_DEVICE} demangledName! shortName! mangledName launchType cacheConfig "
        "registersPerThread! gridX! gridY! gridZ! blockX! blockY! blockZ! staticSharedMemory! "
        "dynamicSharedMemory! localMemoryPerThread! localMemoryTotal! gridId! "
        "sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig graphId@3.24.0 "
        "clusterX@3.24.0 tensorSizeMinusOneElements:TEXT!@3.25.0"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        f"{_ON_DEVICE} bytes! copyKind! deprecatedSrcId srcKind dstKind srcDeviceId srcContextId "
        "dstDeviceId dstContextId migrationCause graphNodeId virtualAddress copyCount@3.20.0"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_ON_DEVICE} value! bytes! graphNodeId memKind",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE@3.12.0": f"{_ON_DEVICE} graphId! graphExecId!",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
        f"{_ON_DEVICE} deprecatedSyncType@3.20.0 syncType! eventId! eventSyncId@3.20.0"
    ),
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": (
        "timestamp@3.24.0 deviceId contextId greenContextId@3.7.2 streamId correlationId globalPid "
        "eventId! eventSyncId@3.20.0"
    ),
    "CUPTI_ACTIVITY_KIND_OVERHEAD@3.24.0": (
        "start! end! eventClass! globalTid correlationId nameId overheadType!"
    ),
    "PROFILER_OVERHEAD": "start! end! globalTid nameId! returnValue!<3.24.0 overheadType!@3.24.0",
    "DIAGNOSTIC_EVENT@3.16.0": "timestamp! timestampType! source! severity! text:TEXT! globalPid",
}

_LABELS = {
    "ENUM_CUDA_MEMCPY_OPER": """
        0 CUDA_MEMCPY_KIND_UNKNOWN Unknown
        1 CUDA_MEMCPY_KIND_HTOD Host-to-Device
        2 CUDA_MEMCPY_KIND_DTOH Device-to-Host
        8 CUDA_MEMCPY_KIND_DTOD Device-to-Device
        9 CUDA_MEMCPY_KIND_HTOH Host-to-Host
        10 CUDA_MEMCPY_KIND_PTOP Peer-to-Peer""",
    "ENUM_CUDA_MEM_KIND": """
        0 CUDA_MEMOPR_MEMORY_KIND_PAGEABLE Pageable
        1 CUDA_MEMOPR_MEMORY_KIND_PINNED Pinned
        2 CUDA_MEMOPR_MEMORY_KIND_DEVICE Device
        7 CUDA_MEMOPR_MEMORY_KIND_UNKNOWN Unknown""",
    "ENUM_NSYS_EVENT_TYPE": """
        33 NvtxCategory NvtxCategory
        34 NvtxMark NvtxMark
        39 NvtxThread NvtxThread
        59 NvtxPushPopRange NvtxPushPopRange
        60 NvtxStartEndRange NvtxStartEndRange
        70 NvtxtPushPopRange NvtxtPushPopRange
        71 NvtxtStartEndRange NvtxtStartEndRange
        75 NvtxDomainCreate NvtxDomainCreate
        76 NvtxDomainDestroy NvtxDomainDestroy""",
    "ENUM_NSYS_EVENT_CLASS": """
        0 TRACE_PROCESS_EVENT_CUDA_RUNTIME CUDA runtime
        1 TRACE_PROCESS_EVENT_CUDA_DRIVER CUDA driver""",
}
LABELS = {
    table: [line.split(maxsplit=2) for line in text.strip().splitlines()]
    for table, text in _LABELS.items()
}
"""(code, symbol, label) by enum table."""

_COLUMN = re.compile(r"(\w+)(?::(\w+))?(!)?(?:@([\d.]+))?(?:<([\d.]+))?")


@dataclass(frozen=True)
class Column:
    """One column of a table in one schema version."""

    name: str
    type: str
    required: bool

    @property
    def sql(self) -> str:
        """Its definition; a KEY is the row id under another name."""
        kind = "INTEGER PRIMARY KEY" if self.type == "KEY" else self.type
        return f'"{self.name}" {kind}{" NOT NULL" if self.required else ""}'

    @property
    def default(self) -> object:
        """What a required column holds when a row does not say."""
        return None if not self.required else "" if self.type == "TEXT" else 0


ENUM = (
    Column("id", "INTEGER", True),
    Column("name", "TEXT", False),
    Column("label", "TEXT", False),
)


def version(text: str) -> Version:
    """`3.24.0` as a comparable tuple."""
    major, minor, micro = (int(part) for part in text.split("."))
    return major, minor, micro


def tables(schema: str) -> dict[str, list[Column]]:
    """The tables of a schema version and their columns."""
    found: dict[str, list[Column]] = {}
    for spec, columns in TABLES.items():
        name, _, _, since, until = _parse(spec)
        if _has(schema, since, until):
            parsed = [_parse(column) for column in columns.split()]
            found[name] = [
                Column(column, kind or "INTEGER", bool(required))
                for column, kind, required, first, last in parsed
                if _has(schema, first, last)
            ]
    return found


def _parse(spec: str) -> tuple[str, str | None, str | None, str | None, str | None]:
    match = _COLUMN.fullmatch(spec)
    assert match, spec
    return match[1], match[2], match[3], match[4], match[5]


def _has(schema: str, since: str | None, until: str | None) -> bool:
    now = version(schema)
    return (since is None or now >= version(since)) and (until is None or now < version(until))
