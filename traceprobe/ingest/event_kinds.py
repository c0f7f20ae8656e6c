"""What a name means: the kind of a GPU op, of a host call, of a profiler row.

Each function works on one distinct name; callers apply it to the name table, not to events.
"""

from __future__ import annotations

import re

from traceprobe.ingest.clocks import WaitsFor
from traceprobe.ingest.communication_kernels import is_communication
from traceprobe.model.codes import UNKNOWN, Call, Kind, Source, StreamEvent

_COPIES = (
    (re.compile(r"HtoD|HtoA|M2D|Host -> Device|Host-to-(Device|Array)", re.I), Kind.H2D),
    (re.compile(r"DtoH|AtoH|D2M|Device -> Host|(Device|Array)-to-Host", re.I), Kind.D2H),
    (re.compile(r"PtoP|P2P|Peer", re.I), Kind.COMM),
)
_VERSION_SUFFIX = re.compile(r"_v\d+(_ptsz|_ptds)?$|_(ptsz|ptds)$")
_CALLS = (
    (re.compile(r"GraphLaunch"), Call.GRAPH_LAUNCH),
    (re.compile(r"Launch(Cooperative)?Kernel|LaunchGrid|^zeCommandListAppendLaunch"), Call.LAUNCH),
    (re.compile(r"(Stream|Device|Event|Ctx|Context)Synchronize"), Call.SYNC),
    (re.compile(r"^(cuda|cu|hip)Memcpy"), Call.COPY),
    (re.compile(r"^(cuda|cu|hip)Memset"), Call.MEMSET),
)
_BLOCKING = re.compile(
    r"(Stream|Device|Event|Ctx|Context)Synchronize|^(cuda|cu|hip)Memcpy(?!.*(Async|Peer))"
)
_WAITS_FOR = re.compile(r"(Stream|Device|Ctx|Context)Synchronize")
ASKS = -2
"""Of a call that asks whether an event or a stream is ready."""
_STREAM_EVENTS = (
    (re.compile(r"^(cuda|cu|hip)EventRecord(WithFlags)?(_spt)?$"), int(StreamEvent.RECORD)),
    (re.compile(r"^(cuda|cu|hip)StreamWaitEvent(_spt)?$"), int(StreamEvent.WAIT)),
    (re.compile(r"(Stream|Device|Event|Ctx|Context)Synchronize"), int(StreamEvent.HOST_WAIT)),
    (re.compile(r"^(cuda|cu|hip)(Event|Stream)Query"), ASKS),
)
# Rows of the profiler's own work. Lazy loading and module loading are stalls of the driver that the
# program has without a profiler too, so they are not here.
_PROFILER = re.compile(
    r"^(CUDA profiling|CUPTI|TLS allocation|Chunk Allocation|Unknown$|Activity Buffer"
    r"|Buffer Flush|Instrumentation|Resource|OVERHEAD_CUPTI)|\(Profiler\)",
    re.IGNORECASE,
)
_QUEUE = re.compile(r"^Command Buffer Full|COMMAND_BUFFER_FULL")


def kernel_kind(name: str) -> Kind:
    """COMM for kernels that communicate, else KERNEL."""
    return Kind.COMM if is_communication(name) else Kind.KERNEL


def copy_kind(name: str) -> Kind:
    """Direction of a copy from its name or its label; D2D where neither end is the host."""
    return next((kind for pattern, kind in _COPIES if pattern.search(name)), Kind.D2D)


def api_name(name: str) -> str:
    """`cudaLaunchKernel_v7000` to `cudaLaunchKernel`."""
    return _VERSION_SUFFIX.sub("", name)


def call_kind(api: str) -> Call:
    """What a CUDA or HIP API call does; a blocking copy is a COPY."""
    return next((call for pattern, call in _CALLS if pattern.search(api)), Call.OTHER)


def is_blocking(api: str) -> bool:
    """Whether the call waits for the GPU: synchronisations and copies that are not Async."""
    return bool(_BLOCKING.search(api))


def waits_for(api: str) -> WaitsFor:
    """What a synchronisation waits for; an event is some work of a stream, and says nothing."""
    found = _WAITS_FOR.search(api)
    if found is None:
        return WaitsFor.NOTHING
    return WaitsFor.STREAM if found[1] == "Stream" else WaitsFor.DEVICE


def stream_event(api: str) -> int:
    """What a call does with an event or a stream: StreamEvent, UNKNOWN for nothing.

    ASKS for one that only asks whether it is ready, which profilers note like a wait.
    """
    return next((kind for pattern, kind in _STREAM_EVENTS if pattern.search(api)), UNKNOWN)


def overhead_source(name: str) -> int:
    """Who wrote an overhead row, as `Source` has it; UNKNOWN for a row that nobody asks for."""
    if _PROFILER.search(name):
        return int(Source.PROFILER)
    return int(Source.QUEUE) if _QUEUE.search(name) else UNKNOWN
