"""One self-contained HTML page: no network, readable without scripts.

A page embeds the whole result as JSON, so that it can be rebuilt from itself. Strings from a trace
reach it in two ways only: through jinja's autoescaping, or inside JSON whose `<`, `>` and `&` are
written as Unicode escapes, which no HTML parser can mistake for markup.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from traceprobe.formatting import code_spans, duration, percent, shorten, signed, significant, size
from traceprobe.model import taxonomy
from traceprobe.render import colours
from traceprobe.render.compiled import Compiled
from traceprobe.render.resources import templates_dir

DOCUMENTATION = "https://github.com/traceprobe/traceprobe/blob/main/docs/"
"""What a page links to for more; nothing of it is loaded."""
MAX_PROSE = 600
"""Characters of one headline, reason or piece of evidence."""
MAX_NAME = 160


def fill(
    template: str,
    *,
    version: str,
    inputs: Sequence[str],
    embedded: Mapping[str, bytes],
    scripts: Sequence[str],
    **values: Any,
) -> str:
    """Fill in a template that extends `page.html.j2`.

    Args:
        version: traceprobe's, that made the result. inputs: names of what it was made from.
        embedded: JSON that the scripts find in the element `traceprobe-KEY`.
        scripts: their source; each is an element of its own.
        values: what the template itself asks for.
    """
    return (
        _environment()
        .get_template(template)
        .render(
            version=version,
            inputs=inputs,
            embedded={key: _inert(text) for key, text in embedded.items()},
            scripts=[Markup(script) for script in scripts],
            style=Markup(file("page.css")),
            **values,
        )
    )


def file(name: str) -> str:
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
        duration=duration,
        share=percent,
        significant=significant,
        bytesize=size,
        name=lambda text: shorten(text, MAX_NAME),
        prose=_prose,
        signed=signed,
        pretty=_pretty,
    )
    environment.globals.update(taxonomy=taxonomy, colours=colours, documentation=DOCUMENTATION)
    return environment


def _prose(text: str) -> Markup:
    """A sentence; what stands between backticks is set as code."""
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if is_code else escape(part)
        for part, is_code in code_spans(shorten(text, MAX_PROSE))
    )


def _pretty(value: object) -> str:
    """Indented JSON in ASCII, which leaves no control character and no bidi mark unescaped."""
    return json.dumps(value, indent=1, sort_keys=True)


def _inert(json_bytes: bytes) -> Markup:
    """JSON that means the same and that no HTML parser can leave."""
    text = json_bytes.decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
