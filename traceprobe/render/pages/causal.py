"""Probes of a program told in sections, and what a report says of them beside its own verdict."""

from __future__ import annotations

from traceprobe.formatting import NOT_OBSERVED, counted, shorten, significant
from traceprobe.model.taxonomy import AGREEMENT_LABELS
from traceprobe.records.causal import Causal, Judgement, ProbedRegion, Slope
from traceprobe.records.critical_path import CriticalPath
from traceprobe.records.report import Report
from traceprobe.render.colours import OTHER_COLOUR, SHARE_COLOURS
from traceprobe.render.document import (
    Bar,
    Bars,
    Block,
    Code,
    Document,
    Piece,
    Section,
    Table,
    Text,
    Tone,
)
from traceprobe.verdict import criticality, second_opinion
from traceprobe.verdict.second_opinion import label

TITLE = "What one more millisecond costs"
MAX_PROSE = 400
NOISY = 0.05
"""Part of a step; an interval that is wider tells nothing of the hooks."""
CELLS = 20
"""Of a bar of text for a slope of 1."""
_COLOURS: dict[Judgement, str] = {
    "critical": SHARE_COLOURS["overhead"],
    "partly": SHARE_COLOURS["io"],
    "hidden": SHARE_COLOURS["compute"],
    "unclear": OTHER_COLOUR,
}
_TONES: dict[Judgement, Tone] = {"critical": "bad", "hidden": "good", "unclear": "unclear"}
_AGREEMENT_TONES: dict[str, Tone] = {"agree": "good", "disagree": "unclear"}
_HELP = (
    "A known delay was put into one region of the running program after the other, once a step, "
    "without a profiler, and the step was timed: {blocks}. The number is by how much the step got "
    "longer for one millisecond of delay. At 1 the step waits for the region, and would at first "
    "get shorter with it as well; at 0 something else is waited for meanwhile, and work on the "
    "region gains nothing. The delay is at the region's beginning, so two regions that follow each "
    "other on the same critical path both have 1: the numbers do not add up to 1. Intervals are "
    "95 % by Student's distribution over the rounds."
)


def document(causal: Causal) -> Document:
    """The probes for all outputs."""
    cautions = notes(causal)
    return Document(
        kind=causal.kind,
        title=title(causal),
        aside="by probes",
        headline=sentence(causal),
        cautions=cautions,
        sections=[Section("causal", TITLE, blocks=blocks(causal), help=_help(causal))],
        summary={
            "terminal": [
                [Code("\n".join(_lines(causal)))],
                [Text(cautions, "-")],
                [Text(["more with -v: the step at each delay"])],
            ]
        },
        version=causal.traceprobe_version,
        json=causal.to_json(),
    )


def beside(report: Report, causal: Causal) -> Section:
    """The verdict and the critical path of a trace beside the probes."""
    compared = second_opinion.compare(report.verdict, causal)
    found: list[Block] = [
        Text(
            [f"By probes: {compared.words}."],
            f"{AGREEMENT_LABELS[compared.state]}.",
            _AGREEMENT_TONES.get(compared.state, "plain"),
        )
    ]
    if isinstance(report.critical_path, CriticalPath):
        found.append(Text(list(second_opinion.contradictions(report.critical_path, causal))))
    return Section(
        "causal",
        TITLE,
        blocks=[*found, *blocks(causal), Text(notes(causal))],
        help=_help(causal),
        nav="Probes",
    )


def title(causal: Causal) -> str:
    """The regions that the step waits for."""
    critical = _named(causal, "critical")
    if critical:
        return f"Critical: {', '.join(critical)}"
    unclear = len(_named(causal, "unclear"))
    if unclear:
        return f"Too noisy to tell: {unclear} of {counted(len(causal.regions), 'region')} unclear"
    return "No region is critical"


def sentence(causal: Causal) -> str:
    """Step, and how many regions of which kind."""
    hidden = _named(causal, "hidden")
    rest = f"; hidden: {', '.join(hidden)}" if hidden else ""
    return f"A step takes {significant(causal.step_ms)} ms{rest}."


def blocks(causal: Causal) -> list[Block]:
    """A bar and a row for each region."""
    bars = [
        Bar(
            label(region),
            [
                Piece(
                    region.judgement,
                    _COLOURS[region.judgement],
                    min(max(region.slope.value, 0.0), 2.0),
                )
            ],
            f"{region.slope.value:.2f} ({_bounds(region.slope)})",
        )
        for region in causal.regions
    ]
    return [Bars("Milliseconds of the step for one of delay", "slope", bars), _table(causal)]


def notes(causal: Causal) -> list[str]:
    """What was not probed, what the hooks cost, and what cannot be."""
    return [
        _cost(causal),
        *criticality.surprises([(label(region), region.slope) for region in causal.regions]),
        *(
            f"not probed: {shorten(name, 40)} ({shorten(why, MAX_PROSE)})"
            for name, why in sorted(causal.absent.items())
        ),
    ]


def _cost(causal: Causal) -> str:
    """What the hooks take of a step, as far as it is known."""
    hooks = causal.hooks_ms
    spread = f"95 % interval {1e3 * hooks.low:.0f} to {1e3 * hooks.high:.0f} µs a step"
    if hooks.high - hooks.low > NOISY * causal.step_ms:
        return f"what the hooks cost is lost in the noise ({spread})".replace("-", "−")
    if hooks.low <= 0 <= hooks.high:
        return f"the hooks cost nothing that shows ({spread})".replace("-", "−")
    share = 100 * hooks.value / causal.step_ms
    return f"the hooks cost {1e3 * hooks.value:.0f} µs a step, {share:.2f} % ({spread})"


def line(causal: Causal) -> str:
    """All slopes on one line."""
    return ", ".join(f"{label(region)} {region.slope.value:.2f}" for region in causal.regions)


def _table(causal: Causal) -> Table:
    rows = [
        [
            label(region),
            f"{region.slope.value:.2f}",
            _bounds(region.slope),
            region.judgement,
            _steps(region),
        ]
        for region in causal.regions
    ]
    head = ["delay in", "ms a ms", "95 % interval", "", "delay → step, ms"]
    tones = [_TONES.get(region.judgement, "plain") for region in causal.regions]
    return Table("The regions", head, rows, frozenset({1, 2}), tones, most=len(rows) or 1)


def _steps(region: ProbedRegion) -> str:
    return ", ".join(
        f"{significant(block.delay_ms) if block.delay_ms else 0} → {significant(block.step_ms)}"
        for block in region.blocks
    )


def _lines(causal: Causal) -> list[str]:
    """A region a line, with a bar that ends at a slope of 1."""
    width = max((len(label(region)) for region in causal.regions), default=0)
    return [
        f"{label(region):<{width}}  {_bar(region.slope.value)} {region.slope.value:5.2f}  "
        f"({_bounds(region.slope)})  {region.judgement}"
        for region in causal.regions
    ]


def _bar(value: float) -> str:
    cells = round(CELLS * min(max(value, 0.0), 1.0))
    return "█" * cells + "·" * (CELLS - cells)


def _bounds(slope: Slope) -> str:
    return f"{slope.low:.2f}–{slope.high:.2f}" if slope.low >= 0 else _signed(slope)


def _signed(slope: Slope) -> str:
    return f"{slope.low:.2f} to {slope.high:.2f}".replace("-", "−")


def _named(causal: Causal, judgement: Judgement) -> list[str]:
    return [label(region) for region in causal.regions if region.judgement == judgement]


def _help(causal: Causal) -> str:
    delays = [block.delay_ms for region in causal.regions for block in region.blocks]
    largest = significant(max(delays)) if delays else NOT_OBSERVED
    return _HELP.format(
        blocks=f"{causal.rounds} blocks of about {causal.steps_per_block} steps each, in turns, "
        f"with delays of up to {largest} ms"
    )
