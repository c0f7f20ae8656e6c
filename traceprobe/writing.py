"""Files appear whole or not at all: each is written beside its place and then renamed."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from traceprobe.model import UsageError

_LONGEST = 200
"""Bytes of the name that the temporary one takes over; a name may have 255."""
_FULL = ("database or disk is full", "disk I/O error", "unable to open database file")


@contextmanager
def beside(target: Path) -> Iterator[Path]:
    """An empty file in the folder of the target, which it replaces in the end.

    Whatever ends this earlier, the temporary file is gone and the target is as it was.

    Raises:
        UsageError: the target cannot be written; the message says why.
    """
    known = os.fsencode(target.name)[:_LONGEST]
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{os.fsdecode(known)}.")
    except OSError as error:
        raise _refused(target, error.strerror) from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
    except OSError as error:
        if error.filename not in (None, name, str(target)):
            raise  # of another file
        raise _refused(target, error.strerror or str(error)) from error
    except sqlite3.OperationalError as error:
        if str(error) not in _FULL:
            raise
        raise _refused(target, str(error)) from error
    finally:
        temporary.unlink(missing_ok=True)


def _refused(target: Path, why: str | None) -> UsageError:
    return UsageError(f"{target}: cannot be written: {why}; nothing was left behind")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
