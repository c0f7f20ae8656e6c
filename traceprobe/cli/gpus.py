"""`traceprobe gpus`: the same workload on several devices, and what explains their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from traceprobe.cli.console import misused
from traceprobe.cli.options import (
    BESIDES,
    Force,
    GithubSummary,
    Outputs,
    Quiet,
    Redact,
    Step,
    Verbose,
)

MOST_PRICE = 1e9
"""USD per hour; a number beyond is a slip."""


def command(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Runs of one workload on different devices: [LABEL=]PATH of a report.json, of a "
            "trace, or of a folder with the traces of its ranks.",
        ),
    ],
    output: Outputs = None,
    price: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=USD",
            rich_help_panel=BESIDES,
            help="US dollars per hour of one device, by label of a run or name of a device; "
            "repeatable.",
        ),
    ] = None,
    step: Step = None,
    redact: Redact = False,
    github_summary: GithubSummary = False,
    force: Force = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Rank devices by a workload that ran on each, and say which of their peaks explains it."""
    from traceprobe.cli.outputs import Delivery
    from traceprobe.cli.runs import read_all
    from traceprobe.compare.gpus import UnknownPrice, compare_gpus

    prices = parse(price or [])
    delivery = Delivery(
        targets=output or [],
        redact=redact,
        github_summary=github_summary,
        force=force,
        quiet=quiet,
        verbose=verbose,
    )
    try:
        comparison = compare_gpus(read_all(runs, step, delivery), prices)
    except UnknownPrice as error:
        misused(f"--price {error}")
    delivery.deliver(comparison)


def parse(prices: Sequence[str]) -> dict[str, float]:
    """`NAME=USD` as names and numbers.

    Raises:
        UsageError: one has another form, no positive number, or a name that was given before.
    """
    by_name: dict[str, float] = {}
    for text in prices:
        name, _, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = 0.0
        if not name.strip() or not 0 < value <= MOST_PRICE:
            misused(f"--price {text}: write NAME=USD_PER_HOUR, e.g. --price A100=1.29")
        if name in by_name:
            misused(f"--price {name}: is given twice")
        by_name[name] = value
    return by_name
