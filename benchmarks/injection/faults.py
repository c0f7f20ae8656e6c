"""What is put into a program, where, and what should be blamed for it.

A fault is one line before a statement that is executed in every step, at its indentation; nothing
else of the program changes. How much it costs is chosen from the step as it is, so that it can be
seen; what then is the fault's own line is known.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.injection.catalog import CATALOG, Program

Kind = Literal["sleep", "busy", "item", "spin", "matmul", "slow-sample", "slow-worker", "copy"]
ON_CPU: tuple[Kind, ...] = ("sleep", "busy", "matmul", "slow-sample", "slow-worker")
ON_GPU: tuple[Kind, ...] = ("sleep", "busy", "item", "spin", "copy", "slow-sample", "slow-worker")
HEAVY = frozenset({"item"})
"""Kinds that are put into a run whose GPU is behind the host, or else nothing would wait."""
LOADING = frozenset({"slow-sample", "slow-worker"})
LEAST_MS, MOST_MS = 2.0, 20.0
"""Of host time a step, unless it is a worker's, of which the step sees what is not hidden."""
WORKERS = 2
MOST_HITS, MOST_SAMPLES = 64, 600
"""Executions a step of a statement that a fault is put before: more would make it too short."""


@dataclass(frozen=True)
class Fault:
    """One line in one program.

    Args:
        id: for people and files. program: of the catalogue. heavy: whether its `heavy` options.
        file, line, function: where the line is, once it is there; `line` counts from 1.
        code: the line. ms: what it takes in a step; 0 where that is not chosen.
        step_ms: the program's step without it.
    """

    id: str
    program: str
    kind: Kind
    heavy: bool
    file: str
    line: int
    function: str
    code: str
    ms: float
    hits: float
    step_ms: float


def chosen(
    explored: Mapping[tuple[str, bool], Mapping[str, Any]], count: int, seed: int, *, gpu: bool
) -> list[Fault]:
    """Faults for programs in turns, their kinds in turns.

    Args:
        explored: what `explore.py` found, by program and whether it had its `heavy` options.
    """
    made: list[Fault] = []
    taken: set[tuple[str, str, int]] = set()
    programs = [p for p in CATALOG if (p.name, False) in explored]
    for turn in range(count):
        for number, program in enumerate(programs):
            if len(made) == count:
                return made
            kinds = [k for k in (ON_GPU if gpu else ON_CPU) if program.loads or k not in LOADING]
            kind = kinds[(turn + number) % len(kinds)]
            heavy = kind in HEAVY and (program.name, True) in explored
            source = random.Random(f"{seed} {program.name} {turn}")
            found = explored[program.name, heavy]
            fault = _fault(program, kind, heavy, found, source, taken)
            if fault is not None:
                made.append(fault)
                taken.add((fault.program, fault.file, fault.line))
        if turn > 4 * count // max(len(programs), 1) + 8:
            break
    return made


def _fault(
    program: Program,
    kind: Kind,
    heavy: bool,
    explored: Mapping[str, Any],
    source: random.Random,
    taken: set[tuple[str, str, int]],
) -> Fault | None:
    places = [
        place
        for place in explored["places"]
        if place["loads"] == (kind in LOADING)
        and place["hits"] <= (MOST_SAMPLES if kind in LOADING else MOST_HITS)
        and (program.name, place["file"], place["line"]) not in taken
        and (kind != "item" or (place["tensors"] and place["hits"] <= 4))
    ]
    if not places:
        return None
    place = source.choice(places)
    ms = _strength(kind, explored["step_ms"], source)
    code = _code(kind, ms / place["hits"], place, explored["machine"], source)
    name = f"{program.name}-{kind}-{Path(place['file']).stem}{place['line']}"
    where = (place["file"], place["line"], place["function"])
    return Fault(
        *(name, program.name, kind, heavy, *where, code),
        *(ms, place["hits"], explored["step_ms"]),
    )


def _strength(kind: Kind, step_ms: float, source: random.Random) -> float:
    """Milliseconds of a step that a fault takes."""
    if kind == "item":
        return 0.0
    if kind == "slow-worker":
        return max(WORKERS * step_ms * source.uniform(1.5, 2.5), LEAST_MS)
    if kind in ("spin", "matmul"):
        return max(step_ms * source.uniform(0.8, 1.2), LEAST_MS)
    return min(max(step_ms * source.uniform(0.5, 1.0), LEAST_MS), MOST_MS)


def _code(
    kind: Kind,
    ms: float,
    place: Mapping[str, Any],
    machine: Mapping[str, float],
    source: random.Random,
) -> str:
    """One line of Python that needs no name of the program but a tensor's."""
    torch = '__import__("torch")'
    if kind in LOADING:
        kind = source.choice(("sleep", "busy"))
    if kind == "sleep":
        return f'__import__("time").sleep({ms / 1e3:.6f})'
    if kind == "busy":
        return f"sum(range({max(int(ms * machine['turns']), 1)}))"
    if kind == "item":
        # The last local tensor is the one that was computed last, as a rule.
        return f"float({place['tensors'][-1]}.detach().sum())"
    if kind == "spin":
        return f"{torch}.cuda._sleep({int(ms * machine['cycles'])})"
    if kind == "copy":
        return f'{torch}.empty({max(int(ms * machine["bytes"] / 4), 1)}).to("cuda")'
    size = max(int((ms * machine["flops"] / 2) ** (1 / 3)), 16)
    return f"{torch}.ones({size}, {size}) @ {torch}.ones({size}, {size})"


def inserted(source: str, fault: Fault) -> str:
    """The text of a file with the fault's line in it."""
    lines = source.splitlines(keepends=True)
    before = lines[fault.line - 1]
    indent = before[: len(before) - len(before.lstrip())]
    return "".join([*lines[: fault.line - 1], f"{indent}{fault.code}\n", *lines[fault.line - 1 :]])
