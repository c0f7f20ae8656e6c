"""The application: its commands and global options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from traceprobe.cli import (
    analyze,
    annotate,
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
    top,
    watch,
    whatif,
)
from traceprobe.cli.help import Command, Group, everything

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

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
    "Exit codes: 0 done, 1 a requested gate or a check of doctor failed, 2 usage error or "
    "unreadable input, 70 an error of traceprobe itself, 130 interrupted.",
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


def _add(
    name: str,
    command: Callable[..., None],
    group: str,
    *examples: str,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """A command in its group of the help; the examples stand at the end of its own."""
    app.command(
        name,
        cls=Command,
        rich_help_panel=group,
        epilog="\n".join(examples),
        context_settings={**SETTINGS, **(settings or {})},
    )(command)


_add(
    "analyze",
    analyze.command,
    "Analyse",
    "traceprobe analyze trace.json.gz",
    "traceprobe analyze rank*.json.gz -o run.html",
    "traceprobe analyze trace.json.gz --unprofiled-step-ms 52.5",
    "traceprobe analyze run.sqlite -o - | jq .verdict",
)
_add(
    "top",
    top.command,
    "Analyse",
    "traceprobe top report.json --by module",
    "traceprobe top trace.json.gz --by kernel -n 50",
)
_add(
    "inspect",
    inspect.command,
    "Analyse",
    "traceprobe inspect trace.json.gz",
    "traceprobe inspect --anonymise trace.json.gz -o bug.json.gz",
)
_add(
    "annotate",
    annotate.command,
    "Analyse",
    "traceprobe annotate trace.json.gz -o annotated.json.gz",
    "traceprobe annotate rank*.json.gz -o run.json.gz",
    "traceprobe annotate run.sqlite -o run.json.gz",
)
_add(
    "doctor",
    doctor.command,
    "Analyse",
    "traceprobe doctor",
    "traceprobe doctor trace.json.gz",
    "traceprobe doctor rank*.json.gz -o - | jq .sections",
)
_add(
    "render",
    render.command,
    "Analyse",
    "traceprobe render report.json -v",
    "traceprobe render report.json -o report.md -o report.html",
)
_add(
    "profile",
    profile.command,
    "Record",
    "traceprobe profile -- python train.py --epochs 1",
    "traceprobe profile --workload unet",
    "traceprobe profile --workload gpt2 --precision bf16 --backend nsys",
    settings=profile.CONTEXT,
)
_add(
    "bench",
    bench.command,
    "Record",
    "traceprobe bench -- python train.py",
    "traceprobe bench --workload gpt2 --nproc-per-node 2",
    settings=profile.CONTEXT,
)
_add(
    "watch",
    watch.command,
    "Record",
    "traceprobe watch -- python train.py",
    "traceprobe watch -o run.html -- torchrun --nproc-per-node 8 train.py",
    settings=profile.CONTEXT,
)
_add(
    "memory",
    memory.command,
    "Record",
    "traceprobe memory -- python train.py",
    "traceprobe memory --workload bert --size full --batch-size 4",
    settings=profile.CONTEXT,
)
_add(
    "sweep",
    sweep.command,
    "Record",
    "traceprobe sweep tiny",
    "traceprobe sweep sc22 --rungs 0:5 -o sc22",
    settings=profile.CONTEXT,
)
_add(
    "compare",
    compare.command,
    "Compare",
    "traceprobe compare before.json.gz after.json.gz",
    "traceprobe compare baseline/report.json new/ --gate 5%",
    "traceprobe compare a.sqlite b.sqlite -o compare.html",
)
_add(
    "ladder",
    ladder.command,
    "Compare",
    "traceprobe ladder fp32/ tf32/ bf16/ -o ladder.html",
    "traceprobe ladder start=a.json.gz compiled=b.json.gz",
)
_add(
    "scaling",
    scaling.command,
    "Compare",
    "traceprobe scaling one/ two/ four/ -o scaling.html",
    "traceprobe scaling one/ two/ --to 16 --gpus-per-node 8 --inter-node-gbps 50",
)
_add(
    "gpus",
    gpus.command,
    "Compare",
    "traceprobe gpus a40=a40/ a100=a100/ h200=h200/ -o gpus.html",
    "traceprobe gpus t4.json.gz l4.json.gz --price T4=0.35 --price L4=0.71",
)
_add(
    "whatif",
    whatif.command,
    "More",
    "traceprobe whatif report.json",
    "traceprobe whatif report.json --remove data-wait --speedup backward=1.3",
    "traceprobe whatif ranks/ --bucket-mb 100",
)
_add(
    "roofline",
    roofline.command,
    "More",
    "traceprobe roofline traceprobe-gpt2/",
    "traceprobe roofline --measure -o peaks.json",
    "traceprobe roofline trace.json.gz --peaks peaks.json --flops-per-step 1.4e13",
)
_add(
    "slice",
    slice.command,
    "More",
    "traceprobe slice run.sqlite --steps 3:8 -o small.sqlite.gz",
)
