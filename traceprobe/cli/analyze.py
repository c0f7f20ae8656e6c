"""`traceprobe analyze`: traces in, verdict and reports out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from traceprobe.cli.console import counting, misused, note, progress, summary
from traceprobe.cli.options import (
    BESIDES,
    MOST_PROCESSES,
    MOST_RANKS,
    OUTPUT,
    READING,
    Flops,
    Force,
    GithubSummary,
    Limit,
    PeaksFile,
    Quiet,
    Redact,
    StepOfTraces,
    Traces,
)

if TYPE_CHECKING:
    from traceprobe.options import Options
    from traceprobe.pipeline.trace_part import Lost, TracePart
    from traceprobe.records.report import Quality


SPEED = "Many or large files"


def _thresholds(show: bool) -> None:
    if not show:
        return
    from traceprobe.verdict.thresholds import table

    for name, value, unit, meaning, source in table():
        typer.echo(f"{name} = {round(value, 4):.12g} {unit}: {meaning} ({source})")
    raise typer.Exit


def command(
    inputs: Traces,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Report to write, repeatable: .html, .json or .md; - prints JSON. "
            "[default: traceprobe-INPUT.html]",
        ),
    ] = None,
    step: StepOfTraces = None,
    phase: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=REGEX",
            rich_help_panel=READING,
            help="Ranges that mean a phase, repeatable: data, h2d, forward, backward, optimizer, "
            "communication.",
        ),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            metavar="A:B",
            rich_help_panel=READING,
            help="Only iterations A to B-1, counted from 0.",
        ),
    ] = None,
    rank: Annotated[
        int | None,
        typer.Option(
            min=0, max=MOST_RANKS, metavar="N", rich_help_panel=READING, help="Only this rank."
        ),
    ] = None,
    unprofiled_step_ms: Annotated[
        float | None,
        typer.Option(
            metavar="MS",
            rich_help_panel=BESIDES,
            help="Step time without a profiler; takes the profiler's own cost out of the verdict.",
        ),
    ] = None,
    ablation: Annotated[
        Path | None,
        typer.Option(
            metavar="BENCH.JSON",
            rich_help_panel=BESIDES,
            help="What `traceprobe bench` measured of the same run, to check the verdict by.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    causal: Annotated[
        Path | None,
        typer.Option(
            metavar="CAUSAL.JSON",
            rich_help_panel=BESIDES,
            help="What `traceprobe bench --causal` measured of the same run, as a second opinion.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    nccl_records: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DUMP",
            rich_help_panel=BESIDES,
            help="Dumps of PyTorch's flight recorder or logs of NCCL Inspector of the same run, a "
            "folder of them or a quoted pattern, repeatable: they have the sizes and groups of "
            "collectives.",
        ),
    ] = None,
    flops_per_step: Flops = None,
    peaks: PeaksFile = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_PROCESSES,
            metavar="N",
            rich_help_panel=SPEED,
            help="Files, or parts of a large one, to read at once. [default: one for each core]",
        ),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            rich_help_panel=SPEED,
            help="Let a Dask cluster read: tcp://HOST:PORT of its scheduler, or local:N.",
        ),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            rich_help_panel=SPEED,
            help="Keep what was read in this folder, and do not read the same files again.",
            file_okay=False,
        ),
    ] = None,
    limit: Limit = None,
    redact: Redact = False,
    github_summary: GithubSummary = False,
    force: Force = False,
    open_report: Annotated[
        bool,
        typer.Option("--open", rich_help_panel=OUTPUT, help="Open the HTML report in a browser."),
    ] = False,
    quiet: Quiet = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            rich_help_panel=OUTPUT,
            help="Show all that there is to say, also how the trace was read.",
        ),
    ] = False,
    thresholds: Annotated[
        bool,
        typer.Option(
            "--thresholds",
            callback=_thresholds,
            is_eager=True,
            help="List every number that verdict and findings depend on, with its source, and "
            "exit.",
        ),
    ] = False,
) -> None:
    """Say what bounds a training run, and what to do about it first.

    `traceprobe FILE` does the same.
    """
    from traceprobe.system.allocator import keep_freed_memory_briefly, share_freed_memory
    from traceprobe.system.blas import have_no_threads_of_blas

    keep_freed_memory_briefly()
    share_freed_memory()
    have_no_threads_of_blas()
    from traceprobe.cli import outputs
    from traceprobe.cli.inputs import check_inputs, expand, expand_anywhere, readable, saved
    from traceprobe.ingest.limits import parse_limits
    from traceprobe.options import Options
    from traceprobe.records.ablation import Ablation
    from traceprobe.records.causal import Causal
    from traceprobe.records.peaks import MeasuredPeaks

    files = expand_anywhere(inputs, quiet=quiet) if dask else None
    paths = [Path(name) for name in files] if files else expand(inputs, quiet=quiet)
    given = Path(inputs[0])
    targets = output or [outputs.default_output(given if given.is_dir() else paths[0])]
    if files is None:
        check_inputs(paths)
    records = _records(nccl_records, quiet=quiet) if nccl_records else {}
    outputs.check_outputs(
        targets,
        [
            *paths,
            *(p for own in records.values() for p in own),
            *(p for p in (ablation, causal, peaks) if p),
        ],
        force=force or not output,  # a page that nobody asked for stops nothing
        github_summary=github_summary,
    )
    options = Options(
        step=step,
        phases=dict(_pair(p) for p in phase or []),
        steps=span(steps) if steps is not None else None,
        rank=rank,
        unprofiled_step_ms=unprofiled_step_ms,
        limits=parse_limits(limit or []),
        ablation=saved(ablation, Ablation) if ablation is not None else None,
        causal=saved(causal, Causal) if causal is not None else None,
        flops_per_step=flops_per_step,
        peaks=saved(peaks, MeasuredPeaks) if peaks is not None else None,
        nccl_records=records,
    )
    page = any(path.suffix == ".html" for path in targets)
    if open_report and not page:
        misused("--open needs an HTML output; add -o report.html")

    said = not quiet and Path("-") not in targets
    imports = partial(_import, page=page, terminal=said)
    folder = cache.resolve() if cache is not None else None
    if dask and files:
        from traceprobe.pipeline.dask import read_all

        with counting(len(files), quiet=quiet) as done:
            parts = read_all(files, options, folder, dask, done)
    else:
        with readable(paths) as exported:
            parts = _read(exported, options, folder, jobs, imports, quiet=quiet)
    _say(parts, quiet=quiet, verbose=verbose)

    from msgspec import UNSET

    from traceprobe.pipeline.merge import merge

    report = merge(parts, options)
    del parts  # those of a thousand ranks are many times the report
    if redact:
        from traceprobe.anonymise.redact import redact as redacted

        report = redacted(report)
    for lost in [] if report.quality.lost is UNSET else report.quality.lost:
        note(f"warning: {lost.reason}", quiet=quiet)
    for text in _of_nccl_records(report.quality):
        note(text, quiet=quiet)
    there = not (output or force) and targets[0].exists()
    renewed = there and outputs.is_page_of(targets[0], report)
    kept = there and not renewed
    if kept and quiet:  # nothing would be left of the analysis
        outputs.check_file(targets[0], paths, force=False)
    written = outputs.write(report, [] if kept else targets, force=force or renewed)
    if github_summary:
        outputs.append_summary(report)
    if said:
        places = None if redact else files or [str(path) for path in paths]
        summary(report, places, verbose=verbose)
    for path in written:
        note(f"wrote {path} ({outputs.size(path)})", quiet=quiet)
    if kept:
        note(
            f"kept {targets[0]}, which was there before; overwrite it with --force, or choose "
            "another with -o",
            quiet=quiet,
        )
    elif open_report:
        _open(written)


def _records(dumps: list[str], *, quiet: bool) -> dict[int, list[Path]]:
    """What the user gives of NCCL's own records, by rank."""
    from traceprobe.cli.nccl_records import records_by_rank

    return records_by_rank(dumps, quiet=quiet)


def _read(
    files: list[Path],
    options: Options,
    folder: Path | None,
    jobs: int | None,
    imports: Callable[[], None],
    *,
    quiet: bool,
) -> list[TracePart | Lost]:
    """The parts of the files: here, or in processes where there are several of both.

    Args:
        imports: loads what is needed next, while a single file is being read.
    """
    from traceprobe.ingest.kineto.shares import decoders_ahead
    from traceprobe.system.cores import cores
    from traceprobe.system.meanwhile import meanwhile

    jobs = jobs or cores()
    if min(jobs, len(files)) > 1:
        from traceprobe.pipeline.parallel import read_all

        with counting(len(files), quiet=quiet) as done:
            return read_all(files, options, folder, jobs, done)
    if len(files) > 1 or folder is not None:
        with progress(files, quiet=quiet) as bar:
            from traceprobe.pipeline.trace_part import read_in_turn  # takes its time, too

            return read_in_turn(files, options, folder, bar, jobs)
    with (
        progress(files, quiet=quiet) as bar,
        decoders_ahead(files[0], jobs),
        meanwhile(imports),
    ):
        from traceprobe.ingest.read_trace import read_trace

        trace = read_trace(files[0], bar(0), options.limits, jobs)
    from traceprobe.pipeline.trace_part import part_of

    return [part_of(trace, options)]


def _import(*, page: bool, terminal: bool) -> None:
    """What analyses a trace, and what shows the report."""
    import traceprobe.pipeline.merge
    import traceprobe.pipeline.trace_part

    if page or terminal:
        import traceprobe.render.pages.report
    if page:
        import traceprobe.render.html
    if terminal:
        import traceprobe.render.terminal  # noqa: F401 - to have imported it is all


def _say(parts: Sequence[TracePart | Lost], *, quiet: bool, verbose: bool) -> None:
    """How the files were read, and that the cache failed, which one file says for all."""
    from traceprobe.pipeline.trace_part import TracePart

    failures = []
    for part in parts:
        if isinstance(part, TracePart):
            read, kept = part.input, part.kept
            note(f"{read.name}: {read.producer}, {read.dialect}", quiet=quiet or not verbose)
            if kept is not None and kept.failed:
                failures.append(f"{read.name}: {kept.text}")
            elif kept is not None:
                note(f"{read.name}: {kept.text}", quiet=quiet or not verbose)
    if failures:
        more = f" (and {len(failures) - 1} more files)" if len(failures) > 1 else ""
        note(f"warning: {failures[0]}{more}", quiet=quiet)


def _of_nccl_records(quality: Quality) -> Iterator[str]:
    """What was joined with NCCL's own records, and what was not."""
    from msgspec import UNSET

    from traceprobe.records.nccl import joined_words

    if quality.nccl_records is not UNSET:
        yield f"joined {joined_words(quality.nccl_records)}"
    yield from (f"warning: {w.message}" for w in quality.warnings if w.code == "nccl-records")


def _pair(text: str) -> tuple[str, str]:
    name, separator, pattern = text.partition("=")
    if not separator or not pattern:
        misused(f"--phase {text}: write NAME=REGEX, e.g. --phase forward='model_fwd'")
    return name, pattern


def span(text: str) -> tuple[int, int]:
    """`A:B` as two numbers; either may be left out."""
    match = re.fullmatch(r"([0-9]{0,9}):([0-9]{0,9})", text)
    if match is None:
        misused(f"--steps {text[:60]}: write A:B with numbers below a billion, e.g. --steps 5:50")
    first = int(match[1] or 0)
    last = int(match[2]) if match[2] else 2**31
    if first >= last:
        misused(f"--steps {text}: is empty; A must be less than B")
    return first, last


def _open(written: list[Path]) -> None:
    import webbrowser

    page = next(path for path in written if path.suffix == ".html")
    webbrowser.open(page.resolve().as_uri())
