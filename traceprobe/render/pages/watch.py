"""A watched run told in sections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceprobe.formatting import (
    NOT_OBSERVED,
    counted,
    duration,
    number,
    percent,
    significant,
    size,
)
from traceprobe.model.taxonomy import BOUND_LABELS
from traceprobe.records.watch import (
    FEWEST,
    WAITS,
    PaceStretch,
    RunEvent,
    ShortCapture,
    Watch,
    most_waiting,
)
from traceprobe.render.charts import LINE_COLOURS, Line, curves, specification
from traceprobe.render.document import Block, Chart, Document, Section, Table

LOSS = 0.01
"""Share of a run lost to one cause from which on it is the title."""
MOST_EVENTS, MOST_STRETCHES, MOST_CAPTURES = 8, 6, 3
"""Rows of a short output."""
_HELP = (
    "A step ends with an update of the optimizer. The chart shows, for equal numbers of steps, the "
    "shortest, the median and the longest of them; triangles are events, dashed lines changes of "
    "the pace. Nothing was profiled, so nothing here says which kernel or line a step spent its "
    "time in: `traceprobe profile` does."
)
_EVENTS_HELP = (
    "Time lost is how much longer the steps were than the pace around them, as far as the cause "
    "took that long. A cause that took long while the device had enough to do lost nothing. “No "
    "cause seen” is what nothing that was watched explains."
)

_CAPTURES_HELP = (
    "Now and then a few steps ran under a profiler, and their trace was analysed as `traceprobe "
    "analyze` does. They and the pauses around them are no events and no pace."
)


def document(run: Watch) -> Document:
    """The run for all outputs."""
    return Document(
        kind=run.kind,
        title=_title(run),
        secondary=run.program,
        tone="plain",
        headline=run.headline,
        points=list(_points(run)),
        cautions=list(run.notes),
        sections=list(_sections(run)),
        version=run.traceprobe_version,
        json=run.to_json(),
    )


def _status(run: Watch) -> str:
    """The exit code, where how the program ended does not say it."""
    return "" if f"status {run.exit_code}" in run.ended else f" (status {run.exit_code})"


def _title(run: Watch) -> str:
    lost = sum(event.lost_s for event in run.events) + sum(s.lost_s for s in run.pace)
    share = lost / max(run.watched_s, 1e-9)
    if share < LOSS and run.steps < FEWEST:
        return f"{counted(run.steps, 'step')}: too few to tell"
    if share < LOSS:
        waits = " that waits for its loader" if most_waiting(run.ranks).wait_share >= WAITS else ""
        ended = f"; the program {run.ended}" if run.exit_code else ""
        return f"A steady run{waits}{ended}"
    return f"{percent(min(share, 1.0), 0)} of the run was lost"


def _points(run: Watch) -> Iterator[str]:
    yield (
        f"{counted(run.steps, 'step')} in {duration(run.watched_s * 1e9)}, the median "
        f"{significant(run.step_ms)} ms; the program {run.ended}{_status(run)}"
    )
    waiting = most_waiting(run.ranks)
    who = f"Rank {waiting.rank}" if len(run.ranks) > 1 else "The loop"
    others = [rank.wait_share for rank in run.ranks if rank is not waiting]
    beside = f", the others at most {percent(max(others))}" if others else ""
    yield f"{who} waited for its loader {percent(waiting.wait_share)} of the time{beside}"
    if run.captures:
        surest = max(run.captures, key=lambda capture: capture.confidence or 0.0)
        yield (
            f"{counted(len(run.captures), 'short capture')} in "
            f"{duration(run.captures_lost_s * 1e9)}; step {surest.step:,}: {_found(surest)}"
        )
    clocks = [rank for rank in run.ranks if rank.sm_mhz is not None]
    if clocks:
        slowest = min(clocks, key=lambda rank: rank.sm_mhz or 0.0)
        of = f" on rank {slowest.rank}, the slowest" if len(run.ranks) > 1 else ""
        yield (
            f"GPU clock {number(slowest.sm_mhz)} MHz in the mean, {number(slowest.lowest_sm_mhz)} "
            f"at least{of}"
        )


def _sections(run: Watch) -> Iterator[Section]:
    slower = [stretch for stretch in run.pace if stretch.lost_s]
    blocks: list[Block] = [_held_up(run, slower)] if run.events or slower else []
    text = [] if blocks else ["No step was held up for long."]
    yield Section("events", "What held it up", text=text, blocks=blocks, help=_EVENTS_HELP)
    if run.captures:
        yield Section("captures", "Short captures", blocks=[_captures(run)], help=_CAPTURES_HELP)
    yield Section("steps", "The run over time", blocks=[_steps(run)], help=_HELP)
    if len(run.pace) > 1:
        yield Section("pace", "Changes of the pace", blocks=[_pace(run.pace)])
    if len(run.ranks) > 1:
        yield Section("ranks", "Ranks", blocks=[_ranks(run)])
    readings = list(_readings(run))
    if readings:
        yield Section("machine", "Clock and memory", blocks=readings, brief=False)


def _held_up(run: Watch, slower: Sequence[PaceStretch]) -> Table:
    """Events, and stretches of a pace that is not the best, by what they cost."""
    found = [
        (
            event.lost_s,
            event.what if event.rank is None else f"{event.what}, rank {event.rank}",
            _steps_of(event),
            duration(event.longest_ms * 1e6),
        )
        for event in run.events
    ] + [
        (
            stretch.lost_s,
            f"slower pace, {significant(stretch.step_ms)} ms a step instead of "
            f"{significant(_best_ms(stretch))}{f': {stretch.why}' if stretch.why else ''}",
            f"{stretch.first:,} to {stretch.last:,}",
            NOT_OBSERVED,
        )
        for stretch in slower
    ]
    rows = [
        [what, steps, longest, percent(lost_s / max(run.watched_s, 1e-9)), significant(lost_s)]
        for lost_s, what, steps, longest in sorted(found, key=lambda row: -row[0])
    ]
    head = ("what", "steps", "longest", "of the run", "s lost")
    return Table("What held the run up", head, rows, frozenset({2, 3, 4}), most=MOST_EVENTS)


def _best_ms(stretch: PaceStretch) -> float:
    """The pace that its loss is counted against."""
    return stretch.step_ms - 1e3 * stretch.lost_s / (stretch.last - stretch.first + 1)


def _steps_of(event: RunEvent) -> str:
    """`731`, or `100, 200, 300 …`."""
    shown = ", ".join(f"{step:,}" for step in event.steps[:3])
    return f"{shown} …" if event.count > 3 else shown


def _captures(run: Watch) -> Table:
    rows = [
        [
            f"{capture.step:,}",
            capture.why,
            NOT_OBSERVED if capture.bound is None else BOUND_LABELS[capture.bound],
            NOT_OBSERVED if capture.confidence is None else percent(capture.confidence, 0),
            capture.headline,
            capture.advice or NOT_OBSERVED,
            capture.file,
        ]
        for capture in run.captures
    ]
    head = ("step", "why", "bound", "sure", "what it says", "first advice", "file")
    return Table("A few steps under a profiler", head, rows, frozenset({0, 3}), most=MOST_CAPTURES)


def _found(capture: ShortCapture) -> str:
    """The verdict of a capture, and what to do first."""
    if capture.bound is None or capture.confidence is None:
        return capture.headline
    verdict = f"{BOUND_LABELS[capture.bound]}, {percent(capture.confidence, 0)} sure"
    return f"{verdict}. {capture.advice}" if capture.advice else verdict


def _pace(pace: list[PaceStretch]) -> Table:
    rows = [
        [
            f"{s.first:,} to {s.last:,}",
            significant(s.step_ms),
            significant(s.lost_s),
            s.why or NOT_OBSERVED,
        ]
        for s in pace
    ]
    head = ("steps", "ms", "s lost", "what changed")
    return Table("Stretches of one pace", head, rows, frozenset({1, 2}), most=MOST_STRETCHES)


def _ranks(run: Watch) -> Table:
    rows = [
        [
            str(rank.rank),
            f"{rank.steps:,}",
            significant(rank.step_ms),
            percent(rank.wait_share),
            significant(rank.paused_s),
            number(rank.sm_mhz),
            size(rank.peak_bytes),
            size(rank.rss_bytes),
        ]
        for rank in run.ranks
    ]
    head = ("rank", "steps", "ms", "loader", "paused, s", "MHz", "GPU memory", "host memory")
    return Table("Ranks side by side", head, rows, frozenset(range(8)))


def _steps(run: Watch) -> Chart:
    strip = run.strip
    # Of the causes of a step, as an evaluation and its checkpoint, the one that lost most is seen.
    first: dict[int, tuple[str, float]] = {}
    for event in run.events:
        for step, at in zip(event.steps, event.at_s, strict=True):
            first.setdefault(step, (event.cause, at))
    marks = [(cause, step, at, _height(run, at)) for step, (cause, at) in first.items()]
    causes = list(dict.fromkeys(cause for cause, _, _, _ in marks))
    colours = [LINE_COLOURS[1 + n % (len(LINE_COLOURS) - 1)] for n in range(len(causes))]
    spec = specification("run")
    spec["layer"][-1]["encoding"]["color"]["scale"].update(domain=causes, range=colours)
    return Chart(
        id="chart-run",
        caption="Steps over time",
        summary=f"{counted(run.steps, 'step')} of {significant(run.step_ms)} ms; the longest took "
        f"{duration(1e6 * max(strip.most_ms))}. The axis of times is logarithmic.",
        spec=spec,
        data={
            "steps": {
                "at": strip.at_s,
                "step": strip.first,
                "least": [max(ms, 1e-3) for ms in strip.least_ms],
                "median": [max(ms, 1e-3) for ms in strip.median_ms],
                "most": [max(ms, 1e-3) for ms in strip.most_ms],
            },
            "changes": {"at": [stretch.at_s for stretch in run.pace[1:]]},
            "events": {
                "cause": [cause for cause, _, _, _ in marks],
                "step": [step for _, step, _, _ in marks],
                "at": [at for _, _, at, _ in marks],
                "ms": [ms for _, _, _, ms in marks],
            },
        },
        table=_strip_table(run),
        legend=list(zip(causes, colours, strict=True)),
    )


def _height(run: Watch, at_s: float) -> float:
    """Where a mark stands: on the longest step of its time."""
    for at, most in zip(run.strip.at_s, run.strip.most_ms, strict=True):
        if at >= at_s:
            return max(most, 1e-3)
    return max(run.strip.most_ms[-1], 1e-3)


def _strip_table(run: Watch) -> Table:
    strip = run.strip
    columns = (strip.at_s, strip.first, strip.least_ms, strip.median_ms, strip.most_ms)
    rows = [
        [significant(at), f"{first:,}", significant(least), significant(mid), significant(most)]
        for at, first, least, mid, most in zip(*columns, strict=True)
    ]
    head = ("until, s", "first step", "shortest, ms", "median, ms", "longest, ms")
    return Table("Steps over time", head, rows, frozenset(range(5)), most=10)


def _readings(run: Watch) -> Iterator[Block]:
    readings = run.readings
    for name, caption, unit, factor in (
        ("sm_mhz", "Clock of the GPU", "MHz", 1.0),
        ("power_w", "Power of the GPU", "W", 1.0),
        ("temperature_c", "Temperature of the GPU", "°C", 1.0),
        ("reserved_bytes", "Memory of the GPU, reserved by the allocator", "GiB", 2.0**-30),
        ("rss_bytes", "Memory of the host", "GiB", 2.0**-30),
    ):
        values: list[float | None] = getattr(readings, name)
        points = [
            (at, value * factor)
            for at, value in zip(readings.at_s, values, strict=False)
            if value is not None
        ]
        if points:
            chart_id = f"chart-{name.replace('_', '-')}"
            yield curves(chart_id, caption, "s", unit, [Line(caption, points)])
