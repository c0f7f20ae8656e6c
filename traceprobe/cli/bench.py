"""`traceprobe bench`: how fast a training loop is with parts of it taken out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from traceprobe.cli.console import (
    all_of_it,
    document_summary,
    echo,
    json_out,
    note,
    states,
    warn,
)
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

if TYPE_CHECKING:
    from traceprobe.capture.process.environment import Plan
    from traceprobe.render.document import Document


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
            help="Where to write the result as JSON; - prints it. "
            "[default: traceprobe-NAME-bench.json, or -causal.json]",
        ),
    ] = None,
    trials: Annotated[
        int,
        typer.Option(
            min=1,
            max=1_000,
            metavar="N",
            rich_help_panel=MEASURING,
            help="Trials of each variant, or of each delay.",
        ),
    ] = 5,
    causal: Annotated[
        bool,
        typer.Option(
            "--causal",
            rich_help_panel=MEASURING,
            help="Put delays into the running program instead, and see which cost time.",
        ),
    ] = False,
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
    from traceprobe.capture.oracle.run_trials import run_trials
    from traceprobe.capture.process.launch import unseen
    from traceprobe.cli import outputs
    from traceprobe.cli.program import chosen, named
    from traceprobe.errors import UsageError
    from traceprobe.render.save import save_text

    program, name = chosen(workload, list(context.args), "bench")
    target = output or Path(f"traceprobe-{name}-{'causal' if causal else 'bench'}.json")
    if str(target) != "-":
        if target.suffix in (".html", ".md"):
            raise UsageError(f"{target}: bench writes JSON; name a .json file, or - to print it")
        outputs.check_file(target, named(program), force=force)
    folder = target.parent if str(target) != "-" else Path()
    measured = _probes(warmup, trials, seconds) if causal else _trials(warmup, trials, seconds)
    plan = replace(measured.plan, workload={"name": name})
    with states(quiet=quiet) as state:
        shown = unseen if quiet else echo
        ranks = run_trials(
            program, plan, measured.result, nproc_per_node, folder, state, warn, shown
        )
    document = measured.document(ranks)
    if str(target) == "-":
        json_out(document.json)
        return
    save_text(target, document.json, replace=force)
    if not quiet:
        document_summary(document, verbose=verbose)
    note(f"wrote {target}", quiet=quiet)
    all_of_it(target, quiet=quiet or verbose)


class _Measured(NamedTuple):
    """What is asked of a program, what its ranks leave, and the document of that."""

    plan: Plan
    result: type[Any]
    document: Callable[[Mapping[int, Any]], Document]


def _trials(warmup: int, trials: int, seconds: float) -> _Measured:
    from traceprobe.capture.oracle.ablation_plan import AblationPlan, RankTrials
    from traceprobe.capture.oracle.ablation_record import summarize_ablation
    from traceprobe.render.pages.ablation import document

    plan = AblationPlan(warmup=warmup, count=trials, seconds=seconds)
    return _Measured(plan, RankTrials, lambda ranks: document(summarize_ablation(ranks)))


def _probes(warmup: int, trials: int, seconds: float) -> _Measured:
    from traceprobe.capture.oracle.probe_plan import ProbePlan, RankProbes
    from traceprobe.capture.oracle.probe_record import check_rounds, summarize_probes
    from traceprobe.render.pages.causal import document

    check_rounds(trials)
    plan = ProbePlan(warmup=warmup, rounds=trials, seconds=seconds)
    return _Measured(plan, RankProbes, lambda ranks: document(summarize_probes(ranks)))
