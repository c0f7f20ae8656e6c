"""Pictures of made-up iterations whose partition is known: built, not measured.

A `Canvas` collects operations and rows of the host of one window; its partition is swept from
them, the first class of the taxonomy where several run at once, and idle time has the cause that
the builder says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from traceprobe.model.taxonomy import PARTITION
from traceprobe.records.packed import Table
from traceprobe.records.picture import HOST, OPS, PARTS, Picture, Thread, Window

US = 1_000
MS = 1_000_000
KINDS = ("range", "operator", "call", "wait")
STEP, AUTOGRAD = 0, 1


@dataclass
class Canvas:
    """One window that is being drawn; times in ns after its start."""

    duration: int
    ops: list[tuple[int, ...]] = field(default_factory=list)
    host: list[tuple[int, ...]] = field(default_factory=list)
    idle: list[tuple[int, int, str]] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    streams: dict[int, int] = field(default_factory=dict)

    def name(self, text):
        return self.names.setdefault(text, len(self.names))

    def op(self, start, length, key, name, stream=7, launch=None, thread=STEP, size=0, shared=0):
        """An operation; `launch` is when its call began, None where that is not known."""
        row = (
            start,
            length,
            self.streams.setdefault(stream, len(self.streams)),
            PARTITION.index(key),
            self.name(name),
            0 if launch is None else 1 + start - launch,
            0 if launch is None else 1 + thread,
            size,
            shared,
        )
        self.ops.append(row)
        return start + length

    def row(self, start, length, kind, name, thread=STEP):
        self.host.append((start, length, thread, KINDS.index(kind), self.name(name)))

    def waits(self, start, end, cause):
        """Idle time in it has this cause; elsewhere it is `idle_host`."""
        self.idle.append((start, end, cause))

    def parts(self):
        """The partition: (duration, class) of stretches that tile the window."""
        edges = {0, self.duration}
        events = []
        for start, length, _, key, *_ in self.ops:
            end = min(start + length, self.duration)
            edges |= {start, end}
            events += [(start, 1, key), (end, -1, key)]
        for start, end, _ in self.idle:
            edges |= {max(0, start), min(end, self.duration)}
        events.sort()
        cuts = sorted(edges)
        active = [0] * len(PARTITION)
        found, at, cause = [], 0, 0
        idle = sorted(self.idle)
        for start, end in pairwise(cuts):
            while at < len(events) and events[at][0] <= start:
                active[events[at][2]] += events[at][1]
                at += 1
            while cause < len(idle) and idle[cause][1] <= start:
                cause += 1
            key = next((k for k, count in enumerate(active) if count), None)
            if key is None:
                known = cause < len(idle) and idle[cause][0] <= start
                key = PARTITION.index(idle[cause][2] if known else "idle_host")
            if found and found[-1][1] == key:
                found[-1] = (found[-1][0] + end - start, key)
            else:
                found.append((end - start, key))
        return found

    def window(self, why="typical", iteration=3, start=0):
        return Window(
            why=why,
            iteration=iteration,
            start_ns=start,
            duration_ns=self.duration,
            ops=packed(OPS, sorted(self.ops), delta=True),
            parts=packed(PARTS, self.parts()),
            host=packed(HOST, sorted(self.host, key=lambda r: (r[0], -r[1])), delta=True),
        )

    def picture(self, *windows, clock=None):
        return Picture(
            classes=list(PARTITION),
            streams=list(self.streams),
            threads=[Thread(role="step", name="python"), Thread(role="autograd", name="autograd")],
            names=list(self.names),
            kinds=list(KINDS),
            windows=list(windows),
            clock_ns=clock,
        )


def packed(names, rows, *, delta=False):
    columns = np.array(rows, dtype=np.int64).reshape(-1, len(names)).T
    found = dict(zip(names, columns, strict=True))
    if delta:
        found["start"] = np.diff(found["start"], prepend=0)
    return Table.of(found)


def partition_of(canvas):
    """Time of each class of the window, ns."""
    found = {}
    for length, key in canvas.parts():
        found[PARTITION[key]] = found.get(PARTITION[key], 0) + length
    return found


def steps(canvas, at, count, length, gap, launch_ahead):
    """Forward, backward and optimizer kernels with their launches, from `at` on."""
    phases = ("forward", "backward", "optimizer")
    canvas.row(max(0, at - launch_ahead - 20 * US), count * (length + gap), "range", "train_step")
    for n in range(count):
        key = phases[n * 3 // count]
        launched = max(0, at - launch_ahead)
        thread = AUTOGRAD if key == "backward" else STEP
        call = min(5 * US, max(1, (length + gap) // 2))
        canvas.row(launched, call, "call", "cudaLaunchKernel", thread)
        if launched >= 2 * US:
            canvas.row(launched - 2 * US, call + 3 * US, "operator", f"aten::op_{n % 7}", thread)
        canvas.op(at, length, key, f"sm90_xmma_{key}_{n % 9}<float, {n % 3}>", 7, launched, thread)
        at += length + gap
    return at


def simple_picture(partition, iteration, start, names=("kernel", "aten::linear")):
    """One window with these classes, ms, one operation each, in their order."""
    canvas = Canvas(sum(partition.values()) * MS)
    at = 0
    for n, (key, length) in enumerate(partition.items()):
        end = at + length * MS
        if key.startswith("idle_"):
            canvas.waits(at, end, key)
        else:
            canvas.op(at, length * MS, key, names[n % len(names)], 7, max(0, at - MS))
            canvas.row(max(0, at - MS), MS, "call", "cudaLaunchKernel")
        at = end
    canvas.row(0, canvas.duration // 2, "operator", names[-1])
    return canvas.picture(canvas.window(iteration=iteration, start=start))


def io_bound():
    """Waits for the loader, copies the batch, computes without gaps."""
    canvas = Canvas(100 * MS)
    canvas.waits(0, 62 * MS, "idle_data_wait")
    canvas.row(0, 61 * MS, "range", "DataLoader.__next__")
    canvas.op(62 * MS, 8 * MS, "h2d", "Memcpy HtoD", 13, 61_500_000, size=38_535_168)
    steps(canvas, 70 * MS, 300, 100 * US, 0, 200 * US)
    return canvas


def overhead_bound():
    """Small kernels with larger gaps between them, and a call that waits."""
    canvas = Canvas(20 * MS)
    at = steps(canvas, 100 * US, 900, 6 * US, 14 * US, 8 * US)
    canvas.waits(at, at + MS, "idle_sync")
    canvas.row(at - 10 * US, MS, "wait", "cudaStreamSynchronize")
    return canvas


def compute_bound():
    """Kernels one after the other, launched long before they begin."""
    canvas = Canvas(50 * MS)
    canvas.waits(0, 50 * MS, "idle_latency")
    steps(canvas, 30 * US, 400, 122 * US, 2 * US, 25 * US)
    return canvas


def communication(late):
    """Kernels with collectives beside and behind them; this rank is `late` ns late."""
    canvas = Canvas(40 * MS)
    at = steps(canvas, 50 * US + late, 60, 300 * US, 0, 30 * US)
    canvas.row(at, 200 * US, "operator", "c10d::allreduce_")
    for n in range(8):
        start = 6 * MS + n * 4 * MS + late
        end = min(6 * MS + n * 4 * MS + 3_500_000, 40 * MS)
        canvas.op(
            start,
            end - start,
            "communication",
            "ncclDevKernel_AllReduce_Sum_f32_RING",
            20,
            start - 15 * US,
            AUTOGRAD,
            26_214_400,
            n + 1,
        )
        canvas.row(start - 15 * US, 4 * US, "call", "cudaLaunchKernelExC", AUTOGRAD)
    canvas.waits(0, 40 * MS, "idle_host")
    return canvas


def tiny_kernels(count=200_000):
    """Kernels far below a pixel, with gaps of two causes."""
    canvas = Canvas(count * 2 * US)
    rng = np.random.default_rng(1)
    lengths = rng.integers(300, 1_500, count)
    for n, length in enumerate(lengths.tolist()):
        key = ("forward", "backward", "optimizer", "memory")[(n * 40 // count) % 4]
        canvas.op(
            n * 2 * US, length, key, f"elementwise_kernel_{n % 50}", 7, max(0, n * 2 * US - 400)
        )
    half = canvas.duration // 2
    canvas.waits(0, half, "idle_host")
    canvas.waits(half, canvas.duration, "idle_latency")
    for n in range(0, count, 40):
        canvas.row(n * 2 * US, 70 * US, "operator", f"aten::op_{n % 11}")
    return canvas


def two_ranks(late=3_100_000):
    """Canvases of two ranks; the second is late at every collective."""
    return [communication(0), communication(late)]


SINGLE = {
    "io": io_bound,
    "overhead": overhead_bound,
    "compute": compute_bound,
    "tiny": tiny_kernels,
}
