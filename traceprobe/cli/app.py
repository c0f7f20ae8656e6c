"""The application: its commands and global options."""

from __future__ import annotations

from typing import Annotated

import typer

from traceprobe.cli import (
    analyze,
    bench,
    compare,
    doctor,
    gpus,
    inspect,
    ladder,
    memory,
    profile,
    render,
    roofline,
    scaling,
    slice,
    sweep,
    whatif,
)

app = typer.Typer(
    name="traceprobe",
    help=(
        "What holds a training run back: I/O, compute, communication or overhead.\n\n"
        "Reads PyTorch profiler (Kineto) Chrome traces and Nsight Systems SQLite exports.\n\n"
        "  traceprobe analyze trace.json.gz\n\n"
        "  traceprobe analyze run.sqlite -o report.html -o report.json"
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 a requested gate or a check of doctor failed, 2 usage error or "
    "unreadable input, 70 an error of traceprobe itself, 130 interrupted.",
)


def _version(show: bool) -> None:
    if show:
        from traceprobe.version import __version__

        typer.echo(f"traceprobe {__version__}")
        raise typer.Exit


@app.callback()
def _globals(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


app.command("analyze")(analyze.command)
app.command("profile", context_settings=profile.CONTEXT)(profile.command)
app.command("bench", context_settings=profile.CONTEXT)(bench.command)
app.command("compare")(compare.command)
app.command("memory", context_settings=profile.CONTEXT)(memory.command)
app.command("ladder")(ladder.command)
app.command("sweep", context_settings=profile.CONTEXT)(sweep.command)
app.command("scaling")(scaling.command)
app.command("gpus")(gpus.command)
app.command("whatif")(whatif.command)
app.command("roofline")(roofline.command)
app.command("inspect")(inspect.command)
app.command("doctor")(doctor.command)
app.command("render")(render.command)
app.command("slice")(slice.command)
