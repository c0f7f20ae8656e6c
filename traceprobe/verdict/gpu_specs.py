"""What a GPU can do at most, by its name or by what it says of itself.

The table is `gpu_specs.json`. A device that is not in it stays unknown: a peak of a similar GPU
would be a number that looks right and is not. For the same reason a name counts only as a whole
("L40S" is not "L4"), and a name whose multiprocessors or memory are not those of the table does not
count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from traceprobe.verdict.thresholds import FIXED

PRECISIONS = ("fp64", "fp64_tensor", "fp32", "tf32", "fp16", "bf16", "fp8")
AT_TENSOR_CLOCK = ("tf32", "fp16", "bf16", "fp8")
"""Those for which matrix units may have a clock of their own."""
UNNAMED = frozenset({"", "graphics device", "amd radeon graphics", "radeon graphics"})
"""Names that drivers give to devices that they do not know."""
WARP_SIZES = {"nvidia": 32, "amd": 64}
EIGHTHS = 8
"""Parts into which MIG divides memory and L2."""

_MIG = re.compile(r"(?P<gpu>.+?) mig (?P<part>\d+c\.)?(?P<slice>\d+g\.\d+gb)(?:[+-][\w.+-]+)?")

Match = Literal["name", "pattern", "fingerprint"]
Kind = Literal["datasheet", "whitepaper", "board specification", "cloud provider"]
Evidence = Literal["quoted", "named", "derived"]


class Architecture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the GPUs of a generation share.

    GeForce, A10G and L40 halve the tensor cores' rate where they accumulate in fp32: they have
    architectures of their own. CDNA 4 has no TF32 (XF32) in its matrix cores.

    Args:
        capability: what a device says of itself.
        fma: fused multiply-adds per clock and multiprocessor; a precision that is not there has no
            fast path.
    """

    vendor: Literal["nvidia", "amd"]
    capability: str
    fma: dict[str, int]


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A row of the table: a whole board.

    Every peak must be multiprocessors x FMA per clock and multiprocessor x 2 x clock, within 2 %.

    Args:
        year: of the GPU's announcement, when its data sheet first appeared.
        peaks: TFLOP/s, dense (no structured sparsity), with accumulation in fp32, at boost clock:
            what training can use.
        memory_gb: of each variant, GB.
        kind: what `source` is.
        evidence: how the numbers got here. "quoted": seen on pages that quote the source; "named":
            known to be in it, held against the formula only; "derived": from multiprocessors and
            clock, the vendor does not print them.
        dies: devices that the board is to a program.
        tensor_clock_mhz: where matrix units have a clock of their own (not for fp64). It is fitted
            to the published peaks, so the formula proves only that these precisions agree.
        bandwidth_gbps: GB/s. l2_mb: MiB.
        nvlink_gbps: GB/s of one direction, all links of the GPU together; data sheets print both
            directions.
        mig: slices that nvidia-smi lists: multiprocessors, and eighths of memory and L2.
        unproven: why a peak is not what the formula gives.
    """

    name: str
    architecture: str
    year: int
    multiprocessors: int
    clock_mhz: int
    peaks: dict[str, float]
    memory_gb: list[float]
    source: str
    kind: Kind
    evidence: Evidence
    aliases: list[str] = []
    patterns: list[str] = []
    dies: int = 1
    tensor_clock_mhz: int | None = None
    bandwidth_gbps: float | None = None
    l2_mb: float | None = None
    nvlink_gbps: float | None = None
    mig: dict[str, tuple[int, int]] = {}
    unproven: dict[str, str] = {}


class GpuTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    revised: str
    architectures: dict[str, Architecture]
    gpus: list[Entry]


class Gpu(msgspec.Struct, frozen=True):
    """A device and its peaks, scaled to the part of the board that it is.

    Args:
        name: of the whole, as the table has it.
        slice: the MIG slice, e.g. "3g.20gb"; None where it is no slice, or not a named one.
        part: its part of the board's multiprocessors.
        multiprocessors: SMs or CUs of the device.
        peaks: dense TFLOP/s at boost clock by `PRECISIONS`; those that it lacks are missing.
        bandwidth_gbps, l2_mb, nvlink_gbps: None where that is not known; NVLink in one direction.
        matched: what it was recognised by.
    """

    name: str
    slice: str | None
    part: float
    vendor: str
    capability: str
    multiprocessors: int
    clock_mhz: int
    peaks: Mapping[str, float]
    bandwidth_gbps: float | None
    l2_mb: float | None
    nvlink_gbps: float | None
    matched: Match
    source: str
    year: int


class _Share(msgspec.Struct, frozen=True):
    """A part of a board: multiprocessors, and the part of memory, L2 and bandwidth."""

    multiprocessors: int
    memory: float | None
    slice: str | None = None


@cache
def table() -> GpuTable:
    """The table, read once."""
    text = Path(__file__).with_name("gpu_specs.json").read_bytes()
    return msgspec.json.decode(text, type=GpuTable)


def find_gpu(
    name: str | None,
    capability: str | None = None,
    multiprocessors: int | None = None,
    memory_bytes: int | None = None,
    warp_size: int | None = None,
) -> Gpu | None:
    """The device of that name: by its exact name, else by a pattern, else by what else is known.

    Args:
        name: as the driver gives it, with or without the vendor; a MIG slice after the GPU's name.
        capability: compute capability, e.g. "8.0". AMD's devices give numbers that NVIDIA's have.
        multiprocessors: SMs or CUs that the device says it has.
        memory_bytes: memory that it says it has.
        warp_size: 64 tells AMD's devices from NVIDIA's.

    Returns:
        None for a device that is not in the table, and for one whose name and facts contradict
        each other. What only the facts tell counts for a device without a telling name, and only
        if they fit one row.
    """
    bare = bare_name(name)
    sliced = _MIG.fullmatch(bare)
    board, matched = _by_name(sliced["gpu"] if sliced else bare)
    facts = (capability, multiprocessors, memory_bytes, warp_size)
    if board is not None:
        part = (
            _slice(board, sliced["slice"], sliced["part"], multiprocessors, memory_bytes)
            if sliced
            else _whole(board, multiprocessors, memory_bytes)
        )
        fits = _fits(board, capability, warp_size)
        return _gpu(board, part, matched) if part is not None and fits else None
    if bare not in UNNAMED or None in facts:
        return None
    fitting = [
        (entry, part)
        for entry in table().gpus
        if _fits(entry, capability, warp_size)
        and (part := _whole(entry, multiprocessors, memory_bytes)) is not None
        and part.multiprocessors * entry.dies == entry.multiprocessors
    ]
    return _gpu(*fitting[0], "fingerprint") if len(fitting) == 1 else None


def formula(entry: Entry, precision: str) -> float:
    """What multiprocessors, multiply-adds and clock make of a precision, TFLOP/s.

    Raises:
        KeyError: the architecture has no fast path for it.
    """
    fma = table().architectures[entry.architecture].fma[precision]
    clock = entry.clock_mhz
    if precision in AT_TENSOR_CLOCK and entry.tensor_clock_mhz is not None:
        clock = entry.tensor_clock_mhz
    return entry.multiprocessors * fma * 2 * clock / 1e6


def bare_name(name: str | None) -> str:
    """A name in lower case, single spaces, without NVIDIA's name, which older drivers leave out."""
    return " ".join((name or "").lower().split()).removeprefix("nvidia ")


def _by_name(bare: str) -> tuple[Entry | None, Match]:
    for entry in table().gpus:
        if bare in map(bare_name, entry.aliases):
            return entry, "name"
    for entry in table().gpus:
        if any(re.fullmatch(p, bare, re.IGNORECASE) for p in entry.patterns):
            return entry, "pattern"
    return None, "name"


def _fits(entry: Entry, capability: str | None, warp_size: int | None) -> bool:
    architecture = table().architectures[entry.architecture]
    return capability in (None, architecture.capability) and warp_size in (
        None,
        WARP_SIZES[architecture.vendor],
    )


def _whole(entry: Entry, multiprocessors: int | None, memory_bytes: int | None) -> _Share | None:
    """One device of a board, or the slice that its facts say it is; None where they contradict."""
    die = _Share(entry.multiprocessors // entry.dies, 1 / entry.dies)
    same = multiprocessors in (None, die.multiprocessors)
    if same and _memory_fits(entry.memory_gb, memory_bytes, entry.dies):
        return die
    if entry.mig and multiprocessors is not None and multiprocessors < entry.multiprocessors:
        eighths = _eighths(entry, memory_bytes)
        # Some profilers note the multiprocessors of the slice beside the memory of the GPU.
        return _Share(multiprocessors, None if eighths == 1 else eighths)
    return None


def _slice(
    entry: Entry, name: str, part: str | None, multiprocessors: int | None, memory: int | None
) -> _Share | None:
    """A MIG slice. Of a compute instance in it (`1c.3g.20gb`) only the device knows the size."""
    count, eighths = entry.mig.get(name, (None, None))
    if multiprocessors is not None:
        count = multiprocessors
    elif part is not None:
        count = None
    if count is None or count > entry.multiprocessors:
        return None
    return _Share(
        count,
        _eighths(entry, memory) if eighths is None else eighths / EIGHTHS,
        (part or "") + name,
    )


def _memory_fits(sizes: Sequence[float], memory_bytes: int | None, dies: int) -> bool:
    if memory_bytes is None:
        return True
    low, high = FIXED.gpu_memory_least, FIXED.gpu_memory_most
    return any(low <= memory_bytes * dies / (size * 1e9) <= high for size in sizes)


def _eighths(entry: Entry, memory_bytes: int | None) -> float | None:
    if memory_bytes is None or len(entry.memory_gb) > 1:
        return None
    count = round(EIGHTHS * memory_bytes / (entry.memory_gb[0] * FIXED.gpu_slice_memory * 1e9))
    return count / EIGHTHS if 1 <= count <= EIGHTHS else None


def _gpu(entry: Entry, part: _Share, matched: Match) -> Gpu:
    share = part.multiprocessors / entry.multiprocessors
    architecture = table().architectures[entry.architecture]

    def of_memory(value: float | None) -> float | None:
        return None if value is None or part.memory is None else value * part.memory

    return Gpu(
        name=entry.name,
        slice=part.slice,
        part=share,
        vendor=architecture.vendor,
        capability=architecture.capability,
        multiprocessors=part.multiprocessors,
        clock_mhz=entry.clock_mhz,
        peaks={p: entry.peaks[p] * share for p in PRECISIONS if p in entry.peaks},
        bandwidth_gbps=of_memory(entry.bandwidth_gbps),
        l2_mb=of_memory(entry.l2_mb),
        nvlink_gbps=entry.nvlink_gbps if share == 1 else None,  # slices have no peer to peer
        matched=matched,
        source=entry.source,
        year=entry.year,
    )
