"""`traceprobe bench`: how fast a training loop is with parts of it taken out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traceprobe.cli.console import document_summary, json_out, note, states, warn
from traceprobe.cli.options import (
    MEASURING,
    OUTPUT,
    ForceOutput,
    Quiet,
    Ranks,
    Verbose,
    Warmup,
    Workload,
)


def command(
    context: typer.Context,
    workload: Workload = None,
    nproc_per_node: Ranks = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Where to write the ablation as JSON; - prints it. "
            "[default: traceprobe-NAME-bench.json]",
        ),
    ] = None,
    trials: Annotated[
        int,
        typer.Option(
            min=1,
            max=1_000,
            metavar="N",
            rich_help_panel=MEASURING,
            help="Trials of each variant.",
        ),
    ] = 5,
    seconds: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=3_600,
            metavar="S",
            rich_help_panel=MEASURING,
            help="Length of a trial, seconds.",
        ),
    ] = 1.0,
    warmup: Warmup = 5,
    force: ForceOutput = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Measure what limits a training loop: without its loader, its copies, its communication."""
    from traceprobe.capture.ablation_plan import AblationPlan
    from traceprobe.capture.ablation_record import summarize_ablation
    from traceprobe.capture.run_ablation import run_ablation
    from traceprobe.cli import outputs
    from traceprobe.cli.program import chosen, named
    from traceprobe.render.pages.ablation import document
    from traceprobe.render.save import save_text

    program, name = chosen(workload, list(context.args), "bench")
    target = output or Path(f"traceprobe-{name}-bench.json")
    if str(target) != "-":
        outputs.check_file(target, named(program), force=force)
    plan = AblationPlan(
        warmup=warmup,
        count=trials,
        seconds=seconds,
        workload={"name": name},
    )
    folder = target.parent if str(target) != "-" else Path()
    with states(quiet=quiet) as state:
        ablation = summarize_ablation(
            run_ablation(program, plan, nproc_per_node, folder, state, warn)
        )
    if str(target) == "-":
        json_out(ablation.to_json())
        return
    save_text(target, ablation.to_json(), replace=force)
    if not quiet:
        document_summary(document(ablation), verbose=verbose)
    note(f"wrote {target}", quiet=quiet)
