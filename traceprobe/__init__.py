"""What holds a training run back? Reads PyTorch (Kineto) and Nsight Systems profiles and says so.

    report = traceprobe.analyze(traceprobe.load("trace.json.gz"))
    print(report.verdict.bound, report.verdict.headline)

Errors derive from `TraceprobeError`:

    TraceprobeError
    ├── UnsupportedInput   not a trace that traceprobe reads
    ├── DamagedInput       too little of the file survives
    ├── EmptyTrace         neither GPU work nor host phases
    ├── DamagedRecord      a saved result that contradicts itself
    └── UsageError         an option or a combination of inputs makes no sense
"""

# Nothing is imported here, not even from __future__ or typing: the command line first leaves the
# working folder out of the import path, see `traceprobe.isolated`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from traceprobe.api import Options, analyze, load
    from traceprobe.model import (
        DamagedInput,
        DamagedRecord,
        EmptyTrace,
        Trace,
        TraceprobeError,
        UnsupportedInput,
        UsageError,
    )
    from traceprobe.report.result import Report

__version__ = "0.1.0"

__all__ = [
    "DamagedInput",
    "DamagedRecord",
    "EmptyTrace",
    "Options",
    "Report",
    "Trace",
    "TraceprobeError",
    "UnsupportedInput",
    "UsageError",
    "__version__",
    "analyze",
    "load",
]

_API = ("Options", "analyze", "load")


def __getattr__(name: str) -> "Any":
    """Import the public names on first use: the model needs polars, which takes its time."""
    if name not in __all__:
        raise AttributeError(f"module 'traceprobe' has no attribute {name!r}")
    from importlib import import_module

    room = "api" if name in _API else "report.result" if name == "Report" else "model"
    return getattr(import_module(f"traceprobe.{room}"), name)
