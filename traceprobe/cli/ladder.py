"""`traceprobe ladder`: an ordered chain of runs, and what each change gained."""

from __future__ import annotations

from typing import Annotated

import typer

from traceprobe.cli.options import (
    OUTPUT,
    Force,
    GithubSummary,
    Outputs,
    Quiet,
    Redact,
    Step,
    Verbose,
)


def command(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Runs in order, each a change of the one before: [LABEL=]PATH of a report.json, "
            "of a trace, or of a folder with the traces of its ranks.",
        ),
    ],
    output: Outputs = None,
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=OUTPUT,
            help="Name of the ladder.",
            show_default=False,
        ),
    ] = "",
    step: Step = None,
    redact: Redact = False,
    github_summary: GithubSummary = False,
    force: Force = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Show what each change of a chain of runs gained, and what limits the last one."""
    from traceprobe.cli.outputs import Delivery
    from traceprobe.cli.runs import read_all
    from traceprobe.compare.ladder import ladder

    delivery = Delivery(
        targets=output or [],
        redact=redact,
        github_summary=github_summary,
        force=force,
        quiet=quiet,
        verbose=verbose,
    )
    record = ladder(
        read_all(runs, step, delivery),
        name=name,
    )
    delivery.deliver(record)
