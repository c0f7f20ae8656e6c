"""A record in a notebook: its charts as altair objects, and what a cell shows of it."""

from __future__ import annotations

import json
import re
from html import escape, unescape
from typing import TYPE_CHECKING, Any

from traceprobe.errors import UsageError
from traceprobe.records.base import Rendered
from traceprobe.render import document_of
from traceprobe.render.document import Chart
from traceprobe.render.html import excerpt, walk

if TYPE_CHECKING:
    import altair as alt

INK = "#7a828a"
"""Grey that reads on light and dark paper: the theme of a notebook is not known."""
SHORTEST, TALLEST = 240, 560
"""Pixels of a result in a cell; more of it is scrolled to, or dragged open."""
PER_CHARACTER = 0.45
"""Pixels that a character takes in the mean; without scripts a frame does not know its content."""
_UNSEEN = re.compile(r"<head>.*?</head>|<details.*?</details>|<[^>]+>|\s{2,}", re.DOTALL)
"""What takes no room: markup, and what is folded."""
_TURNED = "{filter:invert(0.91) hue-rotate(180deg)}"
STYLE = (
    '<style>@media (prefers-color-scheme:light){[data-jp-theme-light="false"] .traceprobe,'
    f'.vscode-dark .traceprobe,html[theme="dark"] .traceprobe{_TURNED}}}'
    '@media (prefers-color-scheme:dark){[data-jp-theme-light="true"] .traceprobe,'
    f'.vscode-light .traceprobe,html[theme="light"] .traceprobe{_TURNED}}}</style>'
)
"""A frame is as light or dark as the system; where Jupyter, VS Code or Colab are set to the other,
it is turned, as browsers do not tell frames of the theme of the page around them."""
SHOWN = ("findings",)
"""Sections that a cell shows below the verdict."""


def chart(record: Rendered, name: str, rank: int | None = None) -> alt.Chart:
    """The altair chart of that name, with its data, e.g. `iterations`, `ranks`, `memory-measured`.

    Args:
        rank: of which the chart is to be, for charts of single ranks; the first that has one.

    Raises:
        UsageError: the record has no such chart; the message names those it has.
    """
    # Its import takes longer than an analysis of a small trace.
    import altair as alt

    found = {
        block.id.removeprefix("chart-"): block
        for block in walk(document_of(record))
        if isinstance(block, Chart)
    }
    wanted = name if rank is None else f"{name}-{rank}"
    # Without a rank, a chart of single ranks is that of the first.
    key = next((key for key in found if wanted in (key, key.rpartition("-")[0] or key)), None)
    if key is None:
        known = ", ".join(found) or "none"
        raise UsageError(f"there is no chart {wanted!r} here; there are: {known}")
    made: alt.Chart = alt.Chart.from_dict(_with_data(found[key]))
    return made


def _with_data(chart: Chart) -> dict[str, Any]:
    """A whole specification: colours of its own and rows in place of columns."""
    spec: dict[str, Any] = json.loads(json.dumps(chart.spec).replace("currentColor", INK))
    rows = {
        name: [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        for name, columns in chart.data.items()
    }
    return {**spec, "datasets": rows, "description": chart.description or chart.summary}


def html(record: Rendered) -> str:
    """The result of a record in a frame, for a report also its findings; 25 to 70 kB.

    A frame keeps the page's style and the notebook's apart, in Jupyter and in VS Code alike. There
    are no scripts in it: notebooks that are not trusted run none, and the charts' libraries would
    add 0.8 MB to the notebook each time one is shown.
    """
    page = excerpt(document_of(record), SHOWN)
    height = SHORTEST + PER_CHARACTER * len(unescape(_UNSEEN.sub("", page)))
    return (
        f'{STYLE}<iframe class="traceprobe" srcdoc="{escape(page)}" sandbox="allow-popups" '
        f'title="traceprobe" style="width: 100%; height: {min(height, TALLEST):.0f}px; border: 0; '
        'resize: vertical; overflow: auto"></iframe>'
    )
