"""Every error raised on purpose. They import next to nothing: the command line has them at once."""

from __future__ import annotations

import os


class TraceprobeError(Exception):
    """Base of every error raised on purpose; the message says what, where and how to fix it."""


class UnsupportedInput(TraceprobeError):
    """The file is not a trace that traceprobe reads."""


class DamagedInput(TraceprobeError):
    """The file is a trace, but too little of it survives to be read."""


class AbsentInput(DamagedInput, FileNotFoundError):
    """There is no file of that name; of several ranks it costs its own, as a damaged one does."""


class EmptyTrace(TraceprobeError):
    """The file is readable and holds neither GPU work nor host phases."""


class DamagedRecord(TraceprobeError):
    """A saved result contradicts itself: it was changed, or is none of traceprobe."""


class OtherVersion(TraceprobeError):
    """A saved result has a version of its schema that this traceprobe does not read."""


class UsageError(TraceprobeError):
    """An option or a combination of inputs makes no sense."""


class ImpossibleChange(TraceprobeError):
    """A change that `whatif` is asked for means nothing for the run."""


class InternalError(TraceprobeError):
    """A result contradicts itself, or something unforeseen happened: the fault is traceprobe's."""


def system_message(error: OSError) -> str:
    """What the system says of a file, with what helps where nothing else tells."""
    said = error.strerror or str(error)
    # What may be read is refused for something else, such as to be started.
    if isinstance(error, PermissionError) and not os.access(error.filename or "", os.R_OK):
        return f"{said}; ask its owner for the right to read it (chmod a+r), or for a copy"
    return said
