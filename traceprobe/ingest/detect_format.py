"""Which kind of file is this? By content, never by suffix."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from traceprobe.errors import DamagedInput, UnsupportedInput
from traceprobe.ingest import foreign_traces, sparse_files
from traceprobe.ingest.gunzip import unpacked_head
from traceprobe.system import shell
from traceprobe.system.reading import NotRegular, errors_named, open_regular

SQLITE_MAGIC = b"SQLite format 3\0"
GZIP_MAGIC = b"\x1f\x8b"
_TAR_MAGIC = b"ustar"
_TAR_AT = 257
HEAD = 64 * 1024


class DetectedFormat(msgspec.Struct, frozen=True):
    """`format`, whether the file is gzip-compressed, and its first bytes behind that."""

    format: Literal["kineto", "nsys"]
    gzipped: bool
    head: bytes


def detect_format(path: Path) -> DetectedFormat:
    """The format of a trace file, by its first 64 KiB, through gzip if need be.

    Raises:
        UnsupportedInput: with what the file is and the command that makes a readable one.
        DamagedInput: an empty file, one of holes, or a gzip stream whose first block is broken.
        OSError: it cannot be opened or read.
    """
    if path.is_dir():
        raise UnsupportedInput(f"{path.name}: is a directory; name the trace files inside it")
    try:
        with errors_named(path), open_regular(path) as file:
            sparse_files.refuse_sparse_file(path, file)
            head = file.read(HEAD)
    except NotRegular as error:
        raise UnsupportedInput(str(error)) from error
    gzipped = head.startswith(GZIP_MAGIC)
    if gzipped:
        head = _gunzip_head(path)
    if not head.strip():
        raise DamagedInput(f"{path.name}: the file is empty; capture or copy it again")
    if head.startswith(SQLITE_MAGIC):
        return DetectedFormat("nsys", gzipped, head)
    foreign = foreign_traces.of_head(head)
    if foreign is not None:
        raise UnsupportedInput(f"{path.name}: is {foreign}; {foreign_traces.READS}")
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] in (b"{", b"["):
        return DetectedFormat("kineto", gzipped, head)
    raise UnsupportedInput(f"{path.name}: {_diagnose(head, path)}")


def _gunzip_head(path: Path) -> bytes:
    """The first bytes behind gzip, as far as they decode.

    Raises:
        DamagedInput: none do.
    """
    head, broken = unpacked_head(path, HEAD)
    if not head and broken is not None:
        raise DamagedInput(f"{path.name}: the gzip stream {broken}; copy or capture it again")
    return head


def printable(name: str) -> str:
    """A file name as text: names on disk are bytes, and some are no UTF-8."""
    return name.encode("utf-8", "replace").decode()


def is_nsight_report(path: Path) -> bool:
    """Whether the file is an Nsight Systems report, which `nsys export` can turn into an input.

    False of what cannot be opened or read: who reads it next says why.
    """
    try:
        with open_regular(path) as file:
            return _is_report(path, file.read(HEAD))
    except OSError:
        return False


def _is_report(path: Path, head: bytes) -> bool:
    named = path.suffix in (".nsys-rep", ".qdrep")
    text = head.lstrip()[:1] in (b"{", b"[") or head.startswith((SQLITE_MAGIC, b"version "))
    return not text and (named or b"QuadD" in head or b"NVIDIA Nsight" in head)


def _export(stem: str, name: str) -> str:
    """The command that makes an export of a report."""
    return f"nsys export --type sqlite -o {shell.file(f'{stem}.sqlite')} {shell.file(name)}"


def _fetch(name: str) -> str:
    """The command that fetches a file from Git LFS, which takes names as patterns."""
    if set(name) & set(",*?[]\\!"):
        return "git lfs pull"
    return f"git lfs pull {shell.word(f'--include={name}')}"


def _diagnose(head: bytes, path: Path) -> str:
    stem = path.name.split(".")[0]
    if head.startswith(b"version https://git-lfs.github.com"):
        return f"is a Git LFS pointer, not the trace itself; fetch it with `{_fetch(path.name)}`"
    if head.startswith(b"\x89HDF\r\n\x1a\n"):
        return (
            "is an HDF5 export of Nsight Systems; export the report again as SQLite: "
            f"`{_export(stem, 'REPORT.nsys-rep')}`"
        )
    if head.startswith(b"PAR1"):
        return (
            "is a Parquet file; export the Nsight report as SQLite: "
            f"`{_export(stem, 'REPORT.nsys-rep')}`"
        )
    if _is_report(path, head):
        return (
            "is an Nsight Systems report, not an export of one; convert it with "
            f"`{_export(stem, path.name)}`"
        )
    if head[:1] == b"\x0a" or path.suffix == ".pftrace":
        return (
            "is a Perfetto protobuf trace (.pftrace), which traceprobe does not read; "
            'export Chrome JSON instead: `prof.export_chrome_trace("trace.json.gz")`'
        )
    if head.startswith(b"PK\x03\x04"):
        return f"is a zip archive; unpack it first: `unzip {shell.file(path.name)}`"
    if head[_TAR_AT : _TAR_AT + len(_TAR_MAGIC)] == _TAR_MAGIC:
        return f"is a tar archive; unpack it first: `tar xf {shell.file(path.name)}`"
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return f"is zstd-compressed; unpack it first: `zstd -d {shell.file(path.name)}`"
    return (
        "is neither a Chrome trace (JSON) nor an Nsight Systems SQLite export; make one with "
        '`prof.export_chrome_trace("trace.json.gz")` or '
        f"`{_export('run', 'run.nsys-rep')}`"
    )
