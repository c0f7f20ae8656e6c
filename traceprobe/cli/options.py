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

OUTPUT = "Output"
READING = "Which part of the trace"
BESIDES = "What the trace does not say"
RUNNING = "What to run"
MEASURING = "What to measure"
"""Titles of the groups of options in `--help`."""


def _one_file(path: Path) -> Path:
    """The file, or the only trace in a folder.

    Raises:
        UsageError: the folder has none or several; the message names them.
    """
    if not path.is_dir():
        return path
    from traceprobe.cli.console import misused
    from traceprobe.cli.inputs import named
    from traceprobe.ingest.trace_folder import find_traces
    from traceprobe.system import shell

    traces, _ = find_traces(path)
    if not traces:
        misused(f"{path}: is a directory without a trace; name a trace file")
    if len(traces) > 1:
        files = named([shell.file(str(trace)) for trace in traces])
        misused(f"{path}: is a directory with {len(traces)} traces; name one of them: {files}")
    return traces[0]


TraceFile = Annotated[
    Path,
    typer.Argument(
        metavar="INPUT",
        help="A trace file, or a folder with one.",
        exists=True,
        readable=False,  # whoever reads it says what to do then
        callback=_one_file,
    ),
]
Traces = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT...",
        help="Trace files, folders of them or quoted patterns; several files are the ranks of "
        "one run. Plain or .gz, known by content.",
    ),
]
StepOfTraces = Annotated[
    str | None,
    typer.Option(
        "--step",
        metavar="REGEX",
        rich_help_panel=READING,
        help="Ranges that are steps. [default: found]",
    ),
]
Workload = Annotated[
    str | None,
    typer.Option(
        "--workload",
        "-w",
        metavar="NAME",
        rich_help_panel=RUNNING,
        help="Built-in training workload: bert, gpt2, pointwise, resnet50, tiny-mlp, unet, "
        "wide-mlp. Its own settings follow as options.",
    ),
]
Ranks = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MOST_PROCESSES,
        metavar="N",
        rich_help_panel=RUNNING,
        help="Ranks to start on this machine. [default: 1]",
    ),
]
Warmup = Annotated[
    int,
    typer.Option(
        min=1,
        max=MOST_STEPS,
        metavar="N",
        rich_help_panel=MEASURING,
        help="Steps before anything is measured.",
    ),
]
Redact = Annotated[
    bool,
    typer.Option(
        "--redact",
        rich_help_panel=OUTPUT,
        help="Leave out names that traces recorded: kernels, ranges, files.",
    ),
]
Limit = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=NUMBER",
        rich_help_panel=READING,
        help="Allow a file more than any run has, repeatable: unpacked (bytes), names, devices, "
        "streams, processes, threads, iterations.",
    ),
]
GithubSummary = Annotated[
    bool,
    typer.Option(
        "--github-summary",
        rich_help_panel=OUTPUT,
        help="Append the Markdown to $GITHUB_STEP_SUMMARY.",
    ),
]
Outputs = Annotated[
    list[Path] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        rich_help_panel=OUTPUT,
        help="Output to write, repeatable: .html, .json or .md; - prints JSON. [default: the "
        "terminal]",
    ),
]
PeaksFile = Annotated[
    Path | None,
    typer.Option(
        "--peaks",
        metavar="PEAKS.JSON",
        rich_help_panel=BESIDES,
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
        rich_help_panel=BESIDES,
        help="Floating point operations of the model in a step of all ranks, where the recording "
        "does not say: 1.4e13.",
    ),
]
Force = Annotated[
    bool,
    typer.Option("--force", "-f", rich_help_panel=OUTPUT, help="Overwrite existing outputs."),
]
ForceOutput = Annotated[
    bool,
    typer.Option("--force", "-f", rich_help_panel=OUTPUT, help="Overwrite an existing output."),
]
ForceFile = Annotated[
    bool,
    typer.Option("--force", "-f", rich_help_panel=OUTPUT, help="Overwrite an existing file."),
]
Silent = Annotated[bool, typer.Option("--quiet", "-q", rich_help_panel=OUTPUT, help="No messages.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", rich_help_panel=OUTPUT, help="No summary, no messages.")
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        rich_help_panel=OUTPUT,
        help="Show everything, not only what fits 25 lines.",
    ),
]
Step = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX",
        rich_help_panel=READING,
        help="Ranges that are steps, in traces. [default: found]",
    ),
]
