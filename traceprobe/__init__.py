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

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from traceprobe.api import Options, analyze, load

if TYPE_CHECKING:
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

_MODEL = (
    "DamagedInput",
    "DamagedRecord",
    "EmptyTrace",
    "Trace",
    "TraceprobeError",
    "UnsupportedInput",
    "UsageError",
)


def __getattr__(name: str) -> Any:
    """Import the typed names on first use: the model needs polars, which takes its time."""
    if name in _MODEL:
        from traceprobe import model

        return getattr(model, name)
    if name == "Report":
        from traceprobe.report.result import Report

        return Report
    raise AttributeError(f"module 'traceprobe' has no attribute {name!r}")
