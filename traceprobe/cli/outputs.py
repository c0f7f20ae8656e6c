"""Writing results: by suffix, whole or not at all, and over existing files only if told to."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from traceprobe.cli.console import data, document_summary, note
from traceprobe.model import UsageError
from traceprobe.writing import beside

if TYPE_CHECKING:
    from traceprobe.report.document import Record


class Result(Protocol):
    """What can be written: a report, or a record that is told as a document."""

    def to_html(self) -> str: ...
    def to_json(self) -> str: ...
    def to_markdown(self) -> str: ...


RENDERERS: Mapping[str, Callable[[Result], str]] = {
    ".html": lambda result: result.to_html(),
    ".json": lambda result: result.to_json(),
    ".md": lambda result: result.to_markdown(),
}

_LONGEST = 200
"""Bytes of an input's name in that of an output; file systems take 255."""


def default_output(first: Path) -> Path:
    """`traceprobe-<stem>.html` in the current folder, of a very long stem its beginning."""
    stem = first.name
    for suffix in (".gz", ".json", ".sqlite", ".pt.trace", ".db"):
        stem = stem.removesuffix(suffix)
    return Path(f"traceprobe-{os.fsdecode(os.fsencode(stem)[:_LONGEST])}.html")


def check(outputs: list[Path], inputs: list[Path], *, force: bool) -> None:
    """Refuse, before any work is done, what could not or must not be written.

    Raises:
        UsageError: unknown suffix, missing folder, existing file without `force`, an input.
    """
    seen: set[Path] = set()
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


def check_file(path: Path, inputs: list[Path], *, force: bool) -> None:
    """Refuse one output file, whatever its suffix.

    Raises:
        UsageError: missing folder, existing file without `force`, a link or no regular file, an
            input.
    """
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}; make it first")
    if path.resolve() in {p.resolve() for p in inputs}:
        raise UsageError(f"{path}: is an input; choose another output")
    if path.is_symlink():
        raise UsageError(f"{path}: is a symbolic link; name the file that it leads to")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: is not a regular file")
    if path.exists() and not force:
        raise UsageError(f"{path}: exists; overwrite it with --force, or choose another with -o")


def write(result: Result, outputs: list[Path]) -> list[Path]:
    """Render and write every output; "-" is JSON on standard output.

    Each file is written beside its place and renamed, so that a failure leaves none or the old one.

    Returns:
        The files written.

    Raises:
        UsageError: a file cannot be written.
    """
    texts = [(path, RENDERERS.get(path.suffix, RENDERERS[".json"])(result)) for path in outputs]
    for path, text in texts:
        if str(path) == "-":
            data(text)
        else:
            replace(path, text)
    return [path for path, _ in texts if str(path) != "-"]


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
    path = job_summary()
    try:
        with path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(result.to_markdown())
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error


def deliver(
    record: Record,
    targets: list[Path],
    *,
    redact: bool = False,
    github_summary: bool = False,
    quiet: bool = False,
) -> None:
    """Write a record everywhere, and tell it on the terminal unless that gets its JSON.

    Args:
        redact: leave out the names that traces recorded.

    Raises:
        UsageError: a file cannot be written.
    """
    if redact:
        from traceprobe.report.redact import redact as redacted

        record = redacted(record)
    written = write(record, targets)
    if github_summary:
        append_summary(record)
    if not quiet and Path("-") not in targets:
        document_summary(record.to_document())
    for path in written:
        note(f"wrote {path} ({size(path)})", quiet=quiet)


def replace(path: Path, text: str) -> None:
    """Write a file beside its place and rename it.

    Raises:
        UsageError: it cannot be written.
    """
    with beside(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def size(path: Path) -> str:
    """`1.3 MB`, for messages."""
    length = float(path.stat().st_size)
    for unit in ("B", "kB", "MB"):
        if length < 1000 or unit == "MB":
            return f"{length:.0f} {unit}" if unit == "B" else f"{length:.1f} {unit}"
        length /= 1000
    raise AssertionError
