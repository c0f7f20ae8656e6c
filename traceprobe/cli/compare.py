"""`traceprobe compare`: what changed between two runs, and a gate for CI."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from traceprobe.cli.console import misused, note
from traceprobe.cli.options import Force, GithubSummary, Outputs, Quiet, Redact, Step, Verbose

GATE = "Gate of a CI job"


def command(
    base: Annotated[
        str,
        typer.Argument(
            metavar="BASE",
            help="The run to compare with: [LABEL=]PATH of a report.json, of a trace, or of a "
            "folder with the traces of its ranks.",
        ),
    ],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The run that is compared with it.")],
    output: Outputs = None,
    gate: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            rich_help_panel=GATE,
            help="Fail (exit code 1) where a step of NEW is slower by more than this, e.g. 5%.",
        ),
    ] = None,
    allow_inconclusive: Annotated[
        bool,
        typer.Option(
            "--allow-inconclusive",
            rich_help_panel=GATE,
            help="Let the gate pass where the runs are too noisy to tell.",
        ),
    ] = False,
    step: Step = None,
    redact: Redact = False,
    github_summary: GithubSummary = False,
    force: Force = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Compare two runs of a program: where a step got slower or faster, and why."""
    from traceprobe.cli.outputs import Delivery
    from traceprobe.cli.runs import read_all
    from traceprobe.compare.compare import compare

    allowed = percentage(gate) if gate is not None else None
    if allow_inconclusive and allowed is None:
        misused("--allow-inconclusive needs a --gate")
    delivery = Delivery(
        targets=output or [],
        redact=redact,
        github_summary=github_summary,
        force=force,
        quiet=quiet,
        verbose=verbose,
    )
    before, after = read_all([base, new], step, delivery)
    comparison = compare(before, after, allowed)
    delivery.deliver(comparison)
    decided = comparison.gate
    if decided is None or decided.decision == "pass":
        return
    if decided.decision == "inconclusive" and allow_inconclusive:
        return
    note(f"traceprobe: gate: {decided.decision}: {decided.reason}", quiet=False)
    raise typer.Exit(1)


def percentage(text: str) -> float:
    """`5%`, `5` or `2.5 %` as a fraction.

    Raises:
        UsageError: it is no percentage above 0.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%?\s*", text)
    if match is None or not 0 < float(match[1]) < 1000:
        misused(f"--gate {text[:60]}: write a percentage above 0, e.g. --gate 5%")
    return float(match[1]) / 100
