"""Hand-made documents: a small one with each kind of block, a large one, and one made to hurt."""

from __future__ import annotations

import math

from tests.report_factory import HOSTILE
from traceprobe.render.charts import Line, curves
from traceprobe.render.document import (
    Bar,
    Bars,
    Code,
    Document,
    Facts,
    Piece,
    Section,
    Table,
    Text,
)

BLUE, ORANGE = "#0072b2", "#d55e00"
BARS = Bars(
    "Classes of a step",
    "ms per step",
    [
        Bar("base", [Piece("backward", BLUE, 20.0), Piece("waiting", ORANGE, 80.0)], "100 ms"),
        Bar("new", [Piece("backward", BLUE, 20.0), Piece("waiting", ORANGE, 30.0)], "50 ms"),
    ],
)
CHANGES = Table(
    "Changes",
    ("class", "base", "new", "change", "interval", "real"),
    [
        ("waiting", "80.0", "30.0", "−50.0", "−51.0 to −49.0", "yes"),
        ("backward", "20.0", "20.0", "0", "−0.1 to +0.1", "no"),
    ],
    frozenset({1, 2, 3, 4}),
    ("good", "plain"),
)
LINES = [
    Line("ideal", [(1, 100), (2, 200), (4, 400)], dashed=True),
    Line("measured", [(1, 100), (2, 190), (4, 350)]),
]
RATES = curves("chart-rates", "Rates", "ranks", "samples/s", LINES)
DOUBLING = curves("chart-log", "Rates, doubling", "ranks", "samples/s", LINES, log=True)
SMALL = Document(
    kind="comparison",
    title="50.0 % faster (base → new)",
    tone="good",
    headline="100 → 50.0 ms per step",
    points=["50.0 ms of waiting gone", "limited by waiting"],
    cautions=["Only six steps."],
    sections=[
        Section("step", "Where it goes", ("Of one step.",), [BARS, CHANGES], help="Bars add up."),
        Section("scaling", "How it scales", (), [RATES]),
        Section("log", "Doubling", (), [DOUBLING]),
        Section("runs", "Folded anyway", ("Nothing more.",), folded=True),
    ],
    inputs=["base.json", "new.json"],
    version="9.8.7",
    json='{"kind": "comparison", "text": "</script>"}',
)


def _large() -> Document:
    """More of everything than fits an issue comment."""
    rows = [(f"row {n}", *("x|y" * 30 for _ in range(5))) for n in range(40)]
    table = Table("Rows", ("", *"abcde"), rows, most=50)
    sections = [Section(f"part-{n}", f"Part {n}", (), [table]) for n in range(9)]
    return Document(
        kind="ladder",
        title="No change",
        tone="plain",
        headline="As before",
        points=[],
        cautions=[],
        sections=sections,
        inputs=["a"] * 100,
        version="9.8.7",
        json="{}",
    )


HOSTILE_DOCUMENT = Document(
    kind="ladder",
    title=HOSTILE[0] + HOSTILE[3],
    tone="bad",
    headline=HOSTILE[5],
    points=HOSTILE,
    cautions=HOSTILE,
    sections=[
        Section(
            f"part-{n}",
            name,
            HOSTILE,
            [
                Bars(name, name, [Bar(name, [Piece(w, "red;}", 1) for w in HOSTILE], name)]),
                curves(
                    f"chart-{n}", name, name, name, [Line(name, [(0, 0), (1, math.inf), (2, 3)])]
                ),
                Table(name, HOSTILE[:5], [HOSTILE[:5], HOSTILE[3:]], tones=["bad", "unclear"]),
                Facts([(name, name)]),
                Text(HOSTILE, name, "bad"),
                Code(name),
                Section("", name, HOSTILE, [Text(HOSTILE)], folded=True),
            ],
            help=name,
        )
        for n, name in enumerate(HOSTILE[:4])
    ],
    inputs=HOSTILE,
    version=HOSTILE[4],
    json='{"name": "</script><!--"}',
)
EMPTY = Document(
    kind="gpus", title="Nothing", tone="unclear", headline="", version="9.8.7", json="{}"
)
HOLLOW = Document(
    kind="scaling",
    title="Nothing to draw",
    tone="plain",
    headline="No run",
    points=[],
    cautions=[],
    sections=[
        Section(
            "empty",
            "Empty",
            (),
            [
                Bars("No bars", "ms", []),
                Bars("A bar of nothing", "ms", [Bar("base", [], "0 ms")]),
                curves("chart-none", "No curves", "x", "y", []),
                curves(
                    "chart-hollow", "A curve of nothing", "x", "y", [Line("base", [])], log=True
                ),
                Table("No rows", ("run", "ms"), []),
            ],
        )
    ],
    inputs=[],
    version="9.8.7",
    json="{}",
)
DOCUMENTS = {
    "small": SMALL,
    "large": _large(),
    "hostile": HOSTILE_DOCUMENT,
    "empty": EMPTY,
    "hollow": HOLLOW,
}
