"""Writing results: by suffix, whole or not at all, and over existing files only if told to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from traceprobe.cli.console import document_summary, json_out, note
from traceprobe.cli.inputs import companions, short
from traceprobe.errors import UsageError
from traceprobe.render.save import RENDERERS, Result, save
from traceprobe.system.atomic_write import append
from traceprobe.system.reading import open_regular

if TYPE_CHECKING:
    from traceprobe.records.base import Record
    from traceprobe.records.report import Report

_LARGEST_PAGE = 64 << 20
"""Bytes of a page that is looked into."""
_RECORD = re.compile(rb'<script type="application/json" id="traceprobe-report">(.*?)</script>')
"""The report in a page, which is on one line."""


def default_output(first: Path) -> Path:
    """`traceprobe-<stem>.html` in the current folder, of a very long stem its beginning.

    Args:
        first: of what is read: a file, or a folder of them.
    """
    stem = first.resolve().name if first.is_dir() else first.name
    for suffix in (".gz", ".json", ".sqlite", ".pt.trace", ".db"):
        stem = stem.removesuffix(suffix)
    return Path(f"traceprobe-{short(stem)}.html")


def check_outputs(
    outputs: Sequence[Path], inputs: Iterable[Path], *, force: bool, github_summary: bool = False
) -> None:
    """Refuse, before any work is done, what could not or must not be written.

    Args:
        inputs: every file that is read, folders and patterns as the files in them.
        github_summary: whether the summary of the job is written too.

    Raises:
        UsageError: unknown suffix, missing folder, existing file without `force`, an input; no
            summary where one is wanted.
    """
    inputs = list(inputs)
    seen: set[Path] = set()
    if github_summary:
        summary = job_summary()
        check_file(summary, inputs, force=True)
        seen.add(summary.resolve())
    for path in outputs:
        if str(path) == "-":
            continue
        if path.suffix not in RENDERERS:
            raise UsageError(
                f"{path}: the suffix must be one of {', '.join(RENDERERS)}, or - for JSON"
            )
        check_file(path, inputs, force=force)
        if path.resolve() in seen:
            raise UsageError(f"{path}: is given twice")
        seen.add(path.resolve())
    if sum(str(path) == "-" for path in outputs) > 1:
        raise UsageError("-o -: is given twice")


def check_file(path: Path, inputs: Iterable[Path], *, force: bool) -> None:
    """Refuse one output file, whatever its suffix.

    Args:
        inputs: every file that is read. What belongs to one of them is refused as well.

    Raises:
        UsageError: a folder that is missing or may not be written, existing file without `force`,
            a link or no regular file, an input.
    """
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        folder = "the current folder" if path.parent == Path() else path.parent
        raise UsageError(
            f"{path}: cannot be written: this user may not write into {folder}; choose another "
            "place with -o"
        )
    if _is_one_of(path, inputs):
        raise UsageError(f"{path}: is an input; choose another output")
    if path.is_symlink():
        raise UsageError(f"{path}: is a symbolic link; name the file that it leads to")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: is not a regular file")
    if path.exists() and not force:
        raise UsageError(f"{path}: exists; overwrite it with --force, or choose another with -o")


def is_page_of(path: Path, report: Report) -> bool:
    """Whether a file is the page of an earlier analysis of the same inputs, redacted or not alike.

    It is told by the report that a page holds, whatever the options of that analysis were.
    """
    try:
        with open_regular(path, follow=False) as file:
            found = _RECORD.search(file.read(_LARGEST_PAGE))
        inputs = msgspec.json.decode(found[1], type=_Page).inputs if found else []
    except (OSError, UsageError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return inputs == [_Input(source.name, source.sha256) for source in report.inputs]


class _Input(msgspec.Struct):
    name: str
    sha256: str


class _Page(msgspec.Struct):
    """What says of which files a report is."""

    inputs: list[_Input]


def _is_one_of(path: Path, inputs: Iterable[Path]) -> bool:
    """Whether an output is one of the inputs, under any name, or belongs to one."""
    read = [file for given in inputs for file in (given, *companions(given))]
    if os.path.realpath(path) in {os.path.realpath(file) for file in read}:
        return True
    here = _identity(path)
    return here is not None and here in {_identity(file) for file in read}


def _identity(path: Path) -> tuple[int, int] | None:
    """What hard links of a file have in common; None where there is none."""
    try:
        status = path.stat()
    except (OSError, ValueError):  # a loop of links, a zero byte
        return None
    return status.st_dev, status.st_ino


def write(result: Result, outputs: Sequence[Path], *, force: bool) -> list[Path]:
    """Render and write every output; "-" is JSON on standard output.

    Each file is written beside its place and renamed, so that a failure leaves none or the old one.

    Args:
        force: whether a file that is there by now is overwritten.

    Returns:
        The files written.

    Raises:
        UsageError: a file cannot be written.
    """
    files = [path for path in outputs if str(path) != "-"]
    printed = result.to_json() if len(files) < len(outputs) else None
    save(result, files, replace=force)
    if printed is not None:
        json_out(printed)
    return files


def job_summary() -> Path:
    """The summary of the GitHub Actions job that this runs in.

    Raises:
        UsageError: there is no such job.
    """
    name = os.environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        raise UsageError(
            "--github-summary: GITHUB_STEP_SUMMARY is not set; it is inside GitHub Actions. "
            "Elsewhere use -o report.md"
        )
    return Path(name)


def append_summary(result: Result) -> None:
    """Append the result in Markdown to the summary of the job.

    Raises:
        UsageError: there is no such job, or its file cannot be written.
    """
    append(job_summary(), result.to_markdown())


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """Where the record of a command goes, by the options that those which compare runs have.

    Args:
        targets: files, and "-" for JSON on standard output.
        redact: leave out the names that traces recorded.
    """

    targets: Sequence[Path]
    redact: bool
    github_summary: bool
    force: bool
    quiet: bool
    verbose: bool

    def check(self, inputs: Iterable[Path]) -> None:
        """See `check_outputs`."""
        check_outputs(self.targets, inputs, force=self.force, github_summary=self.github_summary)

    def deliver(self, record: Record) -> None:
        """Write a record everywhere, and show it on the terminal unless that gets its JSON.

        Raises:
            UsageError: a file cannot be written.
        """
        if self.redact:
            from traceprobe.anonymise.redact import redact

            record = redact(record)
        written = write(record, self.targets, force=self.force)
        if self.github_summary:
            append_summary(record)
        if not self.quiet and Path("-") not in self.targets:
            from traceprobe.render import document_of

            document_summary(document_of(record), verbose=self.verbose)
        for path in written:
            note(f"wrote {path} ({size(path)})", quiet=self.quiet)


def size(path: Path) -> str:
    """`1.3 MB`, for messages."""
    length = path.stat().st_size
    if length < 1000:
        return f"{length} B"
    return f"{length / 1e3:.1f} kB" if length < 1e6 else f"{length / 1e6:.1f} MB"
