"""The timeline of a report: whole iterations with every operation, a table of the longest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from traceprobe.formatting import duration, percent, shorten
from traceprobe.model.codes import Int64s
from traceprobe.model.taxonomy import (
    AWAITS_DEVICE,
    BUSY_LABELS,
    CLASS_LABELS,
    IDLE_CAUSES,
    PARTITION,
    PATH_LABELS,
)
from traceprobe.records.critical_path import CriticalPath
from traceprobe.records.picture import Picture, Window
from traceprobe.records.rank import Rank
from traceprobe.records.report import Report
from traceprobe.render.colours import CLASS_COLOURS, HOST_COLOURS, OTHER_COLOUR, PATH_COLOURS
from traceprobe.render.document import Section, Table, Timeline

if TYPE_CHECKING:
    import msgspec

MAX_TABLE_ROWS = 40
MAX_NAME = 200
TITLE = "Timeline"
CAPTION = "Timeline of whole iterations"
OLD = (
    "This report has no timeline with every operation: it was written by an older version of "
    "traceprobe, or without details. Analyse the trace again to see one."
)
_HELP = (
    "Time runs to the right. The top lane of a rank divides all of its time: every instant "
    "has one class, and idle time has the colour of its cause. Below it are the GPU's streams, in "
    "which operations may run at once, then the threads of the host with their ranges and "
    "operators, outer ones first (“6 of 9” where inner ones have no room), and their calls. "
    "Nothing is merged: where operations are shorter than a pixel, the height of a colour in that "
    "column is its share of the column's time. Look for idle time, and for what the host does at "
    "that moment. A line leads from an operation to the call that launched it, and from a "
    "collective to the same one on other ranks."
)
_PATH_HELP = (
    " The thin lane below the top one is the critical path, as far as it runs on this rank: what "
    "the step is as long as. A line leads to the rank that it goes on on."
)
_WHICH = {
    "typical": "a typical one",
    "fastest": "the fastest",
    "slowest": "the slowest",
    "only": "the only one",
    "long": "a long one",
    "capture": "",
}
MEANINGS = {
    "forward": "kernels of the forward pass",
    "backward": "kernels of the backward pass",
    "recompute": "kernels that compute activations again for the backward pass",
    "optimizer": "kernels of the optimizer",
    "graph": "a CUDA graph, whose kernels are launched at once",
    "input": "kernels that prepare the batch on the GPU",
    "unattributed": "kernels that nothing puts into a phase",
    "communication": "communication between GPUs",
    "h2d": "copying from the host to the GPU",
    "d2h": "copying from the GPU to the host",
    "memory": "copying or setting memory inside the GPU",
    "idle_data_wait": "the program waits for the data loader",
    "idle_host": "the host is busy with Python, the framework or launching, and launches too late",
    "idle_sync": "the host waited for the GPU, and launches the next work only afterwards",
    "idle_latency": "the work was launched in time, and has not begun yet",
    "idle_profiler": "the profiler keeps the host busy",
    "idle_unexplained": "the trace does not show what the host does",
}
"""Of `PARTITION`, in a line."""
HOST_LABELS = {
    "range": ("range", "a range that the program or a library marked"),
    "operator": ("operator", "an operator of PyTorch"),
    "call": ("CUDA call", "a call of the CUDA runtime or driver"),
    "wait": ("waiting CUDA call", "the thread stands still until the GPU has finished"),
}
"""Word and meaning of what a thread of the host does."""
PATH_MEANINGS = {
    "host": "the host's own time: Python, the framework, launching",
    "data-wait": "the host waits for the data loader",
    "launch": "from a launch to the start of its operation",
    "delay": "an operation begins later than all that it is known to wait for",
}
"""What a critical path consists of besides operations of the GPU."""


ALL = "all of its time"
"""The lane of a rank that every instant is in."""
_BUSY = {
    "gpu": ("the GPU is busy", "GPU operations"),
    "cpu": ("operators run", "operators"),
}
"""What fills the time, and its pieces, by the kind of device."""


def timeline_section(report: Report, ranks: Sequence[Rank]) -> Section | None:
    """The timeline of these ranks of the report; None where there is nothing to draw.

    A report that was written before there were pictures gets a sentence that says so.
    """
    drawn = [r for r in ranks if isinstance(r.picture, Picture) and r.picture.windows]
    if not drawn:
        any_time = any(rank.summary.window_ns for rank in ranks)
        return Section("timeline", TITLE, [OLD], brief=False) if any_time else None
    timeline = _timeline(drawn, [report.ranks.index(r) for r in drawn], report.critical_path)
    has_path = isinstance(report.critical_path, CriticalPath) and report.critical_path.stretches
    text = _HELP + _PATH_HELP if has_path else _HELP
    return Section("timeline", TITLE, blocks=[timeline], help=text, brief=False)


def labels() -> dict[str, tuple[str, str, str]]:
    """Word, colour and meaning of all that a timeline draws, in the order of the stack."""
    return {
        **{key: (BUSY_LABELS[key], CLASS_COLOURS[key], MEANINGS[key]) for key in PARTITION},
        **{key: (word, HOST_COLOURS[key], text) for key, (word, text) in HOST_LABELS.items()},
        **{key: (PATH_LABELS[key], PATH_COLOURS[key], text) for key, text in PATH_MEANINGS.items()},
        "other": ("other", OTHER_COLOUR, ""),
    }


def _timeline(
    ranks: Sequence[Rank], indices: Sequence[int], path: CriticalPath | msgspec.UnsetType
) -> Timeline:
    known = labels()
    found = [p for rank in ranks if isinstance((p := rank.picture), Picture)]
    present = set().union(*map(_present, found))
    if isinstance(path, CriticalPath):
        present |= {stretch.part for stretch in path.stretches}
    return Timeline(
        caption=CAPTION,
        summary=_summary(ranks[0], found[0], len(ranks)),
        ranks=indices,
        legend=[known[key][:2] for key in known if key in present],
        labels=known,
        table=_table(ranks[0], found[0]),
    )


def _present(picture: Picture) -> set[str]:
    """Classes and kinds that occur in any window."""
    found = set()
    for window in picture.windows:
        for table, column, names in (
            (window.parts, "class", picture.classes),
            (window.ops, "class", picture.classes),
            (window.host, "kind", picture.kinds),
        ):
            found |= {names[code] for code in np.unique(table.columns()[column])}
    return found


def _summary(rank: Rank, picture: Picture, count: int) -> str:
    """What the first window of a rank shows, in two sentences."""
    window = picture.windows[0]
    spent = partition_of(picture, window)
    idle = {key: ns for key, ns in spent.items() if key in IDLE_CAUSES}
    waits = sum(idle.values())
    which = _WHICH[window.why]
    what = "The capture" if window.iteration is None else f"Iteration {window.iteration}"
    what += f" ({which})" if which and window.iteration is not None else ""
    whose = f" of rank {rank.rank}" if count > 1 else ""
    busy, op = _BUSY[rank.device.kind]
    sentence = (
        f"{what}{whose} takes {duration(window.duration_ns)}, and {busy} for "
        f"{percent(1 - waits / window.duration_ns)} of it."
    )
    if idle:
        cause = max(idle, key=lambda key: idle[key])
        share = percent(idle[cause] / window.duration_ns)
        why = AWAITS_DEVICE if _waits_elsewhere(rank, cause) else MEANINGS[cause]
        sentence += f" Most of the rest, {share}, is “{CLASS_LABELS[cause]}”: {why}."
    operations = f"All {window.ops.rows:,} {op} are drawn, each in its true length."
    return f"{sentence} {operations}" if window.ops.rows else sentence


def _waits_elsewhere(rank: Rank, cause: str) -> bool:
    """Whether most idle time of a cause is waiting for another device of the process."""
    return 2 * rank.summary.host.awaiting_device_ns(cause) > (rank.summary.partition_ns[cause] or 0)


def partition_of(picture: Picture, window: Window) -> dict[str, int]:
    """Time of each class of a window that occurs in it, ns."""
    parts = window.parts.columns()
    spent = np.bincount(parts["class"], parts["duration"], len(picture.classes))
    found: dict[str, int] = {}
    for key, ns in zip(picture.classes, spent, strict=True):
        if ns:
            found[key] = found.get(key, 0) + int(ns)
    return found


def _table(rank: Rank, picture: Picture) -> Table:
    """The longest segments of a rank's first window, in the order of time."""
    idle = [*_idle(picture)]
    queue = "thread" if rank.device.kind == "cpu" else "stream"
    segments = [*idle, *_operations(picture, queue), *_host(picture)]
    longest = sorted(segments, key=lambda s: (-s[1], s[0], s[2:]))[:MAX_TABLE_ROWS]
    rows = [
        [f"{start / 1e6:.4f} ms", duration(length), str(rank.rank), *rest]
        for start, length, *rest in sorted(longest)
    ]
    window = picture.windows[0]
    total = len(idle) + window.ops.rows + window.host.rows
    caption = f"{len(rows)} longest of {total:,} segments"
    head = ["starts at", "duration", "rank", "lane", "what", "name"]
    return Table(
        caption, head, rows, frozenset({0, 1, 2}), most=MAX_TABLE_ROWS, names=frozenset({5})
    )


Segment = tuple[int, int, str, str, str]
"""Start after the window's, duration (ns), lane, word and name."""


def _idle(picture: Picture) -> Iterator[Segment]:
    parts = picture.windows[0].parts.columns()
    ends = parts["duration"].cumsum()
    for end, length, code in zip(ends, parts["duration"], parts["class"], strict=True):
        key = picture.classes[code]
        if key in IDLE_CAUSES:
            start = int(end - length)
            yield start, int(length), ALL, CLASS_LABELS[key], MEANINGS[key]


def _operations(picture: Picture, queue: str) -> Iterator[Segment]:
    ops = picture.windows[0].ops.columns()
    for i in _longest(ops):
        lane = f"{queue} {picture.streams[ops['stream'][i]]}"
        yield (
            *_when(ops, i),
            lane,
            BUSY_LABELS[picture.classes[ops["class"][i]]],
            _name(picture, ops, i),
        )


def _host(picture: Picture) -> Iterator[Segment]:
    host = picture.windows[0].host.columns()
    for i in _longest(host):
        thread = picture.threads[host["thread"][i]]
        lane = shorten(thread.name, 60) if thread.role == "other" else f"{thread.role} thread"
        word = HOST_LABELS[picture.kinds[host["kind"][i]]][0]
        yield *_when(host, i), lane, word, _name(picture, host, i)


def _longest(table: Mapping[str, Int64s]) -> Iterator[int]:
    """Rows that may be among the longest of the picture."""
    order = np.argsort(-table["duration"], kind="stable")
    yield from (int(i) for i in order[:MAX_TABLE_ROWS])


def _when(table: Mapping[str, Int64s], i: int) -> tuple[int, int]:
    return int(table["start"][: i + 1].sum()), int(table["duration"][i])


def _name(picture: Picture, table: Mapping[str, Int64s], i: int) -> str:
    return shorten(picture.names[table["name"][i]], MAX_NAME)
