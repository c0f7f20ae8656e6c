"""Results to files: rendered by suffix, written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from traceprobe.system.atomic_write import write_beside


class Result(Protocol):
    """What can be saved: a report, or another record that people read."""

    def to_html(self) -> str: ...
    def to_json(self) -> str: ...
    def to_markdown(self) -> str: ...


RENDERERS: Mapping[str, Callable[[Result], str]] = {
    ".html": lambda result: result.to_html(),
    ".json": lambda result: result.to_json(),
    ".md": lambda result: result.to_markdown(),
}
"""Suffix of a file to the text of a result."""


def save(result: Result, paths: Iterable[Path], *, replace: bool) -> None:
    """Write a result to files, each in the format of its suffix.

    None has its name before all are rendered and written, so that a failure of either leaves none
    of them; and no text is kept while the next one is rendered.

    Args:
        replace: whether a file that is there by now is overwritten.

    Raises:
        UsageError: a file cannot be written.
        KeyError: a suffix is none of `RENDERERS`.
    """
    with ExitStack() as written:
        for path in paths:
            temporary = written.enter_context(write_beside(path, replace=replace))
            _fill(temporary, RENDERERS[path.suffix](result))


def save_text(path: Path, text: str, *, replace: bool) -> None:
    """Write a file beside its place and rename it.

    Args:
        replace: whether a file that is there by now is overwritten.

    Raises:
        UsageError: it cannot be written.
    """
    with write_beside(path, replace=replace) as temporary:
        _fill(temporary, text)


def _fill(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
