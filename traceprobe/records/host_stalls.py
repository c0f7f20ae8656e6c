"""What keeps the host from launching in the middle of training, as the trace names it.

`cost_ns` is idle time of the device in such calls and after them until the host is ahead again, as
far as the calls last.
"""

from __future__ import annotations

import msgspec

from traceprobe.records.texts import Name


class DeviceAllocations(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that was taken from the driver and given back, calls of set-up left out."""

    allocations_per_step: float
    frees_per_step: float
    iterations: int
    """Used iterations with any of these calls."""
    frees_iterations: int = 0
    """Used iterations in which memory is given back; 0 in reports of older versions."""
    host_ns: int
    """What the calls last."""
    cost_ns: int
    for_room: float | None
    """Part of the calls that give memory back which make room for an allocation: those in an
    operator of ATen, and those in another range, or without operators in the trace, right before an
    allocation. None without any."""
    lines: dict[Name, int]
    """Where it is given back, or without that taken, and for how many ns, the most first."""


class CompiledFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A function that is compiled again and again, by Dynamo's number of it."""

    frame: int
    versions: int
    """Compiled since the program began, as its numbers say."""


class Compilations(msgspec.Struct, frozen=True, kw_only=True):
    """What `torch.compile` compiles after the program should be warm."""

    iterations: int
    """Used iterations in whose window it compiles."""
    host_ns: int
    cost_ns: int
    frames: list[CompiledFrame]
    """Those with the most versions first; empty where the trace does not name them."""
    lines: dict[Name, int]
    """Where the compilations begin, and how long they last there, the longest first."""


class GarbageCollections(msgspec.Struct, frozen=True, kw_only=True):
    """What Python's garbage collector does, as ranges around it tell."""

    count: int
    iterations: int
    """Used iterations in which it collects."""
    host_ns: int
    longest_ns: int
    cost_ns: int
    lines: dict[Name, int]
    """Where the collections begin, and how long they last there, the longest first."""


class CompiledRegions(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of functions that `torch.compile` has made."""

    regions_per_step: float
    breaks_per_step: float
    """Those that are made inside another: the graph of that one is broken."""
    cost_ns: int
    """Of the time in broken ones and in none of their graphs."""
    eager_ns: int
    """Element-wise kernels, reductions and copies of forward and backward pass that no compiled
    graph launches; 0 where no graph is broken. Where graphs launch less than half of the time of
    these passes' kernels, only what compiled modules launch of it."""
    eager_kernels: float = 0.0
    """How many kernels of a step that is; 0 in reports of older versions."""
    launched_ns: int = 0
    """Such kernels that compiled graphs launch; 0 in reports of older versions."""
    lines: dict[Name, int]
    """Where the inner ones are called, and how often, most first."""
