"""`traceprobe doctor`: what is wrong with this machine, or with a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traceprobe.cli.console import document_summary, json_out, note, progress
from traceprobe.cli.options import OUTPUT, ForceOutput, Quiet, Verbose


def command(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[INPUT]...",
            help="Trace files, folders of them or quoted patterns: the ranks of one run. Without "
            "any, this machine is checked.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Where to write the checks as JSON; - prints it.",
        ),
    ] = None,
    force: ForceOutput = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Check this machine, or what a trace holds, and say which number each trouble touches.

    Exits with 1 where a check fails.
    """
    from traceprobe.cli import outputs
    from traceprobe.cli.inputs import check_inputs, expand, readable
    from traceprobe.doctor import examine, examine_machine
    from traceprobe.render.pages.diagnosis import document
    from traceprobe.render.save import save_text

    paths = expand(inputs, quiet=quiet) if inputs else []
    check_inputs(paths)
    if output is not None and str(output) != "-":
        outputs.check_file(output, paths, force=force)
    if paths:
        with readable(paths) as exported, progress(exported, quiet=quiet) as bar:
            diagnosis = examine(exported, bar)
    else:
        from traceprobe.doctor.gather import gather

        note("looking at this machine; importing PyTorch takes some seconds", quiet=quiet)
        diagnosis = examine_machine(gather())
    if output is not None and str(output) == "-":
        json_out(diagnosis.to_json())
    elif output is not None:
        save_text(output, diagnosis.to_json(), replace=force)
    if not quiet and str(output) != "-":
        document_summary(document(diagnosis), verbose=verbose)
    if output is not None and str(output) != "-":
        note(f"wrote {output}", quiet=quiet)
    if diagnosis.failed:
        raise typer.Exit(1)
