"""`traceprobe render`: a report.json to the other outputs, without the trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traceprobe.cli.console import note, summary
from traceprobe.cli.options import GithubSummary, Redact


def command(
    report_json: Annotated[
        Path,
        typer.Argument(metavar="REPORT.JSON", help="A report.json.", exists=True, dir_okay=False),
    ],
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            help="Output to write, repeatable: .html, .json or .md; - prints JSON. [default: "
            "the terminal]",
            show_default=False,
        ),
    ] = None,
    redact: Redact = False,
    github_summary: GithubSummary = False,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Overwrite existing outputs.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No messages.")] = False,
) -> None:
    """Render a report.json again: `traceprobe render report.json -o report.html`."""
    from traceprobe.cli import outputs
    from traceprobe.cli.inputs import report as read

    targets = output or []
    outputs.check(targets, [report_json], force=force)
    report = read(report_json)
    if redact:
        from traceprobe.report.redact import redact as redacted

        report = redacted(report)
    if github_summary:
        outputs.append_summary(report)
    for path in outputs.write(report, targets):
        note(f"wrote {path} ({outputs.size(path)})", quiet=quiet)
    if not targets:
        summary(report)
