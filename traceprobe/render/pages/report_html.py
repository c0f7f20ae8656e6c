"""The page of a report: the verdict, where the time goes, findings, pictures of iterations."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec

from traceprobe.formatting import (
    NOT_OBSERVED,
    duration,
    percent,
    ranges,
)
from traceprobe.model import taxonomy
from traceprobe.model.taxonomy import SHARES
from traceprobe.records.ablation import AblationVerdict, Share
from traceprobe.records.base import compact_json
from traceprobe.records.rank import Rank, StepMarker, Timeline
from traceprobe.records.report import Finding, Report, Verdict
from traceprobe.render import colours
from traceprobe.render.bars import Segment, partition_bar, share_bar
from traceprobe.render.html import parts_of
from traceprobe.render.next_step import slice_command
from traceprobe.render.page import file, fill
from traceprobe.render.pages import ablation as ablation_text
from traceprobe.render.pages import memory_parts as memory_text
from traceprobe.render.pages.report_charts import (
    Chart,
    iterations_chart,
    rank_steps_chart,
    ranks_chart,
    steps_chart,
)
from traceprobe.render.pages.report_iterations import (
    iteration_bars,
    iterations_summary,
    iterations_table,
)
from traceprobe.render.pages.report_overlap import overlaps
from traceprobe.render.pages.report_ranks import rank_columns, ranks_summary, ranks_table
from traceprobe.render.pages.report_steps import histogram, histogram_summary, histogram_table
from traceprobe.render.pages.report_survey import (
    groups_table,
    overview_of,
    step_rows,
    steps_summary,
    steps_table,
)
from traceprobe.render.pages.report_tables import (
    Table,
    ablation_table,
    collectives_table,
    gaps_table,
    kernels_table,
    links_line,
    metrics_tables,
    steps_divisor,
)
from traceprobe.render.pages.report_timeline import (
    label_word,
    timeline_picture,
    timeline_summary,
    timeline_table,
)
from traceprobe.render.pages.roofline import sections
from traceprobe.render.ranking import ATTENTION, ranked_findings, ranks_in_detail
from traceprobe.render.resources import templates_dir
from traceprobe.verdict import agreement

MAX_BARS = 140
"""Bars of one chart; times the classes of the partition this stays below the limit of marks."""
TIMELINES = {"timeline": "A typical iteration", "worst": "The longest iteration"}
"""Fields of a rank that hold timelines, and their titles."""
FOLDED = {
    "could not be checked": ("inconclusive",),
    "passed": ("pass",),
    "not applicable": ("not-applicable",),
}
"""Words and states of the findings that ask for nothing; each lot is folded."""
MAX_RANKS = 16
"""Ranks with a bar and numbers of their own; of more, only those with pictures have them."""
MAX_INPUTS = 8
"""Inputs whose provenance is written out."""


@dataclass(frozen=True)
class Figure:
    """A chart with the words and the table that say the same without it."""

    title: str
    summary: str
    chart: Chart
    table: Table


@dataclass(frozen=True)
class Canvas:
    """A timeline that the page's script draws from the embedded report.

    Args:
        rank: index in `Report.ranks`. picture: its field that holds the timeline.
        legend: word and colour of the labels that occur.
    """

    title: str
    summary: str
    rank: int
    picture: str
    legend: list[tuple[str, str]]
    table: Table


@dataclass(frozen=True)
class Bar:
    """The partition of one rank, and the time that its 100 % stand for."""

    rank: Rank
    window: str
    segments: list[Segment]


@dataclass(frozen=True)
class RankView:
    """What the page shows of one rank; `window` says which time its numbers stand for."""

    rank: Rank
    window: str
    figures: list[Figure]
    canvases: list[Canvas]
    collectives: Table
    kernels: Table


@dataclass(frozen=True)
class SharePair:
    """A share of the step, by trace and by ablation."""

    key: str
    word: str
    traced: str
    ablated: str
    interval: str


@dataclass(frozen=True)
class Checked:
    """The verdict beside that of an ablation."""

    state: str
    words: str
    method: str
    bar: list[Segment]
    shares: list[SharePair]
    traced: str
    ablated: str
    variants: Table
    reasons: list[str]


def render(report: Report) -> str:
    """The page of `report`. Equal reports give equal pages, byte for byte."""
    # A report made in Python may hold an int where the schema says float, or keys in another order;
    # one trip through JSON makes it what a reader of the file would have.
    report = msgspec.json.decode(compact_json(report), type=Report)
    detailed = ranks_in_detail(report)
    views = [_rank_view(rank, report.ranks.index(rank)) for rank in detailed]
    overview = overview_of(report)
    together = _together(report)
    figures = [*together, *(f for view in views for f in view.figures)]
    charts = [figure.chart for figure in figures]
    listed = report.ranks if len(report.ranks) <= MAX_RANKS else detailed
    bars = [Bar(r, _window(r), partition_bar(r.summary.partition_ns)) for r in listed]
    findings = ranked_findings(report.findings)
    return fill(
        "report.html.j2",
        version=report.traceprobe_version,
        inputs=[one.name for one in report.inputs],
        embedded={
            "report": compact_json(report),
            "labels": msgspec.json.encode(_labels()),
            "markdown": msgspec.json.encode(report.to_markdown()),
            "charts": msgspec.json.encode([_payload(chart) for chart in charts]),
        },
        scripts=[
            *([vendored_scripts()] if charts else []),
            file("timeline.js") + file("page.js") + file("report.js"),
        ],
        report=report,
        verdict=report.verdict,
        shares=share_bar(report.verdict.shares),
        checked=_checked(report),
        memory=memory_text.view(report.memory),
        metrics=metrics_tables(listed),
        bars=bars,
        classes={segment.key for bar in bars for segment in bar.segments},
        views=views,
        together=together,
        overview=overview,
        links=links_line(report.run),
        roofline=[]
        if isinstance(roof := report.roofline, msgspec.UnsetType)
        else parts_of(sections(roof)),
        groups=None if overview is None else groups_table(report, overview),
        listed=len(listed),
        left_out=ranges(sorted(r.rank for r in report.ranks if r not in detailed)),
        markers=_markers(report.ranks),
        opportunities=[f for f in findings if f.status in ATTENTION],
        checked_findings=[(words, _of(findings, states)) for words, states in FOLDED.items()],
        overlaps=overlaps(detailed),
        gaps=gaps_table(report),
        perfetto=all(i.format == "kineto" for i in report.inputs) and slice_command(report),
        max_inputs=MAX_INPUTS,
    )


def _markers(ranks: list[Rank]) -> list[tuple[str, StepMarker]]:
    """Step markers, each with the ranks that share it."""
    found: dict[StepMarker, list[int]] = {}
    for rank in sorted(ranks, key=lambda r: r.rank):
        if rank.step_marker is not None:
            found.setdefault(rank.step_marker, []).append(rank.rank)
    return [(ranges(sorted(set(mine))), marker) for marker, mine in found.items()]


def _of(findings: list[Finding], states: tuple[str, ...]) -> list[Finding]:
    return [finding for finding in findings if finding.status in states]


def _checked(report: Report) -> Checked | None:
    """None where there is no ablation."""
    ablation = report.ablation
    if ablation is None:
        return None
    compared = agreement.compare(report.verdict, ablation)
    shares = ablation.oracle.shares
    # Rounded as in the card above: two figures for one share would puzzle.
    traced = {segment.key: segment.percent for segment in share_bar(report.verdict.shares)}
    known = {key: share.value for key in SHARES if (share := shares.get(key)) is not None}
    trials = max((len(variant.trial_ms) for variant in ablation.variants), default=0)
    ranks = f", on {ablation.ranks} ranks at once" if ablation.ranks > 1 else ""
    return Checked(
        state=compared.state,
        words=compared.words,
        method=f"{trials} trials of each variant, in turns{ranks}",
        bar=share_bar(known),
        shares=[_pair(key, traced.get(key), shares.get(key)) for key in SHARES],
        traced=_bound_by(report.verdict),
        ablated=_bound_by(ablation.oracle),
        variants=ablation_table(ablation),
        reasons=ablation_text.reasons(ablation),
    )


def _pair(key: str, traced: str | None, ablated: Share | None) -> SharePair:
    return SharePair(
        key=key,
        word=taxonomy.SHARE_LABELS[key],
        traced=traced or NOT_OBSERVED,
        ablated=percent(None if ablated is None else ablated.value),
        interval="" if ablated is None else f"{ablation_text.bounds(ablated)} %",
    )


def _bound_by(judged: Verdict | AblationVerdict) -> str:
    words = [taxonomy.SHARE_LABELS[part] for part in agreement.parts(judged)]
    return " and ".join(words) or "no verdict"


def _window(rank: Rank) -> str:
    unit = "per step" if rank.summary.iterations_used else "in the whole capture"
    return f"{duration(rank.summary.window_ns / steps_divisor(rank))} {unit}"


def _rank_view(rank: Rank, index: int) -> RankView:
    figures: list[Figure] = []
    bars = iteration_bars(rank, MAX_BARS)
    if any(bar.partition_ns for bar in bars):
        words = iterations_summary(rank)
        figures.append(
            Figure(
                title="Every iteration",
                summary=words,
                chart=iterations_chart(f"chart-iterations-{rank.rank}", bars, words),
                table=iterations_table(bars),
            )
        )
    found = histogram(rank)
    if found is not None and rank.summary.step_ms is not None:
        words = histogram_summary(found, rank)
        figures.append(
            Figure(
                title="How long a step takes",
                summary=words,
                chart=steps_chart(f"chart-steps-{rank.rank}", found, rank.summary.step_ms, words),
                table=histogram_table(found),
            )
        )
    tables = (collectives_table(rank), kernels_table(rank))
    canvases = [
        _canvas(rank, index, picture, title)
        for picture, title in TIMELINES.items()
        if _drawable(getattr(rank, picture))
    ]
    return RankView(rank, _window(rank), figures, canvases, *tables)


def _drawable(timeline: Timeline | None) -> bool:
    return timeline is not None and any(lane.start_ns for lane in timeline.lanes)


def _canvas(rank: Rank, index: int, name: str, title: str) -> Canvas:
    timeline: Timeline = getattr(rank, name)
    picture = timeline_picture(timeline, rank.gaps)
    present = {segment.label for segment in picture.segments}
    legend = [_label(key) for key in colours.CLASS_COLOURS if key in present]
    if present - set(colours.CLASS_COLOURS):
        legend.append(("other", colours.OTHER_COLOUR))
    return Canvas(
        title=title if timeline.iteration is not None else "Timeline",
        summary=timeline_summary(timeline, picture),
        rank=index,
        picture=name,
        legend=legend,
        table=timeline_table(picture),
    )


def _label(key: str) -> tuple[str, str]:
    """Word and colour of a label of the timeline."""
    return label_word(key), colours.CLASS_COLOURS[key]


def _labels() -> dict[str, tuple[str, str]]:
    """Word and colour of every label that a timeline may have."""
    known = {key: _label(key) for key in colours.CLASS_COLOURS}
    return {**known, "other": ("other", colours.OTHER_COLOUR)}


def _together(report: Report) -> list[Figure]:
    """The pictures of several ranks; none for one."""
    overview = overview_of(report)
    found = [figure for figure in (_ranks_figure(report),) if figure is not None]
    if overview is not None and any(ms for row in overview.steps.step_ms for ms in row):
        words, rows = steps_summary(overview.steps), step_rows(overview.steps)
        found.append(
            Figure(
                title="Every step of every rank",
                summary=words,
                chart=rank_steps_chart("chart-rank-steps", overview.steps, rows, words),
                table=steps_table(overview.steps, rows),
            )
        )
    return found


def _ranks_figure(report: Report) -> Figure | None:
    """Ranks beside each other; None for one."""
    measured = [rank for rank in report.ranks if rank.summary.window_ns]
    if len(measured) < 2:
        return None
    words, columns = ranks_summary(measured), rank_columns(measured)
    return Figure(
        title="Ranks beside each other",
        summary=words,
        chart=ranks_chart("chart-ranks", columns, words),
        table=ranks_table(columns),
    )


def _payload(chart: Chart) -> dict[str, Any]:
    return {key: getattr(chart, key) for key in ("id", "description", "spec", "data")}


def vendored_scripts() -> str:
    """Vega, Vega-Lite and Vega-Embed in load order, each behind its licence."""
    folder = templates_dir() / "vendor"
    versions = json.loads((folder / "VERSIONS.json").read_text(encoding="utf-8"))
    parts: list[str] = []
    for record in versions["load_order"]:
        package = record["package"]
        licence = (folder / f"{package}.LICENSE.txt").read_text(encoding="utf-8")
        source = (folder / record["file"]).read_text(encoding="utf-8")
        parts.append(f"/*! {package} {record['version']}\n{licence}*/\n{source}")
    return "".join(parts)
