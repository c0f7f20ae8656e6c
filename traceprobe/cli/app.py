"""The application: its help and global options."""

from __future__ import annotations

from typing import Annotated

import typer

from traceprobe.cli.commands import SETTINGS
from traceprobe.cli.help import Group, everything

app = typer.Typer(
    name="traceprobe",
    cls=Group,
    help="Say what bounds a training run: I/O, compute, communication or overhead.\n\n"
    "Reads traces of PyTorch's profiler (Kineto) and Nsight Systems SQLite exports; "
    "`traceprobe FILE` analyses one.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=SETTINGS,
    epilog="traceprobe trace.json.gz\n"
    "traceprobe run.sqlite -o report.html -o report.json\n"
    "traceprobe profile -- python train.py\n"
    "traceprobe compare before/ after/ --gate 5%\n\n"
    "Exit codes: 0 done, 1 a requested gate, a check of doctor or a rung of sweep failed, 2 usage "
    "error or unreadable input, 70 an error of traceprobe itself, 130 interrupted.",
)


def _version(show: bool) -> None:
    if show:
        from traceprobe.version import __version__

        typer.echo(f"traceprobe {__version__}")
        raise typer.Exit


def _help_all(ctx: typer.Context, show: bool) -> None:
    if show:
        typer.echo(everything(ctx))
        raise typer.Exit


@app.callback()
def _globals(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    help_all: Annotated[
        bool,
        typer.Option(
            "--help-all", callback=_help_all, is_eager=True, help="Show the help of all commands."
        ),
    ] = False,
) -> None:
    pass
