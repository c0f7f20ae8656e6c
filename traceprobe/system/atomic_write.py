"""Files appear whole or not at all: each is written beside its place and then put there."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from traceprobe.errors import UsageError

_LONGEST = 200
"""Bytes of the name that the temporary one takes over; a name may have 255."""
_FULL = ("database or disk is full", "disk I/O error", "unable to open database file")
_NO_LINKS = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV}


@contextmanager
def write_beside(target: Path, *, replace: bool) -> Iterator[Path]:
    """An empty file in the folder of the target, which takes that name in the end.

    Whatever ends this earlier, the temporary file is gone and the target is as it was.

    Args:
        replace: whether it may take the place of a file that is there then.

    Raises:
        UsageError: the target cannot be written; the message says why.
    """
    name = None
    try:
        with write_whole(target, replace=replace) as temporary:
            name = str(temporary)
            yield temporary
    except FileExistsError as error:
        if name is None or str(error.filename2) != str(target):
            raise
        raise UsageError(
            f"{target}: was written by something else meanwhile and is left as it is; overwrite it "
            "with --force, or choose another with -o"
        ) from error
    except OSError as error:
        if name is not None and str(error.filename) not in ("None", name, str(target)):
            raise  # of another file
        raise _refused(target, error.strerror or str(error)) from error
    except sqlite3.OperationalError as error:
        if str(error) not in _FULL:
            raise
        raise _refused(target, str(error)) from error


@contextmanager
def write_whole(target: Path, *, replace: bool, private: bool = False) -> Iterator[Path]:
    """The same, with the errors of the system.

    Args:
        private: whether nobody but this user may read it.

    Raises:
        FileExistsError: there is such a file by now, which `replace` does not allow.
        OSError: the target cannot be written.
    """
    known = os.fsencode(target.name)[:_LONGEST]
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{os.fsdecode(known)}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        if not private:  # as the temporary file is
            temporary.chmod(0o666 & ~_umask())
        if replace:
            temporary.replace(target)
        else:
            place(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def append(target: Path, text: str) -> None:
    """Append to a regular file, all of a text or nothing; it is made where it is absent.

    Raises:
        UsageError: it cannot be written, or is no regular file.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(target, flags, 0o666)
        try:
            before = os.fstat(handle)
            if not stat.S_ISREG(before.st_mode):
                raise UsageError(f"{target}: is not a regular file")
            rest = memoryview(text.encode("utf-8", "replace"))
            try:
                while rest:
                    rest = rest[os.write(handle, rest) :]
            except BaseException:
                os.ftruncate(handle, before.st_size)
                raise
        finally:
            os.close(handle)
    except OSError as error:
        raise _refused(target, error.strerror) from error


def place(temporary: Path, target: Path) -> None:
    """Give a file another name of the same file system, which no file may have.

    It may keep the old name too.

    Raises:
        FileExistsError: there is such a file.
    """
    try:
        os.link(temporary, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(_claimed(temporary, target))  # a file system without links
        try:
            temporary.replace(target)
        except OSError:
            with suppress(OSError):
                target.unlink()
            raise


def _claimed(temporary: Path, target: Path) -> int:
    try:
        return os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError as error:  # in the words of a link
        raise FileExistsError(
            error.errno, error.strerror, str(temporary), None, str(target)
        ) from error


def _refused(target: Path, why: str | None) -> UsageError:
    return UsageError(f"{target}: cannot be written: {why}; nothing was left behind")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def compress(path: Path) -> None:
    """Gzip in place, without name and time, so that the same slice gives the same bytes."""
    with (
        write_beside(path, replace=True) as packed,
        path.open("rb") as source,
        packed.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=9, mtime=0) as target,
    ):
        shutil.copyfileobj(source, target, 1 << 20)
