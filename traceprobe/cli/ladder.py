"""`traceprobe ladder`: an ordered chain of runs, and what each change gained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traceprobe.cli.console import document_summary, note
from traceprobe.cli.options import Force, GithubSummary, Outputs, Step


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
    github_summary: GithubSummary = False,
    force: Force = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No summary, no messages.")] = False,
) -> None:
    """Show what each change of a chain of runs gained, what limits the last, and what to try next.

    Examples: `traceprobe ladder fp32/ tf32/ bf16/ -o ladder.html`, `traceprobe ladder
    start=a.json.gz compiled=b.json.gz`
    """
    from traceprobe.api import Options
    from traceprobe.cli import outputs
    from traceprobe.cli.runs import files, read_all
    from traceprobe.comparison.ladder import ladder

    targets = output or []
    if github_summary:
        outputs.job_summary()
    outputs.check(targets, files(runs), force=force)
    found = ladder(read_all(runs, Options(step=step), quiet=quiet), name=name)
    written = outputs.write(found, targets)
    if github_summary:
        outputs.append_summary(found)
    if not quiet and Path("-") not in targets:
        document_summary(found.to_document())
    for path in written:
        note(f"wrote {path} ({outputs.size(path)})", quiet=quiet)
