"""The measured parts of docs/performance.md: each is between two comments that name it."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
_USED = ("polars", "pandas", "numpy", "msgspec", "altair", "distributed")


def machine() -> str:
    """What was measured on, and with what."""
    model = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    parts = [f"Python {platform.python_version()}"]
    for name in _USED:
        try:
            parts.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    name = model[1] if model else platform.machine()
    return f"{os.cpu_count()} × {name}, {memory / 1e9:.0f} GB, {', '.join(parts)}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown with aligned columns, the first to the left."""
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    rule = ["-" * widths[0], *("-" * (w - 1) + ":" for w in widths[1:])]
    return "\n".join(
        "| "
        + " | ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        + " |"
        for line in (head, rule, *rows)
    )


def replace(text: str, section: str, body: str) -> str:
    """The page with another body in a section.

    Raises:
        KeyError: it has no such section.
    """
    begin, end = f"<!-- {section} -->\n", f"<!-- /{section} -->"
    if begin not in text or end not in text:
        raise KeyError(section)
    before, rest = text.split(begin, 1)
    return f"{before}{begin}\n{body}\n\n{end}{rest.split(end, 1)[1]}"


def put(section: str, body: str) -> None:
    """Write a section of the page."""
    PAGE.write_text(replace(PAGE.read_text("utf-8"), section, body), "utf-8")
