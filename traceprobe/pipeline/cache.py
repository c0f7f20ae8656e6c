"""Columns of traces that were read before, kept in a folder that the user names.

An entry is one file: a zip archive of a Parquet table for each frame of a trace and a JSON text for
the rest. All of that is data, so it cannot run; and an entry that was changed, or that someone else
made, is not believed: it begins with a checksum that only this user can compute, of all its columns
and of the digest of the file that they are of. Its name is a digest of the trace's content, one of
whatever turns content into columns, and one of the user's secret; what changes one of them finds no
entry, so nobody has to tell an old one from a new one.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl
from msgspec.structs import replace

from traceprobe import ingest
from traceprobe.ingest.detect_format import detect_format, printable
from traceprobe.ingest.limits import DEFAULT_LIMITS, Limits
from traceprobe.ingest.read_trace import absent, read_trace
from traceprobe.ingest.trace_size import check_trace_size
from traceprobe.model import events as model
from traceprobe.model import operands, sidecar
from traceprobe.model.events import (
    GPU_OPS,
    GPU_SAMPLES,
    HOST_CALLS,
    HOST_FRAMES,
    HOST_MODULES,
    HOST_OPERATORS,
    HOST_RANGES,
    HOST_WORK,
    KERNEL_COUNTERS,
    STREAM_EVENTS,
    Device,
    Origin,
    Trace,
)
from traceprobe.model.operands import Operands
from traceprobe.model.quality import Quality
from traceprobe.system import reading, seal
from traceprobe.system.atomic_write import write_whole

if TYPE_CHECKING:
    from traceprobe.ingest.read_trace import Progress

_READERS = Path(ingest.__file__).parent
_FACTS = "trace.json"
_FRAMES = {
    "gpu_ops": GPU_OPS,
    "host_calls": HOST_CALLS,
    "host_ranges": HOST_RANGES,
    "host_operators": HOST_OPERATORS,
    "host_modules": HOST_MODULES,
    "host_frames": HOST_FRAMES,
    "host_work": HOST_WORK,
    "host_waits": HOST_WORK,
    "stream_events": STREAM_EVENTS,
    "gpu_samples": GPU_SAMPLES,
    "kernel_counters": KERNEL_COUNTERS,
}
_DECODERS = ("msgspec", "numpy", "pandas", "polars")
SMALL = 10_000
"""Rows of a table up to which its description, which Parquet does not compress, counts."""
LEAST_ENTRY, MOST_RATIO = 256 << 20, 16
"""Bytes that any entry may have, and how many times those of its trace: it is read into memory."""


class Use(msgspec.Struct, frozen=True):
    """What the cache did for one file.

    Args:
        text: that, for people.
        failed: nothing was kept, although it should have been.
    """

    text: str
    failed: bool = False


class _Facts(msgspec.Struct):
    """A trace without its frames."""

    form: str
    origin: Origin
    names: list[str]
    devices: list[Device]
    quality: Quality
    rank_of: dict[int, int]
    thread_names: list[tuple[int, int, str]]
    profiled: list[str]
    metadata: dict[str, Any]
    operands: list[Operands]


def load(
    path: Path,
    folder: Path,
    progress: Progress | None = None,
    limits: Limits = DEFAULT_LIMITS,
    jobs: int = 1,
) -> tuple[Trace, Use]:
    """As `traceprobe.ingest.read_trace.read_trace`, from the folder's entry or into a new one.

    A folder that cannot be written, or an entry that is none, never costs the trace.

    Args:
        folder: of the entries. jobs: how much of a large file may be read at once.
    """
    if not path.exists():
        raise absent(path)
    detect_format(path)
    digest = reading.sha256(path)
    try:
        entry = folder / f"{digest}-{form()}-{seal.owner()}.zip"
    except seal.NoSecret as error:
        unkept = Use(f"not kept in the cache: {error}", True)
        return read_trace(path, progress, limits, jobs), unkept
    most = max(LEAST_ENTRY, MOST_RATIO * path.stat().st_size)
    damage = ""
    try:
        content = reading.read_saved(entry, most, follow=False)
        trace = _read(seal.opened(content), digest)
    except FileNotFoundError:
        pass
    # Whatever else is wrong with an entry, the trace itself is there. Parquet readers panic.
    except (Exception, pl.exceptions.PanicException) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        damage = f"replaced a damaged entry ({reason}); "
    else:
        if progress is not None:
            progress(trace.origin.bytes, trace.origin.bytes)
        check_trace_size(trace, limits)
        named = replace(trace, origin=replace(trace.origin, name=printable(path.name)))
        return named, Use(f"columns from the cache, {_megabytes(content)}")
    trace = read_trace(path, progress, limits, jobs)
    try:
        content = _write(trace, entry, most)
    except OSError as error:
        return trace, Use(f"not kept in the cache: {folder}: {error.strerror or error}", True)
    except (TypeError, ValueError) as error:
        return trace, Use(f"not kept in the cache: {error}", True)
    return trace, Use(f"{damage}columns kept in the cache, {_megabytes(content)}")


@cache
def form() -> str:
    """A digest of whatever turns content into columns.

    The version of traceprobe would say too little, since code changes between versions, and a
    number kept by hand could be forgotten. So this is the code itself: this file, the model, the
    readers, what recordings say and how files are opened, which know nothing else of traceprobe;
    and the versions of the libraries that decode.
    """
    digest = hashlib.sha256()
    readers = [path for path in _READERS.rglob("*.py*") if path.parent.name != "__pycache__"]
    others = map(
        Path, (__file__, model.__file__, operands.__file__, sidecar.__file__, reading.__file__)
    )
    for path in [*others, *sorted(readers)]:
        content = path.read_bytes()
        digest.update(f"{path.parent.name}/{path.name} {len(content)}\n".encode())
        digest.update(content)
    for name in _DECODERS:
        digest.update(f"{name} {version(name)}\n".encode())
    return digest.hexdigest()[:16]


def _read(content: bytes, digest: str) -> Trace:
    """The trace of an entry, checked as far as columns can be.

    Raises:
        Exception: it is something else, or damaged.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:  # which checks the sums of what it reads
        facts = msgspec.json.decode(archive.read(_FACTS), type=_Facts)
        if (facts.origin.sha256, facts.form) != (digest, form()):
            raise ValueError("it is that of another file")
        frames = {
            name: _checked(archive.read(f"{name}.parquet"), schema, facts)
            for name, schema in _FRAMES.items()
        }
    return Trace(
        origin=facts.origin,
        names=facts.names,
        devices=tuple(facts.devices),
        quality=facts.quality,
        rank_of=facts.rank_of,
        thread_names={(pid, thread): name for pid, thread, name in facts.thread_names},
        profiled=frozenset(facts.profiled),
        metadata=facts.metadata,
        operands=facts.operands,
        **frames,
    )


def _checked(content: bytes, schema: Any, facts: _Facts) -> pl.DataFrame:
    frame = pl.read_parquet(io.BytesIO(content)).rechunk()
    if frame.schema != pl.Schema(schema) or sum(frame.null_count().row(0)):
        raise ValueError("it has other columns")
    if "name" in schema and not frame["name"].is_between(0, len(facts.names) - 1).all():
        raise ValueError("it has names that are not in its list")
    if "operands" in schema and not frame["operands"].is_between(-1, len(facts.operands) - 1).all():
        raise ValueError("it has operands that are not in its list")
    return frame


def _write(trace: Trace, entry: Path, most: int) -> bytes:
    """Write an entry, whole or not at all.

    Args:
        most: bytes that it may have.

    Returns:
        Its content.

    Raises:
        OSError: it cannot be written.
        TypeError, ValueError: the trace has something that does not come back from JSON as it was,
            or is too large.
    """
    facts = _Facts(
        form=form(),
        origin=replace(trace.origin, name=""),  # files of one content share an entry
        names=trace.names,
        devices=list(trace.devices),
        quality=trace.quality,
        rank_of=dict(trace.rank_of),
        thread_names=[(pid, thread, name) for (pid, thread), name in trace.thread_names.items()],
        profiled=sorted(trace.profiled),
        metadata=dict(trace.metadata),
        operands=list(trace.operands),
    )
    text = msgspec.json.encode(facts)
    if not entry.name.startswith(trace.origin.sha256):
        raise ValueError("the file changed while it was read")
    if msgspec.json.decode(text, type=_Facts) != facts:
        raise ValueError("the metadata of the trace cannot be written as JSON")
    entry.parent.mkdir(parents=True, exist_ok=True)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        info = zipfile.ZipInfo(_FACTS)
        info.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(info, text)
        for name in _FRAMES:
            info = zipfile.ZipInfo(f"{name}.parquet")
            if len(getattr(trace, name)) < SMALL:
                info.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(info, "w", force_zip64=True) as member:
                getattr(trace, name).write_parquet(member, statistics=False)
    content = seal.sealed(packed.getvalue())
    if len(content) > most:
        raise ValueError(f"its entry would have {_megabytes(content)}")
    with write_whole(entry, replace=True) as temporary:  # others may be reading or writing it
        temporary.write_bytes(content)
    return content


def _megabytes(content: bytes) -> str:
    return f"{len(content) / 1e6:.1f} MB"
