"""Files that are read are regular files: a FIFO would wait for ever, a device never end."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from traceprobe.errors import UsageError

LARGEST_SAVED = 64 << 20
"""Bytes of a saved result: the report of a thousand ranks has a few megabytes."""
_BLOCK = 4 << 20
"""Bytes that are hashed at a time."""


class NotRegular(UsageError):
    """A FIFO, a socket or a device where a file should be."""


def open_regular(path: Path, *, follow: bool = True) -> BinaryIO:
    """A regular file, open to be read.

    Args:
        follow: whether it may be a link to one.

    Raises:
        NotRegular: it is something else.
        OSError: it cannot be opened.
    """
    _check(path, os.stat(path, follow_symlinks=follow))  # noqa: PTH116 - to open some devices acts
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    number = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    try:
        _check(path, os.fstat(number))  # it may be another one by now
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def read_saved(path: Path, most: int = LARGEST_SAVED, *, follow: bool = True) -> bytes:
    """All of a saved file.

    Raises:
        UsageError: it is no regular file, or has more bytes than `most`.
        OSError: it cannot be read.
    """
    with open_regular(path, follow=follow) as file:
        found = b"" if (large := os.fstat(file.fileno()).st_size > most) else file.read(most + 1)
        if large or len(found) > most:  # files of the kernel say that they are empty
            raise UsageError(
                f"{path}: has more than {most >> 20} MiB, which nothing has that traceprobe saves; "
                "name another file"
            )
        return found


def sha256(path: Path, progress: Callable[[int, int], None] | None = None) -> str:
    """The SHA-256 of a file, in hexadecimal.

    Args:
        progress: called with (bytes hashed, bytes of the file).

    Raises:
        OSError: it cannot be read.
    """
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            done += len(block)
            if progress is not None:
                progress(done, total)
    return digest.hexdigest()


@contextmanager
def errors_named(path: Path) -> Iterator[None]:
    """Let errors of the system say of which file they are: reading, unlike opening, leaves it out.

    Raises:
        OSError: as it came, with a file name.
    """
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def _check(path: Path, found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise NotRegular(f"{path}: is a directory; name a file inside it")
    if not stat.S_ISREG(found.st_mode):
        raise NotRegular(f"{path}: is not a regular file; save what it gives to one first")
