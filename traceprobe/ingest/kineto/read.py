"""PyTorch profiler (Kineto) Chrome traces: dialects A to G, read in bounded chunks.

Only the fields that the analysis needs are decoded; operators are reduced to the few facts that
decide a phase (who is an autograd thread, what runs forward again), of Python's frames only calls
of modules are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from traceprobe.errors import UnsupportedInput
from traceprobe.ingest import foreign_traces
from traceprobe.ingest.detect_format import DetectedFormat, printable
from traceprobe.ingest.gunzip import warn_of_checksums
from traceprobe.ingest.joins import Table
from traceprobe.ingest.kineto.chunk_columns import Chunk, ChunkColumns, columns_of_chunk
from traceprobe.ingest.kineto.chunks import LONGEST, BlockReader, EventSplitter, read_ahead
from traceprobe.ingest.kineto.columns import EventColumns, base_ns, collect_tables
from traceprobe.ingest.kineto.decode import TWICE, decode_events, garbage_collection_paused
from traceprobe.ingest.kineto.envelope import top_level_properties
from traceprobe.ingest.kineto.no_events import without_events
from traceprobe.ingest.kineto.shares import shares
from traceprobe.ingest.limits import Limits
from traceprobe.ingest.untrusted_values import tool_version
from traceprobe.model.quality import Quality

if TYPE_CHECKING:
    from traceprobe.ingest.kineto.kernel_counters import CounterEvent
    from traceprobe.model.events import Trace

_CHECKED = {"thread": "threads", "pid": "processes", "device": "devices"}
"""Columns of which each value costs a pass over all rows, and what their number is limited by."""
_BACK = 0.5
"""Part of the capture that time goes back by where the next thread's events begin, at least."""
_STREAMED = b'{"ph":"'
"""How the first event of the exporter in Python begins."""


def read_kineto(
    path: Path,
    detected: DetectedFormat,
    progress: Callable[[int, int], None],
    limits: Limits,
    jobs: int = 1,
) -> Trace:
    """The trace in a Kineto file. Errors are those of `traceprobe.ingest.read_trace`.

    Args:
        jobs: processes that decode the events of a large file.
    """
    quality = Quality()
    reader = BlockReader(path, detected.gzipped, progress, limits)
    split = EventSplitter()
    columns = EventColumns()
    chunks = _columns(split, read_ahead(reader.blocks()), quality, shares(path, detected, jobs))
    with garbage_collection_paused(), closing(chunks):
        for chunk in chunks:
            columns.add(chunk)
            limits.check("names", len(columns.names), path.name)
    import polars as pl  # which takes its time, as those do that need it

    from traceprobe.ingest.kineto.kernel_counters import CATEGORY, CounterEvent
    from traceprobe.ingest.kineto.link import build_trace
    from traceprobe.model.events import Origin

    if columns.made_of is not None:
        raise UnsupportedInput(
            f"{path.name}: was made by `traceprobe annotate` for viewers; analyse what it was made "
            f"of: {columns.made_of}"
        )
    if not columns.events:
        raise without_events(path, gzipped=detected.gzipped, lost=quality.events_lost)
    if reader.truncated or not (split.ended or split.bare_list):
        quality.warn(
            "truncated-file",
            "The file ends in the middle of the events; the part before that was read.",
        )
    warn_of_checksums(quality, reader.wrong_sums)
    if split.oversized:
        quality.damaged(
            "oversized-events",
            split.oversized,
            f"events are longer than {LONGEST >> 20} MiB; they were left out.",
        )
    metadata = top_level_properties(split.head, split.tail, quality)
    if "gpu" not in columns.parts:
        foreign = foreign_traces.of_chrome_trace(
            columns.process_names, metadata, columns.categories
        )
        if foreign is not None:
            raise UnsupportedInput(f"{path.name}: is {foreign}; {foreign_traces.READS}")
    origin = Origin(
        name=printable(path.name),
        sha256=reader.digest.hexdigest(),
        format="kineto",
        dialect=_dialect(columns, metadata, split),
        producer=_producer(metadata),
        bytes=path.stat().st_size,
        base_ns=base_ns(metadata),
    )
    tables = collect_tables(columns, metadata, quality)
    if "truncated-file" in quality.warnings and _thread_by_thread(tables.values()):
        quality.warn(
            "truncated-steps",
            "What the file has was written thread by thread, so that any step may lack a part of "
            "its work: copy the whole file.",
        )
    for table in tables.values():
        for column, limit in _CHECKED.items():
            if column in table:
                limits.check(limit, pl.Series(table[column]).n_unique(), path.name)
    counted: Iterable[list[CounterEvent]] = ()
    if CATEGORY in columns.categories:
        again = BlockReader(path, detected.gzipped, lambda *_: None, limits)
        counted = decode_events(EventSplitter().chunks(again.blocks()), CounterEvent, Quality())
    return build_trace(tables, columns, metadata, origin, quality, counted)


def _columns(
    split: EventSplitter, blocks: Iterator[bytes], quality: Quality, jobs: int
) -> Generator[ChunkColumns, None, None]:
    """The columns of each chunk; what was damaged is counted on the way."""
    works = (Chunk(text, split.first.startswith(_STREAMED)) for text in split.chunks(blocks))
    with closing(_made(works, jobs)) as found:
        for columns in found:
            quality.events_repaired += columns.repaired
            quality.events_lost += columns.lost
            if columns.twice:
                quality.damaged("duplicate-keys", columns.twice, TWICE)
            yield columns


def _made(chunks: Iterator[Chunk], jobs: int) -> Generator[ChunkColumns, None, None]:
    if jobs > 1:
        from traceprobe.system.shared_work import results_in_order  # that takes its time

        return results_in_order(columns_of_chunk, chunks, jobs)
    return (columns_of_chunk(chunk) for chunk in chunks)


def _thread_by_thread(tables: Iterable[Table]) -> bool:
    """Whether what one thread did is written before what another did at the same time."""
    begins = [table["t0"] for table in tables if len(table.get("t0", ()))]
    if not begins:
        return False
    span = max(int(t0.max()) for t0 in begins) - min(int(t0.min()) for t0 in begins)
    return any(int((np.maximum.accumulate(t0) - t0).max()) > _BACK * span for t0 in begins)


def _dialect(columns: EventColumns, metadata: dict[str, Any], split: EventSplitter) -> str:
    """One of A to G, told by shape: the file carries no version of PyTorch."""
    if split.bare_list and columns.categories <= {"cpu_to_cuda"}:
        return "A (legacy autograd list)"
    if any(category[:1].isupper() for category in columns.categories if category != "Trace"):
        return "B (capitalised categories, PyTorch 1.8 to 1.11)"
    if columns.copy_kinds:
        return "G (cupti_monitor backend)"
    if split.first.startswith(_STREAMED):
        return "F (Python streaming exporter)"
    if "baseTimeNanoseconds" in metadata:
        return "E (relative to baseTimeNanoseconds, PyTorch 2.4 or later)"
    if columns.fractional:
        return "D (epoch microseconds with decimals)"
    return "C (epoch microseconds, PyTorch 1.12 to 2.3)"


def _producer(metadata: dict[str, Any]) -> str:
    versions = {
        "CUPTI": tool_version(metadata.get("cupti_version")),
        "CUDA runtime": tool_version(metadata.get("cuda_runtime_version")),
        "HIP runtime": tool_version(metadata.get("hip_runtime_version")),
    }
    known = [f"{name} {number}" for name, number in versions.items() if number is not None]
    return ", ".join(["PyTorch profiler (Kineto)", *known])
