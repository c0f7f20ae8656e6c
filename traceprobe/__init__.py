"""What holds a training run back? Reads PyTorch (Kineto) and Nsight Systems profiles and says so.

    report = traceprobe.analyze(traceprobe.load("trace.json.gz"))
    print(report.verdict.bound, report.verdict.headline)

Errors derive from `TraceprobeError`:

    TraceprobeError
    ├── UnsupportedInput   not a trace that traceprobe reads
    ├── DamagedInput       too little of the file survives
    ├── EmptyTrace         neither GPU work nor host phases
    ├── DamagedRecord      a saved result that contradicts itself
    ├── OtherVersion       a saved result of a schema version that is not read
    ├── UsageError         an option or a combination of inputs makes no sense
    ├── ImpossibleChange   a change of a run that has no meaning for it
    └── InternalError      the fault is traceprobe's
"""

# Nothing is imported here, not even from __future__ or typing: the command line first leaves the
# working folder out of the import path, see `traceprobe.system.isolated`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from traceprobe.errors import (
        DamagedInput,
        DamagedRecord,
        EmptyTrace,
        ImpossibleChange,
        InternalError,
        OtherVersion,
        TraceprobeError,
        UnsupportedInput,
        UsageError,
    )
    from traceprobe.model.events import Trace
    from traceprobe.options import Options
    from traceprobe.pipeline.load import load
    from traceprobe.pipeline.merge import analyze
    from traceprobe.records.report import Report

from traceprobe.version import __version__  # noqa: E402

__all__ = [
    "DamagedInput",
    "DamagedRecord",
    "EmptyTrace",
    "ImpossibleChange",
    "InternalError",
    "Options",
    "OtherVersion",
    "Report",
    "Trace",
    "TraceprobeError",
    "UnsupportedInput",
    "UsageError",
    "__version__",
    "analyze",
    "load",
]

_MODULES = {
    "Options": "options",
    "Report": "records.report",
    "Trace": "model.events",
    "analyze": "pipeline.merge",
    "load": "pipeline.load",
}
"""The modules of the public names; errors are in `traceprobe.errors`."""


def __getattr__(name: str) -> "Any":
    """Import the public names on first use: the model needs polars, which takes its time."""
    if name not in __all__:
        raise AttributeError(f"module 'traceprobe' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"traceprobe.{_MODULES.get(name, 'errors')}"), name)
