"""Programs whose graph is known: what is drawn, what depends on what, and the page about them."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from benchmarks.dependencies_known import page, recordings, scores
from benchmarks.dependencies_known.graph import Costs, Edge, Graph, build
from benchmarks.dependencies_known.interventions import interventions
from benchmarks.dependencies_known.program import (
    Action,
    Intervention,
    Program,
    Rank,
    decoded,
    encoded,
    generate,
)
from tests.builders import nsight
from tests.builders.scenario import Noted, Script
from tests.conftest import ROOT

MS = 1_000_000
RESULTS = ROOT / "docs" / "validation" / "dependencies.json"


def kernel(number: int, stream: int, ms: float = 1.0) -> Action:
    return Action("kernel", number, stream, round(ms * MS))


def one(*actions: Action, streams: int = 3) -> Program:
    return Program(0, streams, True, (Rank((actions,), ()),))


def edges(graph: Graph, iteration: int = 1) -> set[tuple[int, int, str]]:
    """Needed and waiting operations of an iteration, by their numbers."""
    return {
        (edge.needs[2], edge.op[2], edge.source)
        for edge in graph.edges
        if edge.op[1] == iteration == edge.needs[1]
    }


@pytest.mark.parametrize(
    ("seed", "ranks"), [(seed, ranks) for seed in range(8) for ranks in (1, 2)]
)
def test_a_program_is_what_its_seed_says(seed, ranks):
    program = generate(seed, ranks)
    assert program == generate(seed, ranks) == decoded(json.loads(json.dumps(encoded(program))))
    assert len(program.ranks) == ranks
    assert 2 <= program.streams <= 5
    sent = [
        [a.size for a in rank.actions() if a.does in ("all-reduce", "send", "receive")]
        for rank in program.ranks
    ]
    assert len(set(map(tuple, sent))) == 1
    for rank in program.ranks:
        recorded = {a.number for a in rank.actions() if a.does == "record"}
        awaited = {a.number for a in rank.actions() if a.does in ("wait", "sync-event")}
        assert awaited <= recorded
        numbers = [a.number for a in rank.actions() if a.does in ("kernel", "item", "all-reduce")]
        assert len(numbers) == len(set(numbers))


def test_an_event_stands_for_what_its_stream_was_told_to_wait_for():
    program = one(
        kernel(0, 0),
        *(Action("record", 0, 0), Action("wait", 0, 1)),
        *(Action("record", 1, 1), Action("wait", 1, 2)),
        kernel(1, 2),
    )
    assert edges(build(program, 3)) == {(0, 1, "event")}


def test_an_older_event_is_not_what_its_stream_does_now():
    program = one(
        kernel(0, 0), Action("record", 0, 0), kernel(1, 0), Action("wait", 0, 1), kernel(2, 1)
    )
    assert edges(build(program, 3)) == {(0, 2, "event")}


def test_a_wait_before_its_record_is_for_the_iteration_before():
    program = one(Action("wait", 0, 1), kernel(0, 1), kernel(1, 0), Action("record", 0, 0))
    graph = build(program, 3)
    assert Edge((0, 0, 1), (0, 1, 0), "event") in graph.edges
    assert edges(graph) == set()


@pytest.mark.parametrize(
    "waiting",
    [Action("sync-stream", 0, 0), Action("sync-event", 0), Action("item", 2, 0)],
)
def test_the_next_launch_needs_what_the_host_waited_for(waiting):
    program = one(kernel(0, 0), Action("record", 0, 0), waiting, kernel(1, 1))
    needed = 2 if waiting.does == "item" else 0
    assert edges(build(program, 3)) == {(needed, 1, "host")}


def test_the_step_is_that_of_the_slowest_chain():
    free = [kernel(0, 0, 2), kernel(1, 1, 3)]
    assert build(one(*free), 12).step() == pytest.approx(2 * MS, rel=0.01)  # nothing joins stream 1
    joined = one(*free, Action("record", 0, 1), Action("wait", 0, 0))
    assert build(joined, 12).step() == pytest.approx(3 * MS, rel=0.01)
    waited = one(*free, Action("record", 0, 1), Action("wait", 0, 0), kernel(2, 0))
    graph = build(waited, 12)
    # The second kernel of stream 0 comes after both, the next iteration's first after that.
    assert graph.step() == pytest.approx(3 * MS, rel=0.01)
    longer = graph.longer(Intervention(0, "kernel", 1, MS))
    assert graph.step(longer) - graph.step() == pytest.approx(MS, rel=0.001)


def test_a_receive_waits_for_its_send_and_not_the_other_way():
    def program(first: str, second: str) -> Program:
        ranks = [
            Rank(((kernel(0, 0, ms), Action(does, 1, 0, 2**20), Action("finish", 1, 0)),), ())
            for ms, does in ((5.0, first), (1.0, second))
        ]
        return Program(0, 1, True, tuple(ranks))

    def ends(found: Graph) -> list[float]:
        times = found.ends()
        return [times[found.ops[rank, 0, 1]] / MS for rank in range(2)]

    assert ends(build(program("send", "receive"), 2)) == [
        pytest.approx(5, abs=0.1),
        pytest.approx(5, abs=0.1),
    ]
    assert ends(build(program("receive", "send"), 2)) == [
        pytest.approx(5, abs=0.1),
        pytest.approx(1, abs=0.1),
    ]
    both = ends(build(program("all-reduce", "all-reduce"), 2))
    assert both[0] == both[1] == pytest.approx(5, abs=0.1)


def test_streams_that_are_one_wait_for_each_other():
    program = one(kernel(0, 0, 2), kernel(1, 1, 3), Action("record", 0, 1), Action("wait", 0, 0))
    assert build(program, 12, [{1: 0}]).step() == pytest.approx(5 * MS, rel=0.01)


def test_interventions_move_the_step_and_leave_it():
    program = generate(4)
    chosen = interventions(program)
    assert chosen == interventions(program)
    graph = build(program, 8)
    moves = [(graph.step(graph.longer(each)) - graph.step()) / each.delta_ns for each in chosen]
    assert any(move > 0.9 for move in moves)
    assert any(move < 0.1 for move in moves)
    assert all(-1e-9 < move < 1 + 1e-9 for move in moves)


def test_the_page_is_made_of_its_results():
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert page.page(found) == RESULTS.with_suffix(".md").read_text(encoding="utf-8")


def test_recorded_edges_are_those_of_the_programs():
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    for keys in (("recalled", "known"), ("right", "found"), ("recorded", "found")):
        n = page.total(rows, "nsys", "event")
        assert n[keys[0]] >= 0.999 * n[keys[1]]
    assert len(page.changes(rows, "kineto")) >= 200


def recorded(program: Program, path, iterations: int = 8):
    """The program of one rank as Nsight Systems would record it, by the times of its graph."""
    graph = build(program, iterations)
    times = [round(time) + MS for time in graph.ends()]
    script, launch = Script(), round(Costs().launch)
    last: dict[int, int] = {}
    """By event, the number of its last record."""
    begins = {}
    for done in sorted(graph.done, key=lambda each: times[each.end]):
        action, thread = done.action, script.process.pid + done.thread
        begin, end, stream = times[done.begin], times[done.end], 10 + action.stream
        if not done.thread:
            begins.setdefault(done.iteration, begin)
        operation = (0, done.iteration, action.number)
        if action.does in ("kernel", "item"):
            node = graph.ops[operation]
            call = (times[graph.launches[operation]] - launch, times[graph.launches[operation]])
            kernel = {"name": "spin_kernel(long long)", "blocks": action.number + 1}
            columns = kernel if action.does == "kernel" else {"bytes": 4}
            at = (times[node] - round(graph.own[node]), times[node])
            kind = "kernel" if action.does == "kernel" else "d2h"
            script.op(kind, *at, call, thread=thread, stream=stream, **columns)
            if action.does == "item":
                waits = Noted(stream=stream)
                script.call("cudaStreamSynchronize", call[1], end, thread=thread, noted=waits)
        event = {"event": action.number}
        if action.does == "record":
            last[action.number] = len(script.calls)
        if action.number in last:
            event["serial"] = last[action.number]
        api, noted = {
            "record": ("cudaEventRecord", {"stream": stream, **event}),
            "wait": ("cudaStreamWaitEvent", {"stream": stream, **event}),
            "sync-event": ("cudaEventSynchronize", event),
            "sync-stream": ("cudaStreamSynchronize", {"stream": stream}),
        }.get(action.does, ("", {}))
        if api and (action.does != "wait" or action.number in last):
            script.call(api, begin, end, thread=thread, noted=Noted(**noted))
    starts = [*begins.values(), max(times)]
    for number, (begin, end) in enumerate(pairwise(starts)):
        script.range(f"step {number}", begin, end)
    return nsight.write(script.build(), path)


@pytest.mark.parametrize("seed", [3, 7, 9, 11, 17, 23])
def test_the_graph_of_a_recording_is_that_of_the_program(seed, tmp_path):
    program = generate(seed)
    path = recorded(program, tmp_path / "rank0.sqlite")
    found = scores.shown(recordings.load(path), program, 0, "nsys")
    graph = build(program, scores.FIRST + 6)
    counts = scores.edges(found, graph, graph.ancestors())
    event = counts["event"]
    assert event["known"] == event["recalled"]
    assert event["found"] == event["right"] == event["recorded"]
    assert counts["host"]["found"] == counts["host"]["right"]

    changes = interventions(program)
    plain = build(program, 12)
    steps = [plain.step(), *(plain.step(plain.longer(change)) for change in changes)]
    rows = [
        {
            "changes": [None, *map(vars, changes)],
            "blocks": [[[step / MS] * 3] * 2 for step in steps],
        }
    ]
    run = recordings.Run(program, rows, {"nsys": [path]})
    moved = scores.interventions(run, [path], [found])
    assert len(moved) == len(changes)
    assert [page.error(each) for each in moved] == pytest.approx([0] * len(moved), abs=0.01)
