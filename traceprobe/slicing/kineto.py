"""Slices of Kineto traces: what is not on a list of what may be passed on is left out.

Events whose arguments are all on the list are copied as text, the others are written anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from traceprobe.ingest.chunks import BOUNDARY, Reader, Split
from traceprobe.ingest.envelope import TOP_LEVEL, parse_object
from traceprobe.ingest.kineto_columns import GPU, STACKS, base_ns, floats, nanoseconds
from traceprobe.ingest.sniff import recognise
from traceprobe.model import UNKNOWN
from traceprobe.slicing.record import public_record

if TYPE_CHECKING:
    from traceprobe.slicing import Cut, Window

PUBLIC = frozenset(TOP_LEVEL) - {"host_name", "metadata", "INFO", "WARNING", "ERROR", "trace_id"}
PUBLIC_ARGUMENTS = frozenset(
    {
        *("External id", "external id", "Ev Idx", "Record function id", "correlation", "cbid"),
        *("Python parent id", "Python id", "Python module id", "Input Dims", "Input type"),
        *("Input Strides", "Sequence number", "Fwd thread id", "stream", "device", "context"),
        *("grid", "block", "shared memory", "queued", "registers per thread", "blocks per SM"),
        *("warps per SM", "est. achieved occupancy %", "graph id", "graph node id", "kind", "cid"),
        *("Total Reserved", "Total Allocated", "Bytes", "Addr", "Device Id", "Device Type"),
        *("bytes", "memory bandwidth (GB/s)", "fromDevice", "inDevice", "toDevice", "kernel"),
        *("In msg nelems", "Out msg nelems", "In split size", "Out split size", "Group size"),
        *("dtype", "Collective name", "Process Group Name", "Process Group Ranks", "Rank", "Seq"),
        *("Global rank start", "Global rank stride", "Src Rank", "Dst Rank", "Op count"),
        *("Comms Id", "Process Group ID", "cuda_sync_kind", "wait_on_stream", "sort_index"),
        *("wait_on_cuda_event_id", "wait_on_cuda_event_record_corr_id", "kernel_backend"),
        *("num_warps", "num_stages", "src", "dst", "copy kind", "src kind", "dst kind"),
    }
)
"""Arguments of events that hold numbers, shapes and names of work."""
PUBLIC_TEXTS = (
    "backend",
    "backend_config",
    "displayTimeUnit",
    "nccl_version",
    "pg_desc",
    "pg_name",
)
_WORD = re.compile(r"[\w.:,+-]*")
_FLOW = ("s", "f", "t")
_LABEL = re.compile(r"CPU|GPU \d+")
_FOLDER = re.compile(r"^.*[/\\](?=[^/\\]*\(\d+\))")


class _Row(msgspec.Struct, gc=False):
    """The few fields that decide whether an event is kept."""

    ph: str = ""
    cat: str | None = None
    name: Any = None
    ts: int | float | str | None = None
    id: int | float | str | None = None
    args: dict[str, Any] | None = None


_DECODE = msgspec.json.Decoder(_Row).decode


def write(source: Path, target: Path, plan: Cut) -> None:
    """Write the slice, one event a line. Damaged events are left out."""
    window = next(iter(plan.windows.values()))
    facts = head_and_tail(source)
    base = base_ns(facts)
    calls = plan.trace.host_calls
    kept_calls = calls.filter((pl.col("t0") >= window.low) & (pl.col("t0") < window.high))
    linked = set(kept_calls["correlation"].to_list()) - {UNKNOWN}
    known = set(calls["correlation"].to_list()) - {UNKNOWN}
    chosen = _Chooser(window, base, linked, known)
    arrows = {(row.cat, str(row.id)) for row, _ in _events(source) if row.ph == "s" and chosen(row)}
    with target.open("w", encoding="utf-8", newline="\n") as file:
        file.write(_head(facts, plan))
        separator = "\n"
        for row, text in _events(source):
            keep = (row.cat, str(row.id)) in arrows if row.ph in _FLOW else chosen(row)
            if keep:
                file.write(separator + _public(row, text))
                separator = ",\n"
        file.write("\n]}\n")


class _Chooser:
    """Whether an event belongs to the slice."""

    def __init__(self, window: Window, base: int, linked: set[int], known: set[int]) -> None:
        self._window, self._base, self._linked, self._known = window, base, linked, known

    def __call__(self, row: _Row) -> bool:
        if row.ph == "M":
            return True
        time = floats([row], attrgetter("ts"))
        if time[0] != time[0]:  # not a number
            return False
        at = int(nanoseconds(time)[0]) + self._base
        window = self._window
        if row.cat in GPU or row.cat == "gpu_user_annotation":
            correlation = (row.args or {}).get("correlation")
            if row.cat in GPU and correlation in self._known:
                return correlation in self._linked
            return window.gpu_low <= at < window.gpu_high
        return window.low <= at < window.high


def _public(row: _Row, text: str) -> str:
    """The event without private arguments, and without the folders of source files."""
    arguments = row.args or {}
    stack = isinstance(row.name, str) and row.cat in STACKS
    if row.ph != "M" and not stack and arguments.keys() <= PUBLIC_ARGUMENTS:
        return text
    event = msgspec.json.decode(text)
    if stack:
        event["name"] = _FOLDER.sub("", str(row.name))
    event["args"] = {k: v for k, v in arguments.items() if k in PUBLIC_ARGUMENTS}
    if row.ph == "M":
        event["args"] |= named(row.name, arguments)
    return json.dumps(event)


def named(what: Any, arguments: dict[str, Any]) -> dict[str, str]:
    """What a metadata event names: threads keep their names, processes lose theirs."""
    if what == "process_name":
        return {"name": "python"}
    if what == "process_labels" and _LABEL.fullmatch(str(arguments.get("labels"))):
        return {"labels": str(arguments["labels"])}
    return {"name": str(arguments["name"])} if what == "thread_name" and "name" in arguments else {}


def _events(source: Path) -> Iterator[tuple[_Row, str]]:
    for piece in pieces(source):
        try:
            yield _DECODE(piece), piece.decode("utf-8", "replace").replace("\n", " ")
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue


def pieces(source: Path) -> Iterator[bytes]:
    """The text of each event, damaged ones too."""
    found = recognise(source)
    reader = Reader(source, found.gzipped, lambda done, total: None)
    for chunk in Split().chunks(reader.blocks()):
        start = 0
        for match in [*BOUNDARY.finditer(chunk), None]:
            yield chunk[start : match.start() + 1 if match else len(chunk)].strip(b", \t\r\n")
            start = match.end() if match else len(chunk)


def head_and_tail(source: Path) -> dict[str, Any]:
    """The metadata of a trace."""
    reader = Reader(source, recognise(source).gzipped, lambda done, total: None)
    split = Split()
    for _ in split.chunks(reader.blocks()):
        pass
    head = split.head.strip().rstrip(b", \t\r\n") + b"}"
    tail = b"{" + split.tail.strip().removeprefix(b",")
    return {**(parse_object(head) or {}), **(parse_object(tail) or {})}


def shown(key: str, value: Any) -> Any:
    """Metadata without texts but those of known keys, and of our own what we write."""
    if key == "traceprobe":
        return public_record(value)
    if isinstance(value, dict):
        return {k: shown(k, v) for k, v in value.items()}
    if isinstance(value, list):
        return [shown(key, item) for item in value]
    known = key == "name" or (key in PUBLIC_TEXTS and _WORD.fullmatch(str(value)))
    return value if known or not isinstance(value, str) else None


def _head(facts: dict[str, Any], plan: Cut) -> str:
    metadata = {k: shown(k, v) for k, v in facts.items() if k in PUBLIC}
    metadata["traceName"] = plan.trace.origin.name
    metadata["traceprobe_slice"] = plan.note
    return json.dumps(metadata, sort_keys=True)[:-1] + ', "traceEvents": ['
