"""What the analyser makes of recordings of known programs, against what is known of them.

An edge that was found is right if the program implies it: if what it says has to end first has
always ended by then, whether one event orders the two or several. One that is known is found if the
edges that were found, with the order of streams and launches, imply it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

import traceprobe
from benchmarks.dependencies_known import recordings
from benchmarks.dependencies_known.graph import Graph, Operation, build
from benchmarks.dependencies_known.program import DEVICE, Intervention, Program
from benchmarks.dependencies_known.recordings import Run
from traceprobe.model.codes import UNKNOWN
from traceprobe.model.events import Trace
from traceprobe.pipeline.build_rank import origin
from traceprobe.replay.predict import Playable, prepare
from traceprobe.replay.simulate import simulate_all
from traceprobe.replay.tasks import RankSchedule
from traceprobe.timeline.beside_communication import communication_columns
from traceprobe.timeline.played_ops import consecutive, launched_ops
from traceprobe.timeline.replay import launched_rows
from traceprobe.timeline.stream_needs import Needs

if TYPE_CHECKING:
    import polars as pl

FIRST = 3
"""Iteration of the known graph from which on it is steady."""
NEAR = 0.01


@dataclass(frozen=True)
class Shown:
    """The operations of a rank that the replay is made of.

    Args:
        ops: in launch order. known: what each is in the graph by construction.
        iterations: of them, without the one before that only shows what came before.
        same: streams that were another one.
        stream: number of the stream in the replay. origin: of its times.
    """

    ops: pl.DataFrame
    known: list[Operation]
    iterations: list[int]
    stream: list[int]
    origin: int
    launched: pl.DataFrame
    needs: Needs
    same: dict[int | str, int | str]


def shown(trace: Trace, program: Program, rank: int, written_by: str) -> Shown:
    """What the replay of a recording is made of."""
    account = recordings.account_of(trace)
    chosen = consecutive(account)
    ops = launched_ops(account, chosen)
    beside = communication_columns(account, trace.names)[ops["number"].to_numpy()]
    launched, needs, _ = launched_rows(account, ops, beside, trace.names)
    numbers = recordings.numbers(ops, program.ranks[rank], written_by)
    begin = int(chosen[0]) - 1 - FIRST
    iterations = ops["iteration"].to_list()
    known = [(rank, k - begin, n) for k, n in zip(iterations, numbers, strict=True)]
    streams = np.unique(ops["stream"].to_numpy(), return_inverse=True)[1].tolist()
    same = recordings.same_streams(ops, numbers, program.ranks[rank])
    return Shown(ops, known, chosen.tolist(), streams, origin(trace), launched, needs, same)


def edges(found: Shown, graph: Graph, ancestors: Sequence[int]) -> dict[str, Any]:
    """Counts of edges that were found, and of those that are known."""
    place = {operation: row for row, operation in enumerate(found.known)}
    begin = len(found.known) - sum(
        k in set(found.iterations) for k in found.ops["iteration"].to_list()
    )
    reached, launched = _reached(found)
    counts: dict[str, Any] = {}
    pairs = {
        "event": zip(found.needs.op.tolist(), found.needs.needs.tolist(), strict=True),
        "host": (
            (row, of) for row, of in enumerate(found.launched["awaits"].to_list()) if of != UNKNOWN
        ),
    }
    recorded = found.needs.recorded.tolist()
    known = [(edge.source, edge.op, edge.needs) for edge in graph.edges]
    direct = {(source, place.get(op), place.get(of)) for source, op, of in known}
    for source, each in pairs.items():
        right, wrong = 0, []
        exact = sure = number = 0
        for index, (row, of) in enumerate(each):
            if row < begin:
                continue
            number += 1
            node = graph.ops if source == "event" else graph.launches
            holds = ancestors[node[found.known[row]]] >> graph.ops[found.known[of]] & 1
            right += holds
            exact += (source, row, of) in direct
            sure += source == "event" and recorded[index]
            if not holds:
                wrong.append([found.known[row], found.known[of]])
        asked = [
            (place[op], place[of])
            for kind, op, of in known
            if kind == source and op in place and of in place and place[op] >= begin
        ]
        by = reached if source == "event" else launched
        missed = [(row, of) for row, of in asked if not by[row] >> of & 1]
        counts[source] = {
            "found": number,
            "right": right,
            "exact": exact,
            "recorded": sure,
            "known": len(asked),
            "recalled": len(asked) - len(missed),
            "wrong": wrong[:6],
            "missed": [[found.known[row], found.known[of]] for row, of in missed[:6]],
        }
    return {**counts, "unresolved": found.needs.unresolved}


def _reached(found: Shown) -> tuple[list[int], list[int]]:
    """For each operation, a set of bits: what has ended when it starts, and at its launch."""
    count = len(found.known)
    needs: list[list[int]] = [[] for _ in range(count)]
    for row, of in zip(found.needs.op.tolist(), found.needs.needs.tolist(), strict=True):
        needs[row].append(of)
    ended, launched = [0] * count, [0] * count
    line_of, awaits = found.launched["line"].to_list(), found.launched["awaits"].to_list()
    last: dict[tuple[str, int], int] = {}
    for row in range(count):
        line, stream = ("line", line_of[row]), ("stream", found.stream[row])
        before = last.get(line)
        launched[row] = 0 if before is None else launched[before]
        if awaits[row] != UNKNOWN:
            launched[row] |= ended[awaits[row]] | 1 << awaits[row]
        ended[row] = launched[row]
        for of in [*needs[row], *([last[stream]] if stream in last else [])]:
            ended[row] |= ended[of] | 1 << of
        last[line] = last[stream] = row
    return ended, launched


def times(run: Run, change: int) -> list[float]:
    """All steps that were measured with a change, 0 for none, on all ranks, ms."""
    return [time for row in run.rows for block in row["blocks"][change] for time in block]


def interventions(run: Run, files: Sequence[Path], found: Sequence[Shown]) -> list[dict[str, Any]]:
    """Predicted and measured steps of every intervention."""
    base = median(times(run, 0))
    options = traceprobe.Options(unprofiled_step_ms=base)
    report = traceprobe.analyze([recordings.load(file) for file in files], options)
    playable = prepare(report)
    schedules = playable.base.schedules
    changes = [Intervention(**change) for change in run.rows[0]["changes"][1:]]
    scenarios = [_changed(playable, run.program, found, change) for change in changes]
    steps = simulate_all([list(schedules), *scenarios])
    graph = build(run.program, 12, [each.same for each in found])
    plain = graph.step()
    rows = []
    for number, (change, step) in enumerate(zip(changes, steps[1:], strict=True), 1):
        predicted = base * step / steps[0]
        measured = median(times(run, number))
        by_truth = base + (graph.step(graph.longer(change)) - plain) / 1e6
        rows.append(
            {
                "does": change.does,
                "rank": change.rank,
                "number": change.number,
                "delta_ms": change.delta_ns / 1e6,
                "now_ms": round(base, 5),
                "predicted_ms": round(predicted, 5),
                "by_construction_ms": round(by_truth, 5),
                "measured_ms": round(measured, 5),
                "spread_ms": round(_spread(run, number), 5),
            }
        )
    return rows


def _spread(run: Run, change: int) -> float:
    """Range of the medians of blocks, ms: how well the step is known."""
    blocks = [median(block) for row in run.rows for block in row["blocks"][change]]
    return max(blocks) - min(blocks)


def _changed(
    run: Playable, program: Program, found: Sequence[Shown], change: Intervention
) -> list[RankSchedule]:
    """The schedules, of which one has an operation, or host work, that takes longer."""
    schedules = list(run.base.schedules)
    rank, mine, replay = change.rank, found[change.rank], run.played[change.rank].replay
    tasks = schedules[rank].tasks
    duration, tail, first_host, host = (
        getattr(tasks, name).copy() for name in ("duration", "tail", "first_host", "host")
    )
    number = change.number if change.does == "kernel" else _launched_next(program, change)
    for row in _places(mine, number):
        t0, t1 = (mine.ops[name][row] - mine.origin for name in ("t0", "t1"))
        iteration = mine.iterations.index(mine.ops["iteration"][row])
        here = [
            place
            for place in range(len(tasks))
            if replay.iteration[place] == iteration
            and replay.stream[place] == mine.stream[row]
            and replay.start_ns[place] <= t0
            and t1 <= replay.end_ns[place]
        ]
        if len(here) != 1:
            raise ValueError(f"operation {number} is in {len(here)} rows of the replay")
        place = here[0]
        if change.does == "kernel":
            duration[place] += change.delta_ns
            tail[place] += change.delta_ns if t1 == replay.end_ns[place] else 0
        else:
            first_host[place] += change.delta_ns if t0 == replay.start_ns[place] else 0
            host[place] += change.delta_ns
    changed = replace(tasks, duration=duration, tail=tail, first_host=first_host, host=host)
    schedules[rank] = replace(schedules[rank], tasks=changed)
    return schedules


def _places(found: Shown, number: int) -> list[int]:
    """Rows of an operation in the iterations of the replay."""
    return [
        row
        for row, (_, _, mine) in enumerate(found.known)
        if mine == number and found.ops["iteration"][row] in found.iterations
    ]


def _launched_next(program: Program, change: Intervention) -> int:
    """The operation that a thread launches next after a piece of its work."""
    for thread in program.ranks[change.rank].threads:
        for place, action in enumerate(thread):
            if (action.does, action.number) == ("work", change.number):
                after = [*thread[place:], *thread]
                return next(each.number for each in after if each.does in DEVICE)
    raise ValueError("no such work")


def score(folder: Path) -> list[dict[str, Any]]:
    """A row for each program and format of its recording."""
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for run in recordings.runs(folder, Path(scratch)):
            timed: list[dict[int | str, int | str]] = []
            for written_by, files in run.files.items():
                traces = [recordings.load(file) for file in files]
                found = [
                    shown(trace, run.program, rank, written_by) for rank, trace in enumerate(traces)
                ]
                same = [each.same for each in found]
                # The process of the first recording is the one that was timed.
                timed = timed or same
                graph = build(run.program, FIRST + 6, same)
                ancestors = graph.ancestors()
                mine = run.program.ranks
                rows.append(
                    {
                        "program": run.program.name,
                        "recording": written_by,
                        "ranks": len(mine),
                        "streams": run.program.streams,
                        "threads": len(mine[0].threads),
                        "operations": sum(a.does in DEVICE for r in mine for a in r.actions()),
                        "same_streams": sum(map(len, same)),
                        "edges": [edges(each, graph, ancestors) for each in found],
                        "interventions": interventions(run, files, found) if same == timed else [],
                    }
                )
    return rows
