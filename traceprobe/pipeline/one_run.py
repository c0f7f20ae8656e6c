"""Whether the inputs can be ranks of one run, and what is doubtful about it where they can.

Ranks of a run have the same kind of device, the same number of ranks, each a number of its own, and
the same collectives at the same time. Inputs that cannot have that are several runs, and a report
that mixes them describes none.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from traceprobe.errors import UsageError
from traceprobe.formatting import ranges
from traceprobe.ingest.trace_folder import named_rank
from traceprobe.pipeline.rank_numbers import overruled_ranks
from traceprobe.pipeline.trace_part import TracePart
from traceprobe.records.rank import DeviceInfo
from traceprobe.timeline.capture_alignment import aligned, end_together
from traceprobe.timeline.collective_matching import match_transfers
from traceprobe.verdict.thresholds import FIXED

MAX_NAMED = 3
"""Files of a run that a message names, and ranks that a warning does."""
EPOCH_NS = 10**18
"""Clocks that read more count from 1970, and can be compared between machines."""


class _Run(msgspec.Struct):
    """Inputs that belong together, and why the others do not."""

    parts: list[TracePart]
    ranks: set[int]
    why: str = ""


class Inputs(msgspec.Struct, frozen=True):
    """The inputs of one run.

    Args:
        parts: without copies of others.
        warnings: what is doubtful about them, by code.
    """

    parts: list[TracePart]
    warnings: dict[str, str] = msgspec.field(default_factory=dict)


def of_one_run(parts: Sequence[TracePart]) -> Inputs:
    """The inputs without copies.

    Raises:
        UsageError: they are of several runs; it says what belongs together.
    """
    kept, copies = _without_copies(parts)
    warnings = {}
    if copies:
        warnings["identical-inputs"] = (
            f"{', '.join(copies[:MAX_NAMED])}{_more(copies)}: left out, being the same file as "
            "another input."
        )
    overruled = overruled_ranks(kept)
    claims = [
        {overruled.get((n, pid), rank) for pid, rank in part.rank_of.items()}
        for n, part in enumerate(kept)
    ]
    runs: list[_Run] = []
    for part, ranks in zip(kept, claims, strict=True):
        _place(part, ranks, runs)
    if len(runs) > 1:
        raise UsageError(_what_belongs_together(runs))
    if any(_apart(kept[0], part) for part in kept[1:]):
        warnings["clocks-disjoint"] = (
            "The inputs were recorded at different times by their clocks; they may be of different "
            "runs."
        )
    return Inputs(kept, warnings)


def missing_ranks(ranks: Sequence[int], world_size: int | None) -> dict[str, str]:
    """A warning where several ranks are given, but not all."""
    warnings: dict[str, str] = {}
    absent = sorted(set(range(world_size or 0)) - set(ranks))
    if 1 < len(ranks) < (world_size or 0) and absent:
        named = ", ".join(map(str, absent[:MAX_NAMED]))
        warnings["ranks-missing"] = (
            f"{len(absent)} of {world_size} ranks are missing ({named}{_more(absent)}). What the "
            "others wait for may be one of them; give the files of all."
        )
    return warnings


def unmatched(*, collectives: bool, found: bool) -> dict[str, str]:
    """A warning where several ranks have collectives, and none is on two of them."""
    warnings: dict[str, str] = {}
    if collectives and not found:
        warnings["collectives-unmatched"] = (
            "No collective was found on two ranks; the inputs may be of different runs."
        )
    return warnings


def _without_copies(parts: Sequence[TracePart]) -> tuple[list[TracePart], list[str]]:
    seen: set[str] = set()
    kept, copies = [], []
    for part in parts:
        if part.input.sha256 in seen:
            copies.append(part.input.name)
        else:
            kept.append(part)
        seen.add(part.input.sha256)
    return kept, copies


def _place(part: TracePart, ranks: set[int], runs: list[_Run]) -> None:
    """Into the run that it can belong to, else into one of its own."""
    why = ""
    for run in runs:
        found = _conflict(run, part, ranks)
        if not found:
            run.parts.append(part)
            run.ranks |= ranks
            return
        why = why or found
    runs.append(_Run([part], set(ranks), why))


def _conflict(run: _Run, part: TracePart, ranks: set[int]) -> str:
    """Why a part cannot be of a run; empty where it can."""
    first = run.parts[0]
    one, other = first.input.name, part.input.name
    if first.input.format != part.input.format:
        return (
            f"{one} and {other} are of different profilers, so they are two readings of a run at "
            "most, and not two ranks of it"
        )
    a, b = (p.devices[0].record.device for p in (first, part))
    if a.kind != b.kind or (a.name and b.name and a.name != b.name):
        return f"{one} is of {_kind(a)}, {other} of {_kind(b)}"
    sizes = first.metadata.get("world_size"), part.metadata.get("world_size")
    if None not in sizes and sizes[0] != sizes[1]:
        return f"{one} is of {sizes[0]} ranks, {other} of {sizes[1]}"
    if run.ranks & ranks:
        rank = min(run.ranks & ranks)
        owner = next((p for p in run.parts if rank in p.rank_of.values()), first)
        return f"{owner.input.name} and {other} both say that they are rank {rank}"
    return "" if _tied(first, part, ranks) else f"nothing tells that {one} and {other} are one run"


def _tied(first: TracePart, part: TracePart, ranks: set[int]) -> bool:
    """Whether anything says that two inputs are of one run."""
    sizes = [p.metadata.get("world_size") for p in (first, part)]
    apart = _apart(first, part)
    numbered = bool(ranks) and bool(first.rank_of) and None not in sizes
    if numbered and not apart:
        return True
    if _talk(first, part, in_time=apart):
        return True
    if (apart and _collective(first) and _collective(part)) or sizes.count(None) == 1:
        return False
    if numbered or None not in (named_rank(first.input.name), named_rank(part.input.name)):
        return True
    return not apart and first.input.format == "kineto" and _gap(first, part) < 0


def _talk(first: TracePart, part: TracePart, *, in_time: bool) -> bool:
    """Whether two inputs have collectives in common, at intervals that agree if asked for."""
    footprints = aligned([d.footprint for p in (first, part) for d in p.devices])
    matched = match_transfers(footprints)
    pairs = zip(footprints, matched, strict=True)
    ends = [f.collectives[m.row]["t1"].to_numpy() for f, m in pairs if m and len(m.row)]
    if len(ends) < 2:
        return False
    return not in_time or end_together(ends[0], ends[-1])


def _collective(part: TracePart) -> bool:
    return any(len(d.footprint.collectives) for d in part.devices)


def _kind(device: DeviceInfo) -> str:
    return f"{device.name or 'an unknown device'} ({device.kind.upper()})"


def _span(part: TracePart) -> tuple[int, int]:
    edges = [d.footprint.edges for d in part.devices]
    return min(int(e[0]) for e in edges), max(int(e[-1]) for e in edges)


def _gap(one: TracePart, other: TracePart) -> int:
    """Between the two captures by their clocks, beyond the length of the longer one; ns."""
    (a, b), (c, d) = _span(one), _span(other)
    return max(a, c) - min(b, d) - max(b - a, d - c)


def _apart(one: TracePart, other: TracePart) -> bool:
    """Whether the clocks say, where they can be compared, that the two were not at one time."""
    comparable = min(_span(one)[0], _span(other)[0]) > EPOCH_NS
    formats = {one.input.format, other.input.format}
    return comparable and formats == {"kineto"} and _gap(one, other) > FIXED.apart_s * 1e9


def _what_belongs_together(runs: Sequence[_Run]) -> str:
    count = {2: "two", 3: "three"}.get(len(runs), str(len(runs)))
    described = "; ".join(_described(run) for run in runs[:MAX_NAMED])
    return (
        f"the inputs are of {count} runs: {described}{_more(runs)} ({runs[1].why}); give the files "
        "of one run"
    )


def _described(run: _Run) -> str:
    names = [part.input.name for part in run.parts]
    text = f"{', '.join(names[:MAX_NAMED])}{_more(names)}"
    if not run.ranks:
        return text
    return f"{text} with {'rank' if len(run.ranks) == 1 else 'ranks'} {ranges(sorted(run.ranks))}"


def _more(items: Sequence[object]) -> str:
    return f" and {len(items) - MAX_NAMED} more" if len(items) > MAX_NAMED else ""
