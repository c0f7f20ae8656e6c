"""Messages and progress on standard error; standard output is for data."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from traceprobe.report.ablation import Ablation
    from traceprobe.report.doctor import Diagnosis
    from traceprobe.report.document import Document
    from traceprobe.report.result import Report


MAX_MESSAGE = 4_000
"""Characters of a line on standard error."""
MAX_NAME = 60
"""Characters of a file's name beside its bar."""


def fail(message: str, *more: str, code: int = 2) -> NoReturn:
    """Print one error, with `more` lines below it, and exit."""
    note(f"traceprobe: {message}", *more, quiet=False)
    sys.exit(code)


def misused(message: str) -> NoReturn:
    """Refuse an option. The error's class is imported only here: its module takes its time.

    Raises:
        UsageError: always.
    """
    from traceprobe.model import UsageError

    raise UsageError(message)


def note(*lines: str, quiet: bool) -> None:
    """Lines for the person at the terminal; names in them can neither steer it nor add a line.

    Lines keep the spaces that they begin with.
    """
    from traceprobe.report.text import shorten

    if quiet or sys.stderr is None:
        return
    with suppress(BrokenPipeError):
        for line in lines:
            text = line.lstrip(" ")
            print(" " * (len(line) - len(text)) + shorten(text, MAX_MESSAGE), file=sys.stderr)


def warn(message: str) -> None:
    """Lines that matter also to those who want no messages."""
    note(*message.split("\n"), quiet=False)


def data(text: str, encoding: str = "utf-8") -> None:
    """Text on standard output; the program ends where the reader has gone away (`| head`).

    Raises:
        UsageError: there is no standard output.
    """
    if sys.stdout is None:
        from traceprobe.model import UsageError

        raise UsageError("standard output is closed; write to a file with -o")
    try:
        sys.stdout.buffer.write(text.encode(encoding, "replace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(2) from None


def summary(report: Report, inputs: Sequence[str] = ()) -> None:
    """A report on standard output, as wide, colourful and encoded as that takes it.

    Args:
        inputs: paths of the files that it is about, where they are known.
    """
    from traceprobe.report.terminal import render

    if sys.stdout is None:  # a service without a terminal, which wants its files
        return
    encoding = sys.stdout.encoding or "utf-8"
    data(render(report, terminal_width(), use_color(), encoding, inputs), encoding)


def ablation_summary(ablation: Ablation) -> None:
    """The same for an ablation."""
    from traceprobe.report.ablation_text import render

    if sys.stdout is None:
        return
    encoding = sys.stdout.encoding or "utf-8"
    data(render(ablation, terminal_width(), use_color(), encoding), encoding)


def diagnosis_summary(diagnosis: Diagnosis) -> None:
    """The same for the checks of `traceprobe doctor`."""
    from traceprobe.report.doctor_text import render

    if sys.stdout is None:
        return
    encoding = sys.stdout.encoding or "utf-8"
    data(render(diagnosis, terminal_width(), use_color(), encoding), encoding)


def document_summary(document: Document) -> None:
    """The same for comparisons and all else that is told as a document."""
    from traceprobe.report.document_terminal import render

    if sys.stdout is None:
        return
    encoding = sys.stdout.encoding or "utf-8"
    data(render(document, terminal_width(), use_color(), encoding), encoding)


@contextmanager
def progress(
    paths: list[Path], *, quiet: bool
) -> Iterator[Callable[[int], Callable[[int, int], None]]]:
    """A progress bar by bytes over several files, on a terminal only.

    Yields:
        Function of the file's position that returns the callback for `traceprobe.load`.
    """
    if quiet or not _on_terminal():
        yield lambda _: lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from traceprobe.report.text import shorten

    with Progress(
        TextColumn("reading {task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        console=Console(stderr=True, markup=False, emoji=False, highlight=False),
        transient=True,
    ) as bar:
        tasks = [
            bar.add_task(shorten(path.name, MAX_NAME), total=None, start=False) for path in paths
        ]

        def of(position: int) -> Callable[[int, int], None]:
            bar.start_task(tasks[position])
            return lambda done, total: bar.update(tasks[position], completed=done, total=total)

        yield of


@contextmanager
def counting(files: int, *, quiet: bool) -> Iterator[Callable[[int, float], None]]:
    """A progress bar by files that are read at once, on a terminal only.

    Yields:
        Function of a file's position and the fraction of it that has been read.
    """
    if quiet or not _on_terminal():
        yield lambda position, fraction: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    with Progress(
        TextColumn("reading ranks", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        console=Console(stderr=True, markup=False, emoji=False, highlight=False),
        transient=True,
    ) as bar:
        task = bar.add_task("", total=files)
        read: dict[int, float] = {}

        def at(position: int, fraction: float) -> None:
            read[position] = fraction
            bar.update(task, completed=sum(read.values()))

        yield at


@contextmanager
def states(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """What is going on: a spinner on a terminal, else a line per state."""
    if quiet or not _on_terminal():
        yield lambda text: note(text, quiet=quiet)
        return
    from rich.console import Console
    from rich.text import Text

    from traceprobe.report.text import shorten

    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    with console.status(Text("starting")) as status:
        yield lambda text: status.update(Text(shorten(text, console.width)))


def _on_terminal() -> bool:
    """Whether messages go to a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def terminal_width() -> int:
    """Columns of the terminal; 80 where there is none."""
    try:
        return int(os.environ.get("COLUMNS") or os.get_terminal_size(sys.stdout.fileno()).columns)
    except (OSError, ValueError):
        return 80


def use_color() -> bool:
    """Whether standard output takes colour: NO_COLOR, FORCE_COLOR, then a terminal that can."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
