"""Messages and progress on standard error; standard output is for data."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

    from traceprobe.records.report import Report
    from traceprobe.render.document import Document


MAX_MESSAGE = 4_000
"""Characters of a line on standard error."""
MAX_NAME = 60
"""Characters of a file's name beside its bar."""
MAX_TITLE = 120
"""Characters of the title of a window."""
MAX_WIDTH = 1_000
"""Columns that are believed of a terminal."""
DEFAULT_WIDTH = 80
"""Columns where a terminal does not say how many it has."""

# Runners of CI jobs obey what a program prints: GitHub's a line that begins with `::`, it and that
# of Azure Pipelines `##[` and `##vso[` wherever they stand. No name may say such things.
_BEGINS = re.compile(r"^([^\S\n]*):(?=:)", re.MULTILINE)
_ANYWHERE = re.compile(r"##(?=\w*\[)")
_OURS = re.compile(r"^([^\S\n]*traceprobe):", re.MULTILINE)
"""A line as our messages begin, which are on standard error; in a table that is a folded name."""


def fail(message: str, *more: str, code: int = 2) -> NoReturn:
    """Print one error, with `more` lines below it, and exit."""
    note(f"traceprobe: {message}", *more, quiet=False)
    sys.exit(code)


def misused(message: str) -> NoReturn:
    """Refuse an option. The error's class is imported only here: its module takes its time.

    Raises:
        UsageError: always.
    """
    from traceprobe.errors import UsageError

    raise UsageError(message)


def note(*lines: str, quiet: bool) -> None:
    """Lines for the person at the terminal; names in them can neither steer it nor add a line.

    Lines keep the spaces that they begin with.
    """
    from traceprobe.formatting import shorten

    for line in () if quiet else lines:
        text = line.lstrip(" ")
        echo(" " * (len(line) - len(text)) + shorten(text, MAX_MESSAGE))


def echo(line: str) -> None:
    """A line among the messages, as wide as it is."""
    if sys.stderr is None:
        return
    try:
        print(_unheeded(line), file=sys.stderr, flush=True)
    except OSError:  # a full disk, or nobody who reads: what a command came to is no matter of that
        _discard(sys.stderr)


def warn(message: str) -> None:
    """Lines that matter also to those who want no messages."""
    note(*message.split("\n"), quiet=False)


def _unheeded(text: str) -> str:
    """`text` as wide as it is, without what the runner of a CI job obeys."""
    return _ANYWHERE.sub("# ", _BEGINS.sub(r"\1.", text))


def text_out(text: str, encoding: str) -> None:
    """Text for people on standard output, see `data`."""
    data(_OURS.sub(r"\1.", _unheeded(text)), encoding)


def json_out(text: str) -> None:
    """JSON on standard output, see `data`: the same values, in words that no CI job obeys."""
    data(_ANYWHERE.sub(r"#\\u0023", text))


def data(text: str, encoding: str = "utf-8") -> None:
    """Text on standard output; the program ends where the reader has gone away (`| head`).

    Raises:
        UsageError: there is no standard output, or it takes no more.
    """
    from traceprobe.errors import UsageError

    if sys.stdout is None:
        raise UsageError("standard output is closed; write to a file with -o")
    try:
        sys.stdout.buffer.write(text.encode(encoding, "replace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        _discard(sys.stdout)
        raise typer.Exit(2) from None
    except OSError as error:
        _discard(sys.stdout)
        why = error.strerror or str(error)
        raise UsageError(f"standard output: cannot be written: {why}") from error


def _discard(stream: IO[Any]) -> None:
    """Let a stream take everything from now on, also what it has not written yet."""
    with suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)


def summary(report: Report, inputs: Sequence[str] | None, *, verbose: bool = False) -> None:
    """A report on standard output, as `document_summary` shows it.

    Args:
        inputs: paths of the files that it is about; None where they are not known.
        verbose: as `document_summary`.
    """
    from traceprobe.render.pages.report import brief

    document_summary(brief(report, inputs), verbose=verbose)


def all_of_it(saved: Path, *, quiet: bool) -> None:
    """How to see everything, of a command that would run a program again for it.

    Args:
        saved: the result as JSON.
    """
    from traceprobe.system import shell

    note(f"all of it: traceprobe render {shell.file(str(saved))} -v", quiet=quiet)


def document_summary(document: Document, *, verbose: bool = False) -> None:
    """A document on standard output, as wide, colourful and encoded as that takes it.

    Args:
        verbose: all of it, not only what fits a small terminal.
    """
    from traceprobe.render.terminal import render

    if sys.stdout is None:  # a service without a terminal, which wants its files
        return
    encoding = sys.stdout.encoding or "utf-8"
    text = render(document, terminal_width(), use_color(), encoding, verbose=verbose)
    text_out(text, encoding)


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
    from rich.progress import DownloadColumn

    from traceprobe.formatting import shorten

    with _bars("reading {task.description}", DownloadColumn()) as bar:
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
    from rich.progress import MofNCompleteColumn

    with _bars("reading ranks", MofNCompleteColumn()) as bar:
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
    from rich.text import Text

    from traceprobe.formatting import shorten

    console = _messages()
    with console.status(Text("starting")) as status:
        yield lambda text: status.update(Text(shorten(text, console.width)))


@contextmanager
def window_title(*, quiet: bool) -> Iterator[Callable[[str], None] | None]:
    """The title of the terminal's window, for a state beside what a program prints there.

    A line among those of the program would be overwritten by it, or would overwrite what it has
    not ended. The title is nobody's line. It is the old one afterwards.

    Yields:
        What sets it; None where standard error is no terminal that has one.
    """
    if quiet or not _on_terminal() or os.environ.get("TERM", "dumb") in ("dumb", "linux"):
        yield None
        return
    from traceprobe.formatting import shorten

    def say(text: str) -> None:
        with suppress(OSError):
            os.write(sys.stderr.fileno(), text.encode())

    say("\x1b[22;2t")  # xterm keeps the title, https://invisible-island.net/xterm/ctlseqs
    try:
        yield lambda text: say(f"\x1b]2;traceprobe: {shorten(text, MAX_TITLE)}\x07")
    finally:
        say("\x1b]2;\x07\x1b[23;2t")


def _bars(text: str, count: ProgressColumn) -> Progress:
    """Bars that go away once all is read."""
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn(text, markup=False), BarColumn(), count)
    return Progress(*columns, console=_messages(), transient=True)


def _messages() -> Console:
    """A console on standard error, as wide as the terminal whatever its variables say."""
    from rich.console import Console

    sized = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    return Console(stderr=True, markup=False, emoji=False, highlight=False, _environ=sized)


def _on_terminal() -> bool:
    """Whether messages go to a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def terminal_width() -> int:
    """Columns of the terminal; 80 where there is none, or none that says how wide it is.

    A pseudo-terminal that nobody told its size (`script`, many CI jobs and containers) has 0.
    """
    try:
        found = int(os.environ.get("COLUMNS") or os.get_terminal_size(sys.stdout.fileno()).columns)
    except (OSError, ValueError):
        return DEFAULT_WIDTH
    return min(found, MAX_WIDTH) if found > 0 else DEFAULT_WIDTH


def use_color() -> bool:
    """Whether standard output takes colour: NO_COLOR, FORCE_COLOR, then a terminal that can."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
