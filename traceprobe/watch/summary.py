"""From the processes of a watched run to its record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from traceprobe.capture.watch.rows import Kind
from traceprobe.formatting import counted, duration, percent, significant
from traceprobe.records.watch import (
    FEWEST,
    MOST_PLACES,
    WAITS,
    Cause,
    PaceStretch,
    RunEvent,
    ShortCapture,
    Watch,
    WatchedRank,
    most_waiting,
)
from traceprobe.version import __version__
from traceprobe.watch.causes import parts_of
from traceprobe.watch.events import Found, find_events
from traceprobe.watch.pace import Stretch, stretches
from traceprobe.watch.pace_causes import WORTH, settled, standing_out, usual_ms, why_changed
from traceprobe.watch.periods import every_seconds, every_steps
from traceprobe.watch.processes import Column, Process
from traceprobe.watch.strips import reading_strip, step_strip
from traceprobe.watch.unsteady_clock import unsteady_clock
from traceprobe.watch.words import event_words

OUTSTANDING, OUTSTANDING_MS = 3.0, 500.0
"""Or a single one takes so many steps, and so long."""
CHANCE: tuple[Cause, ...] = ("unknown", "cpu-busy", "loader")
"""Causes by which any system halts a program now and then."""
CHANCE_WORDS: dict[Cause, str] = {
    "unknown": "no cause was seen",
    "cpu-busy": "no CPU core was free",
    "loader": "the loader was late",
}
LASTING = 0.1
"""Share of the steps that a pace must have kept to be one that the run can keep."""


class Ended(msgspec.Struct, frozen=True):
    """How the program ended.

    Args:
        program: its name. words: how it ended. seconds: of it all.
    """

    program: str
    words: str
    exit_code: int
    seconds: float


def summarize_watch(
    processes: Sequence[Process], end: Ended, captures: Sequence[ShortCapture] = ()
) -> Watch:
    """What became of a run.

    Args:
        processes: at least one, by rank.
        captures: made meanwhile, and analysed.
    """
    first = processes[0]
    parts = parts_of(processes)
    timed = sum(parts.ms[cause] for cause in ("checkpoint", "evaluation", "garbage-collection"))
    plain = np.maximum(first.ms - timed, 0.05 * np.median(first.ms))
    pace = stretches(_as_before(plain, parts.captured))
    level = np.concatenate([np.full(s.stop - s.start, s.ms) for s in pace])
    found = list(find_events(processes, parts, level))
    captured_ms = np.clip(plain - level, 0.0, None)[parts.captured]
    watched_s = float(first.ms @ first.count) / 1e3
    told_of = [
        _event(one, processes, level, watched_s) for each in found for one in _by_owner(each)
    ]
    events = sorted(
        (event for event in told_of if event is not None),
        key=lambda event: (-event.lost_s, event.steps[0]),
    )
    lasting = settled(processes, plain, pace)
    told = _pace(processes, lasting)
    ranks = [_rank(process) for process in processes]
    return Watch(
        schema_version=Watch.SCHEMA_VERSION,
        traceprobe_version=__version__,
        program=end.program,
        headline=_headline(ranks, events, told, watched_s),
        ended=end.words,
        exit_code=end.exit_code,
        seconds=round(end.seconds, 3),
        watched_s=round(watched_s, 3),
        steps=first.steps,
        step_ms=round(float(np.median(first.ms)), 4),
        ranks=ranks,
        pace=told,
        events=events,
        strip=step_strip(first),
        readings=reading_strip(first),
        captures=list(captures),
        captures_lost_s=round(float(captured_ms.sum()) / 1e3, 3),
        notes=[
            *_notes(found, events, processes),
            *unsteady_clock(processes, lasting, [one.cause for one in told]),
            *_wandering(pace, lasting),
        ],
    )


def _as_before(plain: Column, captured: npt.NDArray[np.bool_]) -> Column:
    """Steps that were captured as long as the last one that was not: they tell no pace."""
    if not captured.any() or captured.all():
        return plain
    rows = np.maximum.accumulate(np.where(captured, -1, np.arange(plain.size)))
    return plain[np.where(rows < 0, np.argmin(captured), rows)]


def _by_owner(found: Found) -> Iterator[Found]:
    """What a cause did, by the process that it was of."""
    for owner in np.unique(found.owner):
        mine = found.owner == owner
        yield Found(
            found.cause,
            found.rows[mine],
            found.lost_ms[mine],
            found.part_ms[mine],
            found.owner[mine],
        )


def _event(
    found: Found, processes: Sequence[Process], level: Column, watched_s: float
) -> RunEvent | None:
    """An event as it is told; None of what nobody can explain and that cost next to nothing."""
    first, of = processes[0], processes[int(found.owner[0])]
    rows, part, cause = found.rows, found.part_ms, found.cause
    numbers = first.number[rows]
    at_s = (first.end_ns[rows] - first.began_ns) / 1e9
    steps = None if cause == "start" else every_steps(numbers)
    seconds = None if cause == "start" or steps is not None else every_seconds(at_s)
    longest = int(np.argmax(part))
    lost_s = float(found.lost_ms.sum()) / 1e3
    if cause in CHANCE and steps is None and seconds is None:
        outstanding = part[longest] >= max(OUTSTANDING * level[rows[longest]], OUTSTANDING_MS)
        if lost_s < WORTH * watched_s and not outstanding:
            return None
    workers = of.workers
    return RunEvent(
        cause=cause,
        what=event_words(
            *(cause, rows.size, float(np.median(part)), float(part[longest])),
            *(int(numbers[longest]), (steps, seconds), workers),
        ),
        count=rows.size,
        steps=numbers[:MOST_PLACES].tolist(),
        at_s=[round(float(at), 3) for at in at_s[:MOST_PLACES]],
        lost_s=round(lost_s, 3),
        longest_ms=round(float(part[longest]), 3),
        longest_step=int(numbers[longest]),
        every_steps=steps,
        every_s=None if seconds is None else round(seconds, 3),
        rank=of.rank if len(processes) > 1 else None,
    )


def _pace(processes: Sequence[Process], pace: Sequence[Stretch]) -> list[PaceStretch]:
    first = processes[0]
    lasting = [s.ms for s in pace if s.stop - s.start >= LASTING * first.number.size]
    best = min(lasting or [s.ms for s in pace])
    told = []
    for n, stretch in enumerate(pace):
        cause, why = why_changed(processes, pace[n - 1], stretch) if n else (None, "")
        rows = slice(stretch.start, stretch.stop)
        count = int(first.count[rows].sum())
        begin_ns = first.end_ns[stretch.start] - 1e6 * first.ms[stretch.start]
        told.append(
            PaceStretch(
                first=int(first.number[stretch.start]),
                last=int(first.number[stretch.stop - 1] + first.count[stretch.stop - 1] - 1),
                at_s=round(max(float(begin_ns) - first.began_ns, 0.0) / 1e9, 3),
                step_ms=round(stretch.ms, 4),
                lost_s=round(max(stretch.ms - best, 0.0) * count / 1e3, 3),
                cause=cause,
                why=why,
            )
        )
    return told


def _rank(process: Process) -> WatchedRank:
    time_ms = float(process.ms @ process.count)
    clock = process.readings.get("sm_mhz")
    collected = process.events[Kind.COLLECTION]
    return WatchedRank(
        rank=process.rank,
        device=process.device,
        ended=process.ended,
        steps=process.steps,
        step_ms=round(float(np.median(process.ms)), 4),
        wait_share=round(float(process.wait_ms @ process.count) / max(time_ms, 1e-9), 4),
        paused_s=round(float(collected[:, 3].sum()) / 1e9, 4),
        sm_mhz=None if clock is None else round(float(np.nanmean(clock)), 1),
        lowest_sm_mhz=None if clock is None else float(np.nanmin(clock)),
        peak_bytes=_most(process.readings.get("allocated_bytes")),
        rss_bytes=_most(process.readings.get("rss_bytes")),
    )


def _most(values: Column | None) -> int | None:
    return None if values is None or np.isnan(values).all() else int(np.nanmax(values))


def _headline(
    ranks: Sequence[WatchedRank],
    events: Sequence[RunEvent],
    pace: Sequence[PaceStretch],
    watched_s: float,
) -> str:
    """What cost most, in a sentence."""
    slow = max(pace, key=lambda stretch: stretch.lost_s)
    event = events[0] if events else None
    if event is not None and event.lost_s >= max(slow.lost_s, WORTH * watched_s):
        return (
            f"Most time was lost to this: {event.what}; {duration(event.lost_s * 1e9)}, "
            f"{percent(event.lost_s / watched_s)} of the run."
        )
    if slow.lost_s >= WORTH * watched_s:
        why = f": {slow.why}" if slow.why else ""
        return (
            f"Steps {slow.first:,} to {slow.last:,} took {significant(slow.step_ms)} ms, at best "
            f"{significant(min(s.step_ms for s in pace))}{why}."
        )
    if ranks[0].steps < FEWEST:
        return f"Nothing held the run up for long; its pace is only known after {FEWEST} steps."
    waiting = most_waiting(ranks)
    if waiting.wait_share >= WAITS:
        who = f"rank {waiting.rank}" if len(ranks) > 1 else "the loop"
        return (
            f"The run kept its pace, and {who} waited for its loader "
            f"{percent(waiting.wait_share)} of the time."
        )
    return "The run kept its pace, and nothing held it up for long."


def _notes(
    found: Sequence[Found], events: Sequence[RunEvent], processes: Sequence[Process]
) -> Iterator[str]:
    told = {event.cause for event in events}
    for each in found:
        if each.cause in CHANCE and each.cause not in told:
            why = CHANCE_WORDS[each.cause]
            yield (
                f"{counted(each.rows.size, 'single step')} took longer, "
                f"{duration(1e6 * float(each.lost_ms.sum()))} in all: {why}"
            )
    early = [str(process.rank) for process in processes if not process.ended]
    if early:
        ranks = f"rank {early[0]} was" if len(early) == 1 else f"ranks {', '.join(early)} were"
        what = "the process was" if len(processes) == 1 else ranks
        yield f"{what} ended from outside: up to a second of steps before that is missing"


def _wandering(pace: Sequence[Stretch], told: Sequence[Stretch]) -> Iterator[str]:
    """Of changes that are not told one by one; of those among slow stretches there is no note."""
    rest = [one for one, far in zip(pace, standing_out(pace), strict=True) if not far]
    begins = {stretch.start for stretch in told}
    if any(stretch.start not in begins for stretch in rest):
        low, high = (find(stretch.ms for stretch in rest) for find in (min, max))
        usual = usual_ms(pace)
        lost_ms = sum(max(one.ms - usual, 0.0) * (one.stop - one.start) for one in rest)
        yield (
            f"the pace wanders between {significant(low)} and {significant(high)} ms for seconds "
            f"at a time ({duration(1e6 * lost_ms)} lost in all), and nothing that was watched "
            "changes with it: usually other work on the machine"
        )
