"""`traceprobe roofline`: a run beside what the hardware could do, and what that is, measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from traceprobe.cli.console import misused, note
from traceprobe.cli.options import (
    MEASURING,
    Flops,
    Force,
    GithubSummary,
    Outputs,
    PeaksFile,
    Quiet,
    Redact,
    Step,
    Verbose,
)

if TYPE_CHECKING:
    from traceprobe.cli.runs import Source
    from traceprobe.records.peaks import MeasuredPeaks
    from traceprobe.records.roofline import RooflineRecord


def command(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="A report.json, a trace, or a folder with the traces of the ranks.",
        ),
    ] = None,
    output: Outputs = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            rich_help_panel=MEASURING,
            help="Measure the peaks of this machine's device instead.",
        ),
    ] = False,
    peaks: PeaksFile = None,
    flops_per_step: Flops = None,
    step: Step = None,
    redact: Redact = False,
    github_summary: GithubSummary = False,
    force: Force = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Show how far a run is from the peaks of its device, or measure them."""
    from traceprobe.cli.outputs import Delivery
    from traceprobe.cli.runs import find

    if measure == (run is not None):
        misused("name a run, or use --measure, not both" if run else "name a run, or use --measure")
    delivery = Delivery(
        targets=output or [],
        redact=redact,
        github_summary=github_summary,
        force=force,
        quiet=quiet,
        verbose=verbose,
    )
    source = find(run, quiet=quiet) if run is not None else None
    read = [*(source.files if source else ()), *([peaks] if peaks else ())]
    delivery.check(read)
    if source is None:
        if peaks is not None or flops_per_step is not None or step is not None:
            misused("--measure does not go with --peaks, --flops-per-step or --step")
        record: MeasuredPeaks | RooflineRecord = _measure(quiet=quiet)
    else:
        record = _of_run(source, peaks, flops_per_step, step)
    delivery.deliver(record)


def _measure(*, quiet: bool) -> MeasuredPeaks:
    from traceprobe.capture.machine.device_peaks import measure_device_peaks
    from traceprobe.capture.process.program import torch_interpreter
    from traceprobe.records.peaks import MeasuredPeaks
    from traceprobe.version import __version__

    torch_interpreter()  # raises where there is no PyTorch
    note("measuring; importing PyTorch takes some seconds", quiet=quiet)
    measured = measure_device_peaks()
    if measured.kind == "cpu":
        note("no GPU is visible to PyTorch: these are the peaks of the CPU", quiet=quiet)
    return MeasuredPeaks(
        schema_version=MeasuredPeaks.SCHEMA_VERSION,
        traceprobe_version=__version__,
        device=measured.device,
        device_kind="gpu" if measured.kind == "gpu" else "cpu",
        torch=measured.torch,
        matrix_side=measured.side,
        repetitions=measured.repetitions,
        tflops=measured.tflops,
        copy_gbps=measured.copy_gbps,
        h2d_gbps=measured.h2d_gbps,
    )


def _of_run(
    source: Source, peaks: Path | None, flops: float | None, step: str | None
) -> RooflineRecord:
    """The roofline of a run.

    Raises:
        UsageError: there is none, or an option is of no use.
    """
    import msgspec

    from traceprobe.cli.inputs import saved
    from traceprobe.cli.runs import report_of
    from traceprobe.options import Options
    from traceprobe.records.peaks import MeasuredPeaks
    from traceprobe.records.roofline import RooflineRecord
    from traceprobe.version import __version__

    if source.saved is not None and (peaks or flops or step):
        misused(
            f"{source.path}: is analysed already; --peaks, --flops-per-step and --step need its "
            "traces"
        )
    options = Options(
        step=step,
        flops_per_step=flops,
        peaks=None if peaks is None else saved(peaks, MeasuredPeaks),
    )
    report = report_of(source, options)
    if isinstance(report.roofline, msgspec.UnsetType):
        misused(
            f"{source.path}: has no roofline: it has no steps, or ran on a CPU and does not say "
            "what it computes; give --flops-per-step with its traces, or let the program say it "
            "(`traceprobe.capture.work`) and record it with `traceprobe profile`"
        )
    return RooflineRecord(
        schema_version=RooflineRecord.SCHEMA_VERSION,
        traceprobe_version=__version__,
        headline=report.verdict.headline,
        inputs=[each.name for each in report.inputs],
        roofline=report.roofline,
    )
