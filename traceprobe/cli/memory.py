"""`traceprobe memory`: how much memory a training step takes, before any GPU is asked for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traceprobe.cli.console import document_summary, json_out, misused, note, states, warn
from traceprobe.cli.options import OUTPUT, ForceOutput, Quiet, Verbose, Workload


def command(
    context: typer.Context,
    workload: Workload = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Where to write it as JSON; - prints it.",
        ),
    ] = None,
    force: ForceOutput = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Predict the memory of a training step: two steps on tensors that have sizes but no data.

    Needs no GPU.
    """
    from traceprobe.capture.memory.run_memory_prediction import run_memory_prediction
    from traceprobe.cli import outputs
    from traceprobe.cli.program import chosen, named
    from traceprobe.records.memory import read
    from traceprobe.render.pages.memory import document
    from traceprobe.render.save import save_text
    from traceprobe.version import __version__

    program, _ = chosen(workload, list(context.args), "memory")
    printed = output is not None and str(output) == "-"
    if output is not None and not printed:
        outputs.check_file(output, named(program), force=force)
    with states(quiet=quiet) as state:
        folder = Path() if output is None else output.parent
        prediction = read(run_memory_prediction(program, folder, state, warn))
    if prediction is None:
        misused("the program took another one's place in the simulation; its numbers make no sense")
    if printed:
        json_out(prediction.to_json())
        return
    if output is not None:
        save_text(output, prediction.to_json(), replace=force)
        note(f"wrote {output}", quiet=quiet)
    if not quiet:
        document_summary(document(prediction, __version__), verbose=verbose)
