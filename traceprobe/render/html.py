"""The page of a document: one self-contained HTML file, no network, readable without scripts.

A page embeds the whole record as JSON, so that it can be rebuilt from itself. Strings from a trace
reach it in two ways only: through jinja's autoescaping, or inside JSON whose `<`, `>` and `&` are
written as Unicode escapes, which no HTML parser can mistake for markup.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from msgspec.structs import replace

from traceprobe.formatting import code_spans, shorten, significant
from traceprobe.model import taxonomy
from traceprobe.records.report import Finding
from traceprobe.render import bars, colours
from traceprobe.render.compiled import Compiled
from traceprobe.render.document import Block, Chart, Document, Owners, Section, Table, Timeline
from traceprobe.render.markdown import render as markdown
from traceprobe.render.places import places
from traceprobe.render.resources import templates_dir
from traceprobe.render.savings import interval, saving
from traceprobe.verdict.finding_order import ATTENTION

DOCUMENTATION = "https://github.com/traceprobe/traceprobe/blob/main/docs/"
"""What a page links to for more; nothing of it is loaded."""
MAX_PROSE = 600
"""Characters of one headline, reason or piece of evidence."""
MAX_HELP = 1200
MAX_CELL = 400
MAX_NAME = 160
STYLES = ("page.css", "timeline.css", "owners.css")
SCRIPTS = ("page.js", "tables.js", "charts.js")
"""Those of every page, in the order in which they run."""
LONG = 28
"""Characters from which a cell may be broken into lines."""
TIMELINE_SCRIPTS = tuple(
    f"timeline{part}.js"
    for part in (
        *("-data", "-lanes", "-model", "-draw", "-facts", "-view"),
        *("-light", "-segments", "-input", "-links", ""),
    )
)
"""In the order in which they need each other."""
OWNERS_SCRIPTS = ("owners-model.js", "owners-icicle.js", "owners-table.js", "owners.js")
"""The same."""
SHARED_SCRIPT = "shared.js"
"""What both need."""
FOLDED = {
    "could not be run": "inconclusive",
    "passed": "pass",
    "not applicable": "not-applicable",
}
"""Words and states of the findings that ask for nothing; each lot is folded."""


def render(document: Document) -> str:
    """The page of `document`. Equal documents give equal pages, byte for byte."""
    blocks = [*walk(document)]
    charts = [block for block in blocks if isinstance(block, Chart)]
    timelines = [block for block in blocks if isinstance(block, Timeline)]
    owners = [block for block in blocks if isinstance(block, Owners)]
    labelled = [block.labels for block in blocks if isinstance(block, Timeline | Owners)]
    embedded = {
        document.kind: msgspec.json.format(document.json.encode(), indent=-1),
        "labels": msgspec.json.encode(labelled[0] if labelled else {}),
        "markdown": msgspec.json.encode(markdown(document)),
        "charts": msgspec.json.encode([_payload(chart) for chart in charts]),
    }
    # An element each: what stops one leaves the others.
    scripts = [
        (SHARED_SCRIPT,) if labelled else (),
        TIMELINE_SCRIPTS if timelines else (),
        SCRIPTS,
        OWNERS_SCRIPTS if owners else (),
    ]
    joined = ["".join(map(_file, names)) for names in scripts if names]
    return _fill(document, embedded, joined, library=bool(charts))


def excerpt(document: Document, sections: Sequence[str]) -> str:
    """A page of the result and the sections with these ids, without scripts and embedded data."""
    chosen = [section for section in document.sections if section.id in sections]
    return _fill(replace(document, sections=chosen), {}, [])


def walk(document: Document) -> Iterator[Block]:
    """All blocks of a document in order, those inside of others after them."""

    def inside(blocks: Sequence[Block]) -> Iterator[Block]:
        for block in blocks:
            yield block
            if isinstance(block, Section):
                yield from inside(block.blocks)

    yield from inside([*document.result, *document.sections, *document.provenance])


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


def packed(text: str) -> str:
    """A text as a page carries it until it is needed: deflated (zlib), in base64."""
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _fill(
    document: Document,
    embedded: Mapping[str, bytes],
    scripts: Sequence[str],
    *,
    library: bool = False,
) -> str:
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            document=document,
            embedded={key: _inert(text) for key, text in embedded.items()},
            library=Markup(_file("vendor/library.txt")) if library else "",
            scripts=[Markup(script) for script in scripts],
            style=Markup("".join(map(_file, STYLES))),
        )
    )


def _file(name: str) -> str:
    """The text of a style or a script."""
    return (templates_dir() / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(templates_dir()),
        bytecode_cache=Compiled(),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        significant=significant,
        name=lambda text: shorten(text, MAX_NAME),
        cell=lambda text: shorten(text, MAX_CELL),
        prose=_prose,
        kind=lambda block: type(block).__name__,
        align=_align,
        classes=_classes,
        stacked=bars.stacked,
        legend=bars.legend,
        numbers=bars.table,
        places=places,
        saving=saving,
        interval=lambda finding: interval(finding.predicted, finding.saving_ms_per_step),
    )
    environment.globals.update(
        taxonomy=taxonomy,
        colours=colours,
        documentation=DOCUMENTATION,
        max_help=MAX_HELP,
        attention=ATTENTION,
        folded=FOLDED,
    )
    return environment


def _prose(text: str, limit: int = MAX_PROSE) -> Markup:
    """A sentence; what stands between backticks is set as code."""
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if is_code else escape(part)
        for part, is_code in code_spans(shorten(text, limit))
    )


def _align(table: Table) -> list[str]:
    """How each column is set: `r` number, `n` name from a trace, `k` short text, `t` long text."""
    longest = [max((len(row[n]) for row in table.rows), default=0) for n in range(len(table.head))]
    return [
        "r" if n in table.numeric else "n" if n in table.names else "k" if length < LONG else "t"
        for n, length in enumerate(longest)
    ]


def _classes(finding: Finding) -> str:
    """The classes of the partition that a finding is about, for the timeline to show."""
    if isinstance(finding.saving_of, msgspec.UnsetType):
        return ""
    return ",".join(name for name in finding.saving_of if name in taxonomy.PARTITION)


def _payload(chart: Chart) -> dict[str, object]:
    return {
        "id": chart.id,
        "description": chart.description or chart.summary,
        "spec": chart.spec,
        "data": chart.data,
    }


def _inert(json_bytes: bytes) -> Markup:
    """JSON that means the same and that no HTML parser can leave."""
    text = json_bytes.decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
