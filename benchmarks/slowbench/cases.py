"""A seed and a number to cases: which program, with which cause, how strong."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.slowbench.catalog import BY_NAME, CATALOG
from benchmarks.slowbench.program import Program
from benchmarks.slowbench.ways import Way, drawn

Backend = Literal["torch", "nsys"]
Split = Literal["open", "sealed"]
ACTIVE = 6
"""Steps of a recording, before it is cut."""
HEALTHY_EVERY = 6
"""One case of so many has no cause, where nothing else is asked for."""
PAIRS = 6
"""Cases with two causes after each round of all causes."""
TWINS = 2
"""Of three rounds, those whose cases are recorded with Nsight Systems too."""


@dataclass(frozen=True)
class Placed:
    """A cause, as it is in one case.

    Args:
        options: of the slow form. level: how strong it is, in words.
        lines: what is put in, each with the beginning of the statement that it goes before.
        busy: share of the time that another process computes; None without one.
        rank: the one that has it; None where all have.
    """

    cause: str
    options: Mapping[str, Any]
    lines: tuple[tuple[str, str], ...]
    level: str
    period: int
    busy: float | None
    rank: int | None


@dataclass(frozen=True)
class Case:
    """A program with no cause, with one or with two.

    Args:
        id: for people and files; that of its twin differs in the backend alone.
        options: of the healthy form. helpers: lines that all its forms get.
        seed: of the call. number: of the draw, from 0.
    """

    id: str
    program: str
    backend: Backend
    split: Split
    seed: int
    number: int
    options: Mapping[str, Any]
    helpers: tuple[str, ...] = ()
    causes: tuple[Placed, ...] = ()

    @property
    def ranks(self) -> int:
        """Processes that train together."""
        return BY_NAME[self.program].ranks

    @property
    def period(self) -> int:
        """Steps after which it repeats itself."""
        return max((placed.period for placed in self.causes), default=1)

    @property
    def neighbour(self) -> float | None:
        """Share of the time that another process computes beside the slow form."""
        return next((placed.busy for placed in self.causes if placed.busy is not None), None)

    @property
    def twin(self) -> str:
        """The id of the case of torch.profiler, whose times hold for that of Nsight Systems."""
        return f"{self.id.rpartition('-')[0]}-torch"


def cases(
    split: Split,
    seed: int,
    count: int,
    *,
    cpu: bool,
    nsys: bool,
    ranks: int = 1,
    healthy_every: int = HEALTHY_EVERY,
) -> list[Case]:
    """The first cases of a seed, the most valuable first.

    Args:
        cpu: those that a CPU feels, with small options.
        nsys: whether most are recorded with Nsight Systems too.
        ranks: processes that train together.
        healthy_every: one case of so many has no cause.
    """
    made: list[Case] = []
    wanted = [p for p in CATALOG if p.ranks == ranks and not (cpu and p.needs)]
    for number, (program, ways) in enumerate(_order(wanted, seed, healthy_every, cpu=cpu)):
        if len(made) >= count:
            break
        case = _case(program, ways, split, seed, number, cpu=cpu)
        made.append(case)
        if nsys and _round_of(wanted, number, healthy_every, cpu=cpu) % 3 < TWINS:
            made.append(_twin(case))
    return made[:count]


def _order(
    programs: Sequence[Program], seed: int, healthy_every: int, *, cpu: bool
) -> Iterator[tuple[Program, tuple[Way, ...]]]:
    """Rounds of all causes, each time in another program; healthy ones spread in; pairs."""
    places: dict[str, list[tuple[Program, Way]]] = {}
    for program in programs:
        for way in program.all_ways:
            if way.on_cpu or not cpu:
                places.setdefault(way.cause, []).append((program, way))
    source = random.Random(f"slowbench {seed}")
    for each in places.values():
        source.shuffle(each)
    healthy = 0
    made = 0
    for turn in range(1000):
        singles = [(found[turn % len(found)]) for found in places.values()]
        source.shuffle(singles)
        rows = [(program, (way,)) for program, way in singles]
        rows += [_pair(programs, source, cpu=cpu) for _ in range(PAIRS)]
        for row in rows:
            if made % healthy_every == 0:
                yield programs[healthy % len(programs)], ()
                healthy += 1
                made += 1
            yield row
            made += 1


def _round_of(programs: Sequence[Program], number: int, healthy_every: int, *, cpu: bool) -> int:
    causes = {way.cause for p in programs for way in p.all_ways if way.on_cpu or not cpu}
    return number // ((len(causes) + PAIRS) * healthy_every // (healthy_every - 1) + 1)


def _pair(
    programs: Sequence[Program], source: random.Random, *, cpu: bool
) -> tuple[Program, tuple[Way, ...]]:
    """Two ways into one program that change different things."""
    ways = {
        p.name: [w for w in p.all_ways if (w.on_cpu or not cpu) and not w.both] for p in programs
    }
    several = [program for program in programs if len(ways[program.name]) > 1]
    while True:
        program = source.choice(several)
        first, second = source.sample(ways[program.name], 2)
        alone = first.cause != second.cause and not first.options.keys() & second.options.keys()
        if alone and first.period == second.period and not (first.neighbour or second.neighbour):
            return program, (first, second)


def _case(
    program: Program, ways: tuple[Way, ...], split: Split, seed: int, number: int, *, cpu: bool
) -> Case:
    source = random.Random(f"slowbench {seed} {number}")
    options = drawn(program.healthy, source)
    placed, helpers = [], []
    for way in ways:
        options |= drawn(way.both, source)
        found, more = _placed(program, way, source, cpu=cpu)
        placed.append(found)
        helpers += [line for line in more if line not in helpers]
    if cpu:
        options |= program.small
    name = "+".join(way.cause for way in ways) or "healthy"
    case_id = f"{program.name}-{name}-s{seed}n{number}-torch"
    return Case(
        *(case_id, program.name, "torch", split, seed, number, options),
        *(tuple(helpers), tuple(placed)),
    )


def _placed(
    program: Program, way: Way, source: random.Random, *, cpu: bool
) -> tuple[Placed, tuple[str, ...]]:
    level_range = way.small_level if cpu and way.small_level else way.level
    level = None if level_range is None else level_range.draw(source)
    options = drawn(way.options, source)
    if cpu:
        options |= drawn(way.small, source)
    anchor, expression = program.forward
    # What is given to {level} is the share of a batch where the line has no other use for it.
    share = "1" if any("{level}" in line for _, line in way.lines) else str(level)

    def filled(text: str) -> str:
        passed = expression.replace("{share}", share)
        return text.replace("{pass}", passed).replace("{level}", str(level))

    lines = tuple(
        (anchor if before == "{forward}" else before, filled(line)) for before, line in way.lines
    )
    words = [f"{name}={value}" for name, value in options.items()]
    words += [f"level {level}"] if level is not None else []
    words += [f"each {way.period} steps"] if way.period > 1 else []
    busy = level if way.neighbour else None
    told = ", ".join(words) or "the line"
    found = Placed(way.cause, options, lines, told, way.period, busy, way.rank)
    return found, tuple(filled(line) for line in way.helpers)


def _twin(case: Case) -> Case:
    from dataclasses import replace

    return replace(case, id=f"{case.id.rpartition('-')[0]}-nsys", backend="nsys")


def source_of(case: Case, without: str | None = None, *, healthy: bool = False) -> str:
    """Text of the program of a form of a case.

    Args:
        without: a cause that is left out. healthy: whether all are.
    """
    lines = BY_NAME[case.program].source.splitlines()
    for placed in () if healthy else case.causes:
        if placed.cause != without:
            for before, line in placed.lines:
                _put(lines, before, f"{line}  # slow: {placed.cause}")
    for helper in case.helpers:
        _put(lines, "device = torch.device(", helper)
    return "\n".join(lines) + "\n"


def _put(lines: list[str], before: str, line: str) -> None:
    """Put a line before the last statement of the program that begins so, at its indentation."""
    place = max(n for n, text in enumerate(lines) if text.strip().startswith(before))
    indent = len(lines[place]) - len(lines[place].lstrip())
    lines.insert(place, " " * indent + line)


@dataclass(frozen=True)
class Line:
    """Where a cause is. Lines count from 1."""

    file: str
    line: int
    function: str
    more: tuple[int, ...] = field(default_factory=tuple)


def line_of(case: Case, cause: str) -> Line | None:
    """The line of a cause in the slow form; None where it has none."""
    import ast

    text = source_of(case)
    found = [
        number
        for number, line in enumerate(text.splitlines(), 1)
        if cause in line.partition("# slow: ")[2].split(", ")
    ]
    if not found:
        return None
    inserted = any(placed.lines for placed in case.causes if placed.cause == cause)
    if inserted:  # and not the line where the program may have the same cause by an option
        added = {line for p in case.causes if p.cause == cause for _, line in p.lines}
        found = [n for n in found if any(a in text.splitlines()[n - 1] for a in added)]
    inner = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.lineno <= found[0] <= (node.end_lineno or 0)
    ]
    function = max(inner, key=lambda node: node.lineno).name
    return Line(f"{case.program}.py", found[0], function, tuple(found[1:]))
