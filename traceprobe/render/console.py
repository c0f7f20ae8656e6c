"""What every text for a terminal is printed with: lines of a given width, in colour or without."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

MIN_WIDTH = 20


def console(width: int, *, color: bool) -> Console:
    """A console that keeps what is printed; `collected` gives it back."""
    return Console(
        file=StringIO(),
        width=max(width, MIN_WIDTH),
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        _environ={},  # the width is known, and COLUMNS and LINES may be beyond reason
    )


def collected(printed: Console) -> str:
    """Everything that was printed, without spaces at the ends of lines."""
    out = printed.file
    assert isinstance(out, StringIO)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())
