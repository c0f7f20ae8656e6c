"""The expert rules of Nsight Systems: `nsys analyze` with its default rules.

A rule says something where it lists rows. It lists them however few they are, in no order of
importance between rules; they are taken in the order in which it runs them.
"""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.slowbench.answers import Answer, Said
from benchmarks.slowbench.tools.tool import Tool

NAME = "nsys analyze"
RULES = ("cuda_memcpy_async", "cuda_memcpy_sync", "cuda_memset_sync", "cuda_api_sync")
"""Those that name causes; of its defaults `gpu_gaps` and `gpu_time_util` name symptoms."""


def tool(program: Path) -> Tool:
    """The rules of an installed Nsight Systems."""
    shown = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
    return Tool(
        NAME,
        shown.stdout.strip().removeprefix("NVIDIA "),
        frozenset({"nsys"}),
        partial(_commands, program),
        interpret,
    )


def _commands(program: Path, files: Sequence[Path], folder: Path) -> list[list[str]]:
    rules = [part for rule in RULES for part in ("--rule", rule)]
    output = ["--format", "csv", "--output", str(folder / "rules")]
    return [[str(program), "analyze", *rules, *output, "--force-overwrite=true", str(files[0])]]


def interpret(folder: Path, _row: Mapping[str, Any]) -> Answer:
    """An answer from the tables that it left, one for each rule that found something."""
    said = []
    for rule in RULES:
        for path in sorted(folder.glob(f"rules*{rule}*.csv")):
            with path.open(newline="", encoding="utf-8") as file:
                if len(list(csv.reader(file))) > 1:
                    said.append(Said(rule, alarm=True))
    return Answer(NAME, said=tuple(said))
