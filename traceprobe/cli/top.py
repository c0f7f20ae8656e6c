"""`traceprobe top`: which modules, lines, operators or kernels the time of a step belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from traceprobe.cli.console import document_summary, json_out, misused, note
from traceprobe.cli.options import MOST_RANKS, OUTPUT, Force, Redact, Silent, Step

if TYPE_CHECKING:
    from traceprobe.records.report import Report

MOST_ROWS = 100_000
ROWS = 20


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
        int | None,
        typer.Option(
            "--rows",
            "-n",
            min=1,
            max=MOST_ROWS,
            metavar="N",
            rich_help_panel=OUTPUT,
            help="Rows to list. [default: 20, in files all]",
        ),
    ] = None,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Output to write, repeatable: .csv or .json; - prints JSON. [default: the "
            "terminal]",
        ),
    ] = None,
    step: Step = None,
    redact: Redact = False,
    force: Force = False,
    quiet: Silent = False,
) -> None:
    """List what the time of a step belongs to, busy and idle: modules, lines or operators."""
    from traceprobe.cli.runs import find, report_of
    from traceprobe.options import Options
    from traceprobe.render.pages.top import document

    source = find(run, quiet=quiet)
    targets = output or []
    _check(targets, source.files, force=force)
    report = report_of(source, Options(step=step))
    if redact:
        from traceprobe.anonymise.redact import redact as redacted

        report = redacted(report)
    if targets:
        _write(report, by, rank, rows, targets, force=force, quiet=quiet)
    else:
        document_summary(document(report, by.value, rank, rows or ROWS), verbose=True)


def _check(targets: Sequence[Path], inputs: Iterable[Path], *, force: bool) -> None:
    """Refuse, before any work is done, what could not or must not be written.

    Raises:
        UsageError: as `check_file`; an unknown suffix.
    """
    from traceprobe.cli.outputs import check_file
    from traceprobe.render.pages.top import FORMATS

    for path in targets:
        if str(path) == "-":
            continue
        if path.suffix not in FORMATS:
            misused(f"{path}: the suffix must be one of {', '.join(FORMATS)}, or - for JSON")
        check_file(path, inputs, force=force)


def _write(
    report: Report,
    by: By,
    rank: int | None,
    rows: int | None,
    targets: Sequence[Path],
    *,
    force: bool,
    quiet: bool,
) -> None:
    """Write the rows everywhere.

    Raises:
        UsageError: a file cannot be written; the rank has no owners.
    """
    from traceprobe.cli.outputs import size
    from traceprobe.render.pages.top import FORMATS, as_json, records
    from traceprobe.render.save import save_text

    found = records(report, by.value, rank, rows)
    for path in targets:
        if str(path) == "-":
            json_out(as_json(found))
            continue
        save_text(path, FORMATS[path.suffix](found), replace=force)
        note(f"wrote {path} ({size(path)})", quiet=quiet)
