"""A diagnosis in the terminal: what needs attention first, with its meaning and its fix."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from traceprobe.formatting import encodable, shorten
from traceprobe.records.diagnosis import STATUSES, CheckStatus, Diagnosis, Outcome, Section
from traceprobe.render.console import collected, console

if TYPE_CHECKING:
    from rich.console import Console

WORDS: dict[CheckStatus, str] = {
    "fail": "fail",
    "warn": "warn",
    "unknown": "unknown",
    "ok": "ok",
    "not-applicable": "does not apply",
}
_STYLES: dict[CheckStatus, str] = {"fail": "red", "warn": "yellow", "unknown": "cyan"}
_INDENT = 10
"""Cells of a status and the spaces around it."""
MAX_PROSE = 400
MAX_NAME = 80


def render(diagnosis: Diagnosis, width: int, color: bool, encoding: str = "utf-8") -> str:
    """The checks in lines of at most `width` columns, all of it encodable in `encoding`."""
    printed = console(width, color=color)
    for section in diagnosis.sections:
        _say(printed, shorten(section.subject, MAX_NAME), encoding, "bold")
        for status in STATUSES[:-1]:
            for outcome in section.checks:
                if outcome.status == status:
                    _outcome(printed, outcome, encoding)
        idle = [outcome.id for outcome in section.checks if outcome.status == STATUSES[-1]]
        if idle:
            _row(printed, "", f"{WORDS[STATUSES[-1]]}: {', '.join(idle)}", encoding)
        _say(printed, "", encoding)
    _say(printed, total(diagnosis.sections), encoding, "bold")
    return collected(printed)


def total(sections: list[Section]) -> str:
    """How many checks ended how, on one line."""
    counts = Counter(outcome.status for section in sections for outcome in section.checks)
    return ", ".join(f"{counts[status]} {WORDS[status]}" for status in STATUSES if counts[status])


def _outcome(printed: Console, outcome: Outcome, encoding: str) -> None:
    style = _STYLES.get(outcome.status, "")
    found = f"{outcome.id}: {shorten(outcome.found, MAX_PROSE)}"
    _row(printed, WORDS[outcome.status], found, encoding, style)
    if outcome.meaning:
        _row(printed, "", f"means: {outcome.meaning}", encoding)
        _row(printed, "", f"fix: {outcome.fix}", encoding)


def _row(printed: Console, left: str, text: str, encoding: str, style: str = "") -> None:
    """Further lines begin below the first word of the text."""
    grid = Table.grid(padding=0)
    grid.add_column(width=_INDENT)
    grid.add_column(overflow="fold")
    grid.add_row(Text(f"  {left}"[:_INDENT], style=style), Text(encodable(text, encoding)))
    printed.print(grid)


def _say(printed: Console, text: str, encoding: str, style: str = "") -> None:
    printed.print(Text(encodable(text, encoding), style=style), overflow="fold")
