"""Logs of NCCL Inspector: JSON lines to the operations that they note.

The profiler plugin of NCCL 2.28 and later writes them, `HOST-pidN.log`, one file a process, a line
for each operation that ended. The format is that of plugins/profiler/inspector/inspector_json.cc of
https://github.com/NVIDIA/nccl: versions v4.0 to v4.2, of which every line says whose it is, and
v4.3 and v4.4, of which a line without operation says it for those that follow. When an operation
began is there only with NCCL_INSPECTOR_DUMP_VERBOSE=1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from traceprobe.errors import DamagedInput, UnsupportedInput
from traceprobe.ingest.gunzip import Gunzip
from traceprobe.ingest.trace_folder import natural_order
from traceprobe.ingest.untrusted_values import JSON_ERRORS, rank_number
from traceprobe.model.codes import UNKNOWN
from traceprobe.system.reading import open_regular

MOST_BYTES = 2 << 30
"""Of a log, decompressed: a line has 400 bytes, with times of 64 channels 15,000."""
MOST_OPERATIONS = 2_000_000
_LONGEST_LINE = 1 << 20
_BLOCK = 1 << 20
_HEAD = 64 << 10
"""Bytes by which a log is known, and in which its communicators are looked for."""
_GZIP = b"\x1f\x8b"
_MARK = re.compile(rb'\s*\{\s*"header"\s*:\s*\{[^{}]*\}\s*,\s*"metadata"\s*:')
_VERSION = re.compile(r"v?4(\.\d{1,4})?")


class _Header(msgspec.Struct):
    id: str = ""
    rank: int = UNKNOWN
    n_ranks: int = UNKNOWN


class _Metadata(msgspec.Struct):
    inspector_output_format_version: str = ""


class _Times(msgspec.Struct):
    coll_start_ts: int = UNKNOWN
    coll_stop_ts: int = UNKNOWN
    p2p_start_ts: int = UNKNOWN
    p2p_stop_ts: int = UNKNOWN


class _Collective(msgspec.Struct):
    coll: str
    coll_sn: int = UNKNOWN
    coll_msg_size_bytes: int = UNKNOWN
    event_trace_ts: _Times | None = None


class _Message(msgspec.Struct):
    p2p: str
    p2p_sn: int = UNKNOWN
    p2p_msg_size_bytes: int = UNKNOWN
    event_trace_ts: _Times | None = None


class _Line(msgspec.Struct):
    header: _Header | None = None
    metadata: _Metadata | None = None
    coll_perf: _Collective | None = None
    p2p_perf: _Message | None = None


_DECODER = msgspec.json.Decoder(_Line)


class NotedOperation(msgspec.Struct, frozen=True):
    """An operation that ended.

    Args:
        communicator: as the log names it, the first 14 digits of its hash: `0x7f8c496ae9f661`.
        ranks: of the communicator. operation: NCCL's name, `AllReduce`.
        sequence: of collectives, number among those of the same operation in the communicator.
        bytes: what the call was given, which is one rank's part of what is gathered or scattered.
        began_us, ended_us: around its launch, in UTC; UNKNOWN in a log without times.
    """

    communicator: str
    ranks: int
    operation: str
    sequence: int
    bytes: int
    began_us: int
    ended_us: int


class InspectorLog(msgspec.Struct, frozen=True):
    """The log of one process.

    Args:
        operations: those that ended, in the order of the file.
        damaged: lines that are no operation, cut or broken.
    """

    name: str
    operations: Sequence[NotedOperation]
    damaged: int


def is_log(path: Path) -> bool:
    """Whether a file begins as a log does, through gzip if need be."""
    return any(_MARK.match(line) for line in _head(path))


def find_logs(folder: Path) -> list[Path]:
    """The logs in a folder, in natural order.

    Raises:
        OSError: it cannot be read.
    """
    files = (path for path in folder.iterdir() if path.name[0] != "." and path.is_file())
    return sorted((path for path in files if is_log(path)), key=natural_order)


def rank_in_log(path: Path) -> int | None:
    """The rank of the process in the largest communicator that the log begins with.

    In a run whose ranks all share a communicator that is the rank of the run. The log does not say
    it, so what is read with it must be checked otherwise.
    """
    found = [header for line in _head(path) if (header := _header(line)) is not None]
    known = [header for header in found if rank_number(header.rank) is not None]
    return max(known, key=lambda header: header.n_ranks).rank if known else None


def read_log(path: Path) -> InspectorLog:
    """The operations of a process.

    Raises:
        UnsupportedInput: it is of another version.
        DamagedInput: it has more than any log of steps that are profiled.
        OSError: it cannot be read.
    """
    name = path.name
    operations: list[NotedOperation] = []
    damaged = 0
    whose = _Header()
    for text in _lines(path):
        if not text.strip():
            continue
        try:
            line = _DECODER.decode(text)
        except JSON_ERRORS:
            damaged += 1
            continue
        if line.metadata is not None:
            _check_version(name, line.metadata.inspector_output_format_version)
        whose = line.header or whose
        if line.coll_perf is not None or line.p2p_perf is not None:
            operations.append(_operation(whose, line.coll_perf, line.p2p_perf))
        if len(operations) > MOST_OPERATIONS:
            raise DamagedInput(
                f"{name}: has more than {MOST_OPERATIONS:,} operations; keep the lines of the "
                "steps that are profiled"
            )
    return InspectorLog(name, operations, damaged)


def _operation(
    whose: _Header, collective: _Collective | None, message: _Message | None
) -> NotedOperation:
    if collective is not None:
        times = collective.event_trace_ts or _Times()
        about = (collective.coll, collective.coll_sn, collective.coll_msg_size_bytes)
        began, ended = times.coll_start_ts, times.coll_stop_ts
    elif message is not None:
        times = message.event_trace_ts or _Times()
        about = (message.p2p, message.p2p_sn, message.p2p_msg_size_bytes)
        began, ended = times.p2p_start_ts, times.p2p_stop_ts
    else:
        raise AssertionError("a line that notes nothing is no operation")
    ranks = rank_number(whose.n_ranks)
    return NotedOperation(whose.id, UNKNOWN if ranks is None else ranks, *about, began, ended)


def _check_version(name: str, version: str) -> None:
    if not _VERSION.fullmatch(version):
        raise UnsupportedInput(
            f"{name}: its format has version {version[:32]!r}, traceprobe reads v4.x; a newer "
            "traceprobe may read it"
        )


def _header(line: bytes) -> _Header | None:
    try:
        return _DECODER.decode(line).header
    except JSON_ERRORS:
        return None


def _head(path: Path) -> list[bytes]:
    """The first lines of a file; the last of them may be cut."""
    with open_regular(path) as file:
        blocks = iter(lambda: file.read(_HEAD), b"")
        return next(_unpacked(blocks, _HEAD), b"").splitlines()


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file; one that no log has is cut.

    Raises:
        DamagedInput: the file is too long.
    """
    total, rest = 0, b""
    with open_regular(path) as file:
        for piece in _unpacked(iter(lambda: file.read(_BLOCK), b""), _BLOCK):
            total += len(piece)
            if total > MOST_BYTES:
                raise DamagedInput(
                    f"{path.name}: has more than {MOST_BYTES >> 30} GiB; keep the lines of the "
                    "steps that are profiled"
                )
            *whole, rest = (rest + piece).split(b"\n")
            yield from whole
            rest = rest[:_LONGEST_LINE]
    yield rest


def _unpacked(blocks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Blocks of a file, through gzip if it is compressed; as far as they decode."""
    blocks = iter(blocks)
    first = next(blocks, b"")

    def all_blocks() -> Iterator[bytes]:
        yield first
        yield from blocks

    return Gunzip().pieces(all_blocks(), size) if first.startswith(_GZIP) else all_blocks()
