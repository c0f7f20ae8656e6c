"""What a recording knows of the loader that feeds the steps, in sentences."""

from __future__ import annotations

import re

import msgspec

from traceprobe.findings.evidence import Evidence
from traceprobe.formatting import counted, percent, plain, significant
from traceprobe.records.loader import Loader
from traceprobe.records.site import Site
from traceprobe.verdict.thresholds import FIXED

_LINE = re.compile(r"(.*)\(\d+\): (.*)", re.DOTALL)


class Work(msgspec.Struct, frozen=True):
    """A function that making a batch takes time in, called by its hottest line.

    Args:
        share: of the time of a batch, with what it calls of libraries.
    """

    name: str
    collates: bool
    share: float


def functions(loader: Loader, least: int = FIXED.loader_samples) -> list[Work]:
    """The functions that take a notable part of a batch, the longest first.

    Empty where too few samples were taken, or the names may not be told.

    Args:
        least: samples.
    """
    whole = sum(line.ms for line in loader.lines)
    if loader.samples < least or not whole:
        return []
    found: dict[tuple[str, ...], list[tuple[float, str]]] = {}
    for line in loader.lines:
        if line.name is not None:
            match = _LINE.fullmatch(line.name)
            function = match.groups() if match else (line.name,)
            found.setdefault((line.part, *function), []).append((line.ms, line.name))
    works = [
        Work(
            max(lines)[1].replace("`", "'"),
            part == "collate",
            sum(ms for ms, _ in lines) / whole,
        )
        for (part, *_), lines in found.items()
    ]
    notable = [work for work in works if work.share >= FIXED.loader_part]
    return sorted(notable, key=lambda work: -work.share)[: FIXED.loader_parts]


def sites(loader: Loader | None, wait_ms: float) -> list[Site]:
    """Where workers make the batches that a step waits for; empty where none were seen at work.

    What the step thread runs meanwhile only waits for them.

    Args:
        wait_ms: that a step waits for data.
    """
    if loader is None or not loader.workers:
        return []
    return [
        Site(
            line=work.name,
            within=None,
            call=None,
            ms_per_step=round(work.share * wait_ms, 6),
            part=round(work.share, 6),
        )
        for work in functions(loader, FIXED.loader_looks)
    ]


def batch_time(loader: Loader | None) -> str:
    """How long a batch takes and what takes it; empty where that was not timed."""
    if loader is None or not loader.batch_ms:
        return ""
    who = "a worker" if loader.workers else "the step thread"
    size = loader.items_per_batch
    # A dataset that gives whole batches has no items.
    each = f" of {plain(size)}, {significant(loader.item_ms)} ms an item" if size > 1 else ""
    parts = [
        f"{percent(work.share, 0)} {'collating ' if work.collates else ''}in `{work.name}`"
        for work in functions(loader)
    ]
    if not parts:
        parts = [f"{percent(loader.collate_ms / loader.batch_ms, 0)} of it collating"]
    return f"{who} takes {significant(loader.batch_ms)} ms for a batch{each}: {', '.join(parts)}"


def busy_share(evidence: Evidence) -> float | None:
    """Part of the time in which a worker makes batches, by what the steps take of them.

    The utilisation law: batches per ms, times ms of work for each, over the workers.

    Returns:
        None without workers, or where their work was not timed.
    """
    loader, step = evidence.loader, evidence.corrected_step_ms()
    if loader is None or not loader.workers or not loader.batch_ms or not step:
        return None
    return min(loader.batch_ms * loader.batches_per_step / (loader.workers * step), 1.0)


def idle_workers(evidence: Evidence, *, slow: bool) -> str:
    """That workers mostly wait, where they do.

    Args:
        slow: whether the steps wait for batches all the same.
    """
    busy = busy_share(evidence)
    if busy is None or evidence.loader is None or not keeps_up(evidence):
        return ""
    workers = counted(evidence.loader.workers, "worker")
    said = f"the {workers} wait {percent(1 - busy, 0)} of the time for the step to take batches"
    if slow:
        return f"{said}: making batches is not what the step waits for, handing them over is"
    return f"{said}: the loader is faster than the step"


def made_sooner(evidence: Evidence) -> bool:
    """Whether the step thread makes a batch sooner than a worker would hand it over."""
    loader = evidence.loader
    if loader is None or loader.workers or not loader.batch_ms:
        return False
    return loader.batch_ms < FIXED.handing_over_ms


def keeps_up(evidence: Evidence) -> bool:
    """Whether workers make batches faster than the steps take them.

    They do where they are idle for most of the time. Batches that take unequally long may be late
    though workers have some time left; they are not where the trace has ranges of the loader, and
    the steps wait outside of these: for batches to be unpacked, moved or given back.
    """
    busy = busy_share(evidence)
    if busy is None:
        return False
    return busy < (FIXED.loader_idle if _waits_in_loader(evidence) else FIXED.loader_full)


def waited_ns(evidence: Evidence) -> tuple[int, int]:
    """Waiting for data that is inferred, as no range names it, and all of it, of all ranks."""
    each = [rank.summary for rank in evidence.ranks]
    inferred = sum(summary.host.data_wait_inferred_ns for summary in each)
    return inferred, sum(summary.partition_ns["idle_data_wait"] or 0 for summary in each)


def _waits_in_loader(evidence: Evidence) -> bool:
    """Whether most of the waiting for data may be inside of the loader: no range says otherwise."""
    outside, waits = waited_ns(evidence)
    # All of it is outside of ranges where there are none.
    return outside == waits or outside < FIXED.mostly_inferred * waits
