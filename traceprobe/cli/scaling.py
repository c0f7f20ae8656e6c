"""`traceprobe scaling`: one program at several world sizes."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from traceprobe.cli.console import misused
from traceprobe.cli.options import (
    BESIDES,
    MOST_PROCESSES,
    MOST_RANKS,
    Force,
    GithubSummary,
    Outputs,
    Quiet,
    Redact,
    Step,
    Verbose,
)

if TYPE_CHECKING:
    from traceprobe.compare.extrapolate import Nodes


PREDICTION = "Predict more ranks"


class Scaled(str, Enum):
    """What stays the same as ranks are added: the work of each, or that of all."""

    weak = "weak"
    strong = "strong"


def command(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Runs of one program, each on another number of ranks: [LABEL=]PATH of a "
            "report.json, of a trace, or of a folder with the traces of its ranks.",
        ),
    ],
    output: Outputs = None,
    mode: Annotated[
        Scaled | None,
        typer.Option(
            metavar="weak|strong",
            rich_help_panel=BESIDES,
            help="Whether each rank kept its work (weak) or all ranks shared it (strong), where "
            "the runs do not tell. [default: found]",
        ),
    ] = None,
    to: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            max=MOST_RANKS,
            metavar="N",
            rich_help_panel=PREDICTION,
            help="World size to predict, repeatable. [default: 2, 4 and 8 times the largest]",
        ),
    ] = None,
    gpus_per_node: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_PROCESSES,
            metavar="N",
            rich_help_panel=PREDICTION,
            help="GPUs of a machine; what needs several is predicted only where their connection "
            "is known.",
        ),
    ] = None,
    inter_node_gbps: Annotated[
        float | None,
        typer.Option(
            metavar="GB/S",
            rich_help_panel=PREDICTION,
            help="What a machine sends to others, GB/s (not Gbit/s) of all its network cards "
            "together.",
        ),
    ] = None,
    step: Step = None,
    redact: Redact = False,
    github_summary: GithubSummary = False,
    force: Force = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Show how a program scales, what more ranks cost it, and what still more would."""
    from traceprobe.cli.outputs import Delivery
    from traceprobe.cli.runs import read_all
    from traceprobe.compare.scaling import scale

    nodes = _nodes(gpus_per_node, inter_node_gbps)
    delivery = Delivery(
        targets=output or [],
        redact=redact,
        github_summary=github_summary,
        force=force,
        quiet=quiet,
        verbose=verbose,
    )
    observed = read_all(runs, step, delivery)
    record = scale(observed, mode.value if mode is not None else None, to or [], nodes)
    delivery.deliver(record)


def _nodes(gpus: int | None, gbps: float | None) -> Nodes:
    from traceprobe.compare.extrapolate import Nodes

    if gbps is None:
        return Nodes(gpus)
    if not 1e-3 <= gbps <= 1e6:
        misused(f"--inter-node-gbps {gbps:g}: must be a number of GB/s from 0.001 to 1,000,000")
    if gpus is None:
        misused("--inter-node-gbps needs --gpus-per-node, which says where a node ends")
    return Nodes(gpus, gbps)
