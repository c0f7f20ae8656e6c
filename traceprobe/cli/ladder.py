"""`traceprobe ladder`: an ordered chain of runs, and what each change gained."""

from __future__ import annotations

from typing import Annotated

import typer

from traceprobe.cli.options import Force, GithubSummary, Outputs, Quiet, Redact, Step


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
    name: Annotated[str, typer.Option(help="Name of the ladder.", show_default=False)] = "",
    step: Step = None,
    redact: Redact = False,
    github_summary: GithubSummary = False,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Show what each change of a chain of runs gained, what limits the last, and what to try next.

    Examples: `traceprobe ladder fp32/ tf32/ bf16/ -o ladder.html`, `traceprobe ladder
    start=a.json.gz compiled=b.json.gz`
    """
    from traceprobe.cli.outputs import Delivery
    from traceprobe.cli.runs import read_all
    from traceprobe.compare.ladder import ladder

    delivery = Delivery(
        targets=output or [], redact=redact, github_summary=github_summary, force=force, quiet=quiet
    )
    record = ladder(
        read_all(runs, step, delivery),
        name=name,
    )
    delivery.deliver(record)
