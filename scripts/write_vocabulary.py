#!/usr/bin/env python3
"""Write traceprobe/vocabulary/ours.txt: the words that traceprobe's own sentences are made of.

They are the tokens of all texts in its source but docstrings, the names of the fields of its
records, and the texts of its table of GPUs. `--redact` keeps these words; a test looks that the
list is that of the source.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from traceprobe.vocabulary import tokens

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "traceprobe"
PROGRAMS = ROOT / "workloads"
TARGET = SOURCE / "vocabulary" / "ours.txt"
PLAIN = re.compile(r"""(?=.*[^\W\d])[-.]{0,2}\w[\w./:=+%@*(),'\"-]{0,60}""")
"""Words, options and their like; pieces of expressions are none."""


def texts(tree: ast.Module) -> Iterator[str]:
    """Texts of a module, and names of the fields of its classes."""
    described = {id(text) for text in _unsaid(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in described:
                yield node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def _unsaid(tree: ast.Module) -> Iterator[ast.AST]:
    """Texts that nobody is told: those that are statements, which describe, and formats."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value
        elif isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            yield from ast.walk(node.format_spec)


def harvested() -> str:
    """The list, one word a line."""
    found: set[str] = set()
    for path in sorted((*SOURCE.rglob("*.py"), *PROGRAMS.glob("*.py"))):
        for text in texts(ast.parse(path.read_text(encoding="utf-8"))):
            found.update(tokens(text))
    table = json.loads((SOURCE / "verdict" / "gpu_specs.json").read_text("utf-8"))
    found.update(tokens(" ".join(strings(table))))
    kept = sorted(filter(PLAIN.fullmatch, found))
    return "\n".join(kept) + "\n"


def strings(table: object) -> Iterator[str]:
    """The texts of a JSON value, and the names of slices of GPUs."""
    if isinstance(table, str):
        yield table
    elif isinstance(table, dict):
        yield from table.get("mig", ())
        yield from chain.from_iterable(map(strings, table.values()))
    elif isinstance(table, list):
        yield from chain.from_iterable(map(strings, table))


def main() -> None:
    """Write the list."""
    text = harvested()
    TARGET.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{TARGET.relative_to(ROOT)}: {text.count(chr(10))} words\n")


if __name__ == "__main__":
    main()
