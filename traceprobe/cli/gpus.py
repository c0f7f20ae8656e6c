"""`traceprobe gpus`: the same workload on several devices, and what explains their order."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from traceprobe.cli.console import document_summary, note
from traceprobe.cli.options import Force, GithubSummary, Outputs, Step


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
            help="US dollars per hour of one device, by label of a run or name of a device; "
            "repeatable.",
            show_default=False,
        ),
    ] = None,
    step: Step = None,
    github_summary: GithubSummary = False,
    force: Force = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No summary, no messages.")] = False,
) -> None:
    """Rank devices by a workload that ran on each, and say which of their peaks explains it.

    Examples: `traceprobe gpus a40=a40/ a100=a100/ h200=h200/ -o gpus.html`, `traceprobe gpus
    t4.json.gz l4.json.gz --price T4=0.35 --price L4=0.71`
    """
    from traceprobe.api import Options
    from traceprobe.cli import outputs
    from traceprobe.cli.runs import files, read_all
    from traceprobe.comparison.fleet import UnknownPrice, fleet

    prices = parse(price or [])
    targets = output or []
    if github_summary:
        outputs.job_summary()
    outputs.check(targets, files(runs), force=force)
    try:
        found = fleet(read_all(runs, Options(step=step), quiet=quiet), prices)
    except UnknownPrice as error:
        _usage(f"--price {error}")
    written = outputs.write(found, targets)
    if github_summary:
        outputs.append_summary(found)
    if not quiet and Path("-") not in targets:
        document_summary(found.to_document())
    for path in written:
        note(f"wrote {path} ({outputs.size(path)})", quiet=quiet)


def parse(prices: Sequence[str]) -> dict[str, float]:
    """`NAME=USD` as names and numbers.

    Raises:
        UsageError: one has another form, no positive number, or a name that was given before.
    """
    found: dict[str, float] = {}
    for text in prices:
        name, _, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = 0.0
        if not name.strip() or not 0 < value < inf:
            _usage(f"--price {text}: write NAME=USD_PER_HOUR, e.g. --price A100=1.29")
        if name in found:
            _usage(f"--price {name}: is given twice")
        found[name] = value
    return found


def _usage(message: str) -> NoReturn:
    from traceprobe.model import UsageError

    raise UsageError(message)
