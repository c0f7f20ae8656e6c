"""How a tool is asked: commands, in an environment of its own, with a limit of time."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.processes import Cost, measure
from benchmarks.slowbench.answers import Answer

TIMEOUT_S = 180.0


@dataclass(frozen=True)
class Tool:
    """A tool under test.

    Args:
        version: of it, for the page.
        reads: the backends whose recordings it claims to read.
        commands: what is run, from the files of a recording and an empty folder for output.
        interpret: an answer from that folder and the row of the case; its costs are added.
        environment: variables of its processes.
    """

    name: str
    version: str
    reads: frozenset[str]
    commands: Callable[[Sequence[Path], Path], list[list[str]]]
    interpret: Callable[[Path, Mapping[str, Any]], Answer]
    environment: Mapping[str, str] = field(default_factory=dict)

    def ask(self, files: Sequence[Path], folder: Path, row: Mapping[str, Any]) -> Answer:
        """The answer about one recording; an output that cannot be read is none."""
        if row["backend"] not in self.reads:
            return Answer(self.name, failed=f"does not read recordings of {row['backend']}")
        costs = []
        for command in self.commands(files, folder):
            cost = measure(command, folder, self.environment, TIMEOUT_S)
            costs.append(cost)
            if cost.failed is not None:
                return priced(Answer(self.name, failed=cost.failed), costs)
        try:
            return priced(self.interpret(folder, row), costs)
        except (OSError, ValueError, KeyError) as error:
            return priced(Answer(self.name, failed=f"output not understood: {error!r}"), costs)


def priced(answer: Answer, costs: Sequence[Cost]) -> Answer:
    """With what the processes took: their time together, and the most memory of one."""
    return replace(
        answer,
        seconds=round(sum(cost.seconds for cost in costs), 2),
        peak_mb=round(max((cost.peak_bytes for cost in costs), default=0) / 1e6, 1),
    )


def version(python: Path, *names: str) -> str:
    """Name and version of the first of these distributions that an environment has."""
    code = (
        "import sys\n"
        "from importlib.metadata import distributions\n"
        "found = {d.name.lower(): f'{d.name} {d.version}' for d in distributions()}\n"
        "print(next(found[n.lower()] for n in sys.argv[1:] if n.lower() in found))"
    )
    done = subprocess.run([python, "-c", code, *names], check=True, capture_output=True, text=True)
    return done.stdout.strip()
