"""`traceprobe render`: a saved result to the other outputs, without the traces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from traceprobe.cli.console import document_summary, misused, note, summary
from traceprobe.cli.options import Force, GithubSummary, Outputs, Redact, Silent, Verbose

if TYPE_CHECKING:
    from traceprobe.records.ablation import Ablation
    from traceprobe.records.base import Record
    from traceprobe.records.report import Report


_RESULT = "a result of traceprobe as `traceprobe analyze TRACE -o report.json` writes one"


def _one_result(path: Path) -> Path:
    """The file; of a folder, such as one of `traceprobe profile`, the file in it has to be named.

    Raises:
        UsageError: it is a folder.
    """
    if path.is_dir():
        misused(f"{path}: is a directory; name the result in it, as {path / 'report.json'}")
    return path


def command(
    report_json: Annotated[
        Path,
        typer.Argument(
            metavar="REPORT.JSON",
            help="A report.json, or the JSON of a comparison or a ladder.",
            exists=True,
            readable=False,
            callback=_one_result,
        ),
    ],
    output: Outputs = None,
    redact: Redact = False,
    github_summary: GithubSummary = False,
    force: Force = False,
    quiet: Silent = False,
    verbose: Verbose = False,
) -> None:
    """Write other outputs of a saved result, without its traces; the terminal without -o."""
    from traceprobe.cli import outputs
    from traceprobe.records.ablation import Ablation
    from traceprobe.records.report import Report

    targets = output or []
    outputs.check_outputs(targets, [report_json], force=force, github_summary=github_summary)
    result = _read(report_json)
    if isinstance(result, Ablation):
        from traceprobe.render.pages.ablation import document

        if targets or github_summary or redact:
            misused(
                f"{report_json.name}: is an ablation, which is shown in the terminal only, without "
                "options; for a page hold it against a trace of the same run: `traceprobe analyze "
                f"TRACE --ablation {report_json.name}`"
            )
        document_summary(document(result), verbose=verbose)
        return
    if redact:
        from traceprobe.anonymise.redact import redact as redacted

        result = redacted(result)
    if github_summary:
        outputs.append_summary(result)
    for path in outputs.write(result, targets, force=force):
        note(f"wrote {path} ({outputs.size(path)})", quiet=quiet)
    if targets:
        return
    if isinstance(result, Report):
        summary(result, _traces(result, report_json.parent), verbose=verbose)
    else:
        from traceprobe.render import document_of

        document_summary(document_of(result), verbose=verbose)


def _traces(report: Report, folder: Path) -> list[str] | None:
    """Where the inputs lie: beside the report or in the working folder; None where they do not."""
    for place in (folder, Path()):
        paths = [place / source.name for source in report.inputs]
        if all(path.is_file() for path in paths):
            return [str(path) for path in paths]
    return None


def _read(path: Path) -> Report | Ablation | Record:
    """A report or an ablation, or a record of the kind that the file says."""
    import msgspec

    from traceprobe.cli.inputs import not_saved, saved
    from traceprobe.errors import DamagedRecord, OtherVersion, UsageError
    from traceprobe.records import kinds
    from traceprobe.records.ablation import Ablation
    from traceprobe.records.report import Report
    from traceprobe.system.reading import read_saved

    text = read_saved(path)
    try:
        if kinds.is_ablation(text):
            return saved(path, Ablation)
        if kinds.kind_of(text) is None:
            return saved(path, Report)
        return kinds.read(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(not_saved(path, text, _RESULT, error)) from error
    except (DamagedRecord, OtherVersion) as error:
        raise UsageError(f"{path.name}: {error}; make it again") from error
