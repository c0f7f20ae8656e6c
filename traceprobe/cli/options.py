"""Options that several commands have, with one meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MOST_PROCESSES = 1_024
"""Ranks, readers or machines' GPUs that an option may ask for; one with more is a slip."""
MOST_STEPS = 1_000_000
MOST_RANKS = 1 << 24
"""As in traces (`traceprobe.model.sidecar.MAX_RANKS`)."""

TraceFile = Annotated[
    Path, typer.Argument(metavar="INPUT", help="A trace file.", exists=True, dir_okay=False)
]
Workload = Annotated[
    str | None,
    typer.Option(
        "--workload",
        "-w",
        help="Built-in training workload: bert, gpt2, pointwise, resnet50, tiny-mlp, unet, "
        "wide-mlp. Its own settings follow as options.",
    ),
]
Ranks = Annotated[
    int | None,
    typer.Option(min=1, max=MOST_PROCESSES, help="Ranks to start on this machine."),
]
Warmup = Annotated[
    int, typer.Option(min=1, max=MOST_STEPS, help="Steps before anything is measured.")
]
Redact = Annotated[
    bool,
    typer.Option("--redact", help="Leave out names that traces recorded: kernels, ranges, files."),
]
Limit = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=NUMBER",
        help="Allow a file more than any run has, repeatable: unpacked (bytes), names, devices, "
        "streams, processes, threads, iterations.",
    ),
]
GithubSummary = Annotated[
    bool,
    typer.Option("--github-summary", help="Append the Markdown to $GITHUB_STEP_SUMMARY."),
]
Outputs = Annotated[
    list[Path] | None,
    typer.Option(
        "--output",
        "-o",
        help="Output to write, repeatable: .html, .json or .md; - prints JSON. [default: the "
        "terminal]",
    ),
]
PeaksFile = Annotated[
    Path | None,
    typer.Option(
        "--peaks",
        metavar="PEAKS.JSON",
        help="What `traceprobe roofline --measure` measured of the device, for the floors.",
        exists=True,
        dir_okay=False,
    ),
]
Flops = Annotated[
    float | None,
    typer.Option(
        "--flops-per-step",
        metavar="N",
        help="Floating point operations of the model in a step of all ranks, where the recording "
        "does not say: 1.4e13.",
    ),
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite existing outputs.")]
ForceOutput = Annotated[bool, typer.Option("--force", "-f", help="Overwrite an existing output.")]
ForceFile = Annotated[bool, typer.Option("--force", "-f", help="Overwrite an existing file.")]
Silent = Annotated[bool, typer.Option("--quiet", "-q", help="No messages.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No summary, no messages.")]
Step = Annotated[
    str | None,
    typer.Option(
        help="Regular expression of the ranges that are steps, in traces. [default: found]",
    ),
]
