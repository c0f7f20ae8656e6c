"""Which kernels and host work of a program are made to last longer, and by how much."""

from __future__ import annotations

from random import Random

from benchmarks.dependencies_known.graph import build
from benchmarks.dependencies_known.program import Intervention, Program

LEAST_NS, MOST_NS = 200_000, 1_500_000
ITERATIONS = 8
TRIED = 40


def interventions(program: Program, kernels: int = 7, works: int = 2) -> list[Intervention]:
    """Some that should move the step and some that should not, the same for the same program."""
    random = Random(f"interventions {program.seed}")
    graph = build(program, ITERATIONS)
    base = graph.step()
    places = [
        (rank, action.does, action.number)
        for rank, found in enumerate(program.ranks)
        for action in found.actions()
        if action.does in ("kernel", "work")
    ]
    random.shuffle(places)
    chosen: list[Intervention] = []
    for does, count in (("kernel", kernels), ("work", works)):
        mine = [place for place in places if place[1] == does][:TRIED]
        tried = [Intervention(*place, random.randint(LEAST_NS, MOST_NS)) for place in mine]
        effects = [(graph.step(graph.longer(each)) - base) / each.delta_ns for each in tried]
        moving = [each for each, effect in zip(tried, effects, strict=True) if effect > 0.5]
        still = [each for each, effect in zip(tried, effects, strict=True) if effect <= 0.5]
        # More of those that move it: a step that stays as it is says little about the graph.
        some = moving[: count - count // 3] + still[: count // 3]
        rest = [each for each in tried if each not in some]
        chosen += (some + rest)[:count]
    return chosen
