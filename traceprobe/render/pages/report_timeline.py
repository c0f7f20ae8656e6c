"""Timelines of a rank: the segments of their lanes, a table of the longest, words."""

from __future__ import annotations

from dataclasses import dataclass

from traceprobe.formatting import duration, shorten
from traceprobe.model.taxonomy import BUSY_LABELS
from traceprobe.records.rank import Gap, Lane, Rank
from traceprobe.records.rank import Timeline as Recorded
from traceprobe.render.colours import CLASS_COLOURS, OTHER_COLOUR
from traceprobe.render.document import Table, Timeline

MAX_TABLE_ROWS = 40
IDLE_LANE = "idle: longest gaps"
CAPTIONS = {"timeline": "A typical iteration", "worst": "The longest iteration"}
"""Fields of a rank that hold timelines, and their titles."""
OTHER = ("other", OTHER_COLOUR)
"""Word and colour of labels that are no class."""


@dataclass(frozen=True)
class LaneSegment:
    """One rectangle of a lane; times in ns after the picture's start."""

    lane: str
    start_ns: int
    duration_ns: int
    label: str
    detail: str


@dataclass(frozen=True)
class TimelinePicture:
    """What is drawn: names of the lanes, and the rectangles in them."""

    lanes: list[str]
    segments: list[LaneSegment]


def timelines(rank: Rank, index: int) -> list[Timeline]:
    """The timelines of a rank that hold anything; `index` is its place in the report."""
    found = []
    for field, caption in CAPTIONS.items():
        recorded: Recorded | None = getattr(rank, field)
        if recorded is None or not any(lane.start_ns for lane in recorded.lanes):
            continue
        picture = timeline_picture(recorded, rank.gaps)
        present = {segment.label for segment in picture.segments}
        known = {key: (BUSY_LABELS[key], colour) for key, colour in CLASS_COLOURS.items()}
        legend = [entry for key, entry in known.items() if key in present]
        found.append(
            Timeline(
                caption=caption if recorded.iteration is not None else "Timeline",
                summary=timeline_summary(recorded, picture),
                rank=index,
                field=field,
                legend=[*legend, *([OTHER] if present - known.keys() else [])],
                labels={**known, "other": OTHER},
                table=timeline_table(picture),
            )
        )
    return found


def timeline_picture(timeline: Recorded, gaps: list[Gap]) -> TimelinePicture:
    """The lanes of a timeline; the longest idle gaps make a lane of their own."""
    names = _distinct([shorten(lane.name, 60) for lane in timeline.lanes])
    lanes = [_segments(name, lane) for name, lane in zip(names, timeline.lanes, strict=True)]
    if idle := _idle_lane(timeline, gaps):
        names.append(IDLE_LANE)
        lanes.append(idle)
    return TimelinePicture(names, [segment for lane in lanes for segment in lane])


def _distinct(names: list[str]) -> list[str]:
    """Lanes that look alike after shortening keep a row each."""
    return [
        name if names.index(name) == i else f"{name} ({names[: i + 1].count(name)})"
        for i, name in enumerate(names)
    ]


def _segments(name: str, lane: Lane) -> list[LaneSegment]:
    columns = zip(lane.start_ns, lane.duration_ns, lane.label, lane.detail, strict=True)
    return [
        LaneSegment(name, start, length, shorten(label, 80), shorten(detail, 200))
        for start, length, label, detail in sorted(columns)
    ]


def _idle_lane(timeline: Recorded, gaps: list[Gap]) -> list[LaneSegment]:
    """The parts of `gaps` inside the picture, in the order of time."""
    end_ns = timeline.start_ns + timeline.duration_ns
    inside = [g for g in gaps if g.end_ns > timeline.start_ns and g.start_ns < end_ns]
    return [
        LaneSegment(
            IDLE_LANE,
            max(gap.start_ns, timeline.start_ns) - timeline.start_ns,
            min(gap.end_ns, end_ns) - max(gap.start_ns, timeline.start_ns),
            gap.cause if gap.cause in BUSY_LABELS else shorten(gap.cause, 80),
            shorten(gap.evidence, 200),
        )
        for gap in sorted(inside, key=lambda g: (g.start_ns, g.end_ns))
    ]


def timeline_table(picture: TimelinePicture) -> Table:
    """The longest segments of the picture, in the order of time."""
    longest = sorted(picture.segments, key=lambda s: (-s.duration_ns, s.start_ns, s.lane))
    shown = sorted(longest[:MAX_TABLE_ROWS], key=lambda s: (s.start_ns, s.lane))
    rows = [
        [
            f"{segment.start_ns / 1e6:,.3f} ms",
            duration(segment.duration_ns),
            segment.lane,
            BUSY_LABELS.get(segment.label, segment.label),
            segment.detail,
        ]
        for segment in shown
    ]
    caption = f"{len(rows)} longest of {len(picture.segments)} segments"
    head = ["starts at", "duration", "lane", "what", "detail"]
    return Table(caption, head, rows, frozenset({0, 1}), names=frozenset({2, 3, 4}))


def timeline_summary(timeline: Recorded, picture: TimelinePicture) -> str:
    """What the picture shows, in words."""
    what = "The capture" if timeline.iteration is None else f"Iteration {timeline.iteration}"
    sentence = (
        f"{what}, {duration(timeline.duration_ns)} from {timeline.start_ns / 1e6:,.3f} ms after"
        f" time zero: {len(picture.segments)} segments in {len(picture.lanes)} lanes."
    )
    if timeline.merged:
        sentence += f" {timeline.merged} shorter operations are drawn together with a neighbour."
    return sentence
