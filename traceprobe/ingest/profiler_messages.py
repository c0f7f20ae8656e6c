"""What a profiler noted of itself, as far as it may be passed on.

Such notes may hold folders, hosts, users and settings of an environment. They are quoted by their
known words only, see `traceprobe.vocabulary`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from traceprobe.vocabulary import quoted

_MOST_NOTES, _MOST_CHARACTERS = 3, 300
# `ERROR:2026-02-08 10:38:45 948300:948300 CuptiActivityProfiler.cpp:835] `
_LOGGED = r"^[A-Z]+:\d{4}-\d\d-\d\d [\d:.]+ \d+:\d+ \w+\.(?:cpp|h):\d+\]\s*"
_STEERING = r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x1f\x7f-\x9f]"
"""Colours and controls, which would be part of the words beside them."""
NOTES = (
    "CUPTI initialization failed - CUDA profiler activities will be missing",
    "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES CUPTI_ERROR_NOT_INITIALIZED CUPTI_ERROR_UNKNOWN",
    "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED CUPTI_ERROR_HARDWARE_BUSY",
    "CUPTI_ERROR_OUT_OF_MEMORY CUPTI_ERROR_NOT_SUPPORTED CUPTI_ERROR_NOT_COMPATIBLE",
    "If you see CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, refer to ERR_NVGPUCTRPERM",
    "CUPTI failed with error; function returned an invalid result, status code",
    "Disabling CUPTI and profiling because of an error: another subscriber is already active",
    "cudaErrorInsufficientDriver cudaErrorNoDevice cudaErrorUnknown cudaErrorMemoryAllocation",
    "Failed to load CUPTI library; external correlation ID events were dropped",
    "Exceeded max GPU buffer count; records were lost, tracing stopped early",
    "GPU trace might be incomplete: Out-of-range = 1, blocklisted runtime = 2, invalid ext = 3",
    "Not all CUDA events might have been collected. Not all NVTX events might have been collected.",
    "No CUDA events collected. Does the process use CUDA?",
    "No NVTX events collected. Does the process use NVTX?",
    "CUDA profiling might have not been started correctly. CUDA profiling stopped too early.",
    "Installed CUDA driver version is not supported by this build of Nsight Systems. CUDA trace "
    "will be collected using libraries for driver version.",
    "CUDA hardware tracing is not supported on this system. A legacy (software instrumented) trace "
    "was collected instead.",
    "Number of incomplete CUPTI events dropped. Incomplete events appear when GPU timestamp "
    "information have not been retrieved at the time the profiling session was stopped.",
    "Some CUPTI events might be missing. To make sure all the events are collected, let the "
    "application run until it quits, and make sure cudaDeviceReset() is called before exit. Try "
    "using the Flush data periodically checkbox in CUDA trace options.",
    "Unable to initialize the injection library. Unable to configure the collection of GPU "
    "metrics: insufficient privilege. An error occurred while analyzing the collected data.",
    "The target application terminated before the collection was started. One or more processes "
    "exited unexpectedly. The application was terminated by a signal. The device is busy.",
    "database disk image is malformed; malformed database schema; file is not a database; no such "
    "table; no such column; unable to open database file; disk I/O error; string or blob too big; "
    "out of memory; near; syntax error; unrecognized token; incomplete input; invalid rootpage; "
    "orphan index",
)
"""Notes that Kineto, CUPTI, Nsight Systems and SQLite make. Their words are known, others not."""


def quote_messages(notes: Sequence[object]) -> str:
    """The first notes without what is private in them."""
    plain = (re.sub(_STEERING, " ", str(note)).strip() for note in notes[:_MOST_NOTES])
    return " | ".join(quoted(re.sub(_LOGGED, "", text), _MOST_CHARACTERS) for text in plain)
