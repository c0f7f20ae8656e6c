"""`traceprobe top`: which modules, lines, operators or kernels the time of a step belongs to."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from traceprobe.cli.console import document_summary
from traceprobe.cli.options import MOST_RANKS, OUTPUT, Redact, Silent, Step

MOST_ROWS = 100_000


class By(str, Enum):
    """What rows are."""

    module = "module"
    line = "line"
    operator = "operator"
    kernel = "kernel"
    class_ = "class"


def command(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A report.json, a trace, or a folder with the traces of the ranks.",
        ),
    ],
    by: Annotated[
        By,
        typer.Option(
            "--by",
            rich_help_panel=OUTPUT,
            help="What owns the time: module, line of the program, operator, kernel, or class of "
            "the partition.",
        ),
    ] = By.operator,
    rank: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MOST_RANKS,
            metavar="N",
            rich_help_panel=OUTPUT,
            help="Which rank. [default: the first]",
        ),
    ] = None,
    rows: Annotated[
        int,
        typer.Option(
            "--rows",
            "-n",
            min=1,
            max=MOST_ROWS,
            metavar="N",
            rich_help_panel=OUTPUT,
            help="Rows to list.",
        ),
    ] = 20,
    step: Step = None,
    redact: Redact = False,
    quiet: Silent = False,
) -> None:
    """List what the time of a step belongs to, busy and idle: modules, lines or operators."""
    from traceprobe.cli.runs import find, report_of
    from traceprobe.options import Options
    from traceprobe.render.pages.top import document

    report = report_of(find(run, quiet=quiet), Options(step=step))
    if redact:
        from traceprobe.anonymise.redact import redact as redacted

        report = redacted(report)
    document_summary(document(report, by.value, rank, rows), verbose=True)
