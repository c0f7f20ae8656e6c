"""Crowded runs, whose rows overlap, touch and are missing, against a walk instant by instant.

It applies the definitions to every nanosecond; only the phase of a kernel is taken from the product
(`test_phases` is about that).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from statistics import median

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import traceprobe
from tests.builders import generated, memory, nsight
from tests.builders.generated import runs
from tests.builders.scenario import PID
from traceprobe.model.accounting import BATCH_BYTES, LONE_WAIT, UNRECORDED
from traceprobe.model.codes import Kind
from traceprobe.model.taxonomy import BUSY, Phase
from traceprobe.timeline import phases
from traceprobe.timeline.process_timeline import process_timeline
from traceprobe.timeline.step_markers import ENOUGH

KIND_CLASS = {
    Kind.COMM: "communication",
    Kind.H2D: "h2d",
    Kind.D2H: "d2h",
    Kind.D2D: "memory",
    Kind.MEMSET: "memory",
}
LOADING = ("[DALI] pipeline", "data_loading")
OPENS = (Kind.KERNEL, Kind.COMM, Kind.MEMSET)


def examples(number):
    return settings(max_examples=number, deadline=None)


def analyze(scenario):
    return traceprobe.analyze(memory.trace(scenario, profiled=["operators"])).ranks


NAMED = ("top_kernels", "tiny_kernels")
"""Fields of a summary that hold names."""


def nonzero(parts):
    return {name: ns for name, ns in (parts or {}).items() if ns}


def numbers(ranks):
    """Everything of the records that is a number, without names and labels of places."""
    return [
        (
            [{f: getattr(i, f) for f in i.__struct_fields__ if f != "label"} for i in r.iterations],
            {f: getattr(r.summary, f) for f in r.summary.__struct_fields__ if f not in NAMED},
            tiny and (tiny.count, tiny.total_ns, tiny.gap_ns),
            [(g.start_ns, g.end_ns, g.iteration, g.cause) for g in r.gaps],
        )
        for r in ranks
        for tiny in [r.summary.tiny_kernels or None]
    ]


class Walk:
    """A scenario, instant by instant."""

    def __init__(self, scenario, device):
        self.scenario = scenario
        prepared = process_timeline(
            memory.trace(scenario), PID, None, phases.compile_phase_names({})
        )
        self.ops = [op for op in prepared.ops.to_dicts() if op["device"] == device]
        self.steps = [r for r in scenario.ranges if r.name.startswith("step ")]
        loading = [r.thread for r in scenario.ranges if r.name in LOADING]
        self.loaders = set(loading) - {PID}
        self.account = min(op["t0"] for op in self.ops)

    def windows(self, used):
        """GPU window of each step that has one; of the last one if few others are used.

        Args:
            used: the steps that are.
        """
        starts = [s.t0 for s in self.steps]
        begin = {}
        for op in self.ops:
            if op["linked"] and op["kind"] in OPENS and op["launch_t0"] < self.steps[-1].t1:
                k = max((i for i, t in enumerate(starts) if t <= op["launch_t0"]), default=None)
                if k is not None:
                    begin[k] = min(begin.get(k, op["t0"]), op["t0"])
        kept, reach = [], None
        for k in sorted(begin):
            if reach is None or begin[k] > reach:
                kept.append(k)
                reach = begin[k]
        found = {k: (begin[k], begin[n]) for k, n in pairwise(kept)}
        if kept and len(used & found.keys()) < ENOUGH and kept[-1] in used:
            k = kept[-1]
            stop = [*starts[1:], self.steps[-1].t1][k]
            inside = [o for o in self.ops if o["linked"] and starts[k] <= o["launch_t0"] < stop]
            found[k] = (begin[k], max(stop, *(o["t1"] for o in inside)))
            if min(len(found), 2) <= len(used & found.keys()) <= ENOUGH:
                found = self.with_beginnings(found)
        self.account = min((low for low, _ in found.values()), default=self.account)
        return found

    def with_beginnings(self, found):
        """The same, each with what is before its first kernel, where that is much."""
        starts, order = [s.t0 for s in self.steps], list(found)
        before = {
            k: max([starts[0], *(o["t1"] for o in self.ops if self.earlier(o, k, found[k][0]))])
            for k in order
        }
        own = [max(found[k][0] - max(before[k], starts[k]), 0) for k in order]
        if len(order) == 1:
            return self.with_its_wait(found, before)
        lengths = [found[k][1] - found[k][0] for k in order[:-1]]
        if median(own[1:]) <= UNRECORDED * median(lengths):
            return found
        own[0] = min(own[0], max(own[1:]))
        waits = [
            sum(self.host_waits(t) for t in range(found[k][0] - length, found[k][0]))
            for k, length in zip(order, own, strict=True)
        ]
        if 2 * waits[0] * sum(own[1:]) < own[0] * sum(waits[1:]):
            return found
        begins = [found[order[0]][0] - own[0]]
        begins += [min(before[k], found[k][0]) for k in order[1:]]
        if any(nxt <= begin for begin, nxt in pairwise(begins)):
            return found
        ends = [*begins[1:], found[order[-1]][1]]
        return {k: window for k, *window in zip(order, begins, ends, strict=True)}

    def with_its_wait(self, found, before):
        """The only window, with its wait for data or the copy of its batch, where that is long."""
        ((k, (begin, end)),) = found.items()
        span = 2 * min(o["t0"] for o in self.ops) - max(o["t1"] for o in self.ops)
        least = max(before[k], self.steps[k].t0, span)
        until = [o for o in self.ops if self.earlier(o, k + 1, begin)]
        own = [o for o in until if not self.earlier(o, k, begin)]
        batch = [o["t0"] for o in own if o["kind"] == Kind.H2D and o["bytes"] >= BATCH_BYTES]
        first = next((t for t in range(least, begin) if self.waits_for_data(t)), None)
        while first is not None and self.waits_for_data(first - 1):
            first -= 1
        first = min(batch, default=begin) if first is None else first
        long = begin - first < LONE_WAIT * (end - begin)
        first = max(first, least)
        if not long or begin - first <= UNRECORDED * (end - begin):
            return found
        return {k: (first, end)}

    def earlier(self, op, step, begin):
        """Whether an op that begins before is of no step or of one before."""
        launched = [i for i, s in enumerate(self.steps) if s.t0 <= op["launch_t0"]]
        known = op["linked"] and op["launch_t0"] < self.steps[-1].t1
        return op["t0"] < begin and (not known or max(launched, default=-1) < step)

    def host_waits(self, t):
        """Whether the step thread waits for data, as a range or the room between steps tells."""
        outside = not any(s.t0 <= t < s.t1 for s in self.steps)
        known = self.steps[0].t0 <= t < max(s.t1 for s in self.steps)
        return self.waits_for_data(t) or (outside and known and not self.calls(PID, t))

    def classes(self, t):
        """Classes of the ops that run at an instant."""
        for op in self.ops:
            if op["t0"] <= t < op["t1"]:
                if op["kind"] == Kind.KERNEL:
                    yield Phase(op["phase"]).name.lower()
                else:
                    yield KIND_CLASS[op["kind"]]

    def part(self, t):
        """The class that an instant counts in."""
        running = set(self.classes(t))
        return next((name for name in BUSY if name in running), None) or self.idle(t)

    def idle(self, t):
        """The cause of idleness at an instant after an op."""
        begin = max([self.account, *(op["t1"] for op in self.ops if op["t1"] <= t)])
        never = {"linked": True, "launch_t0": max(t, begin) + 1, "thread": PID}
        ends = next((op for op in self.ops if op["t0"] > t), never)
        if not ends["linked"]:
            return "idle_unexplained"
        if ends["launch_t0"] <= begin or t >= ends["launch_t0"]:
            return "idle_latency"
        if any(row.t0 <= t < row.t1 for row in self.scenario.overheads):
            return "idle_profiler"
        thread = ends["thread"]
        stands_in = thread in {PID, *self.loaders} or not self.busy(thread, t)
        if stands_in and self.host_waits(t):
            return "idle_data_wait"
        own = [] if thread in self.loaders else self.calls(thread, t)
        for call in own + (self.calls(PID, t) if stands_in else []):
            if call.api.endswith("Synchronize"):
                return "idle_sync"
        return "idle_host"

    def calls(self, thread, t):
        rows = self.scenario.host_calls()
        return [c for c in rows if c.thread == thread and c.t0 <= t < c.t1]

    def waits_for_data(self, t):
        rows = [r for r in self.scenario.ranges if r.thread == PID and r.t0 <= t < r.t1]
        return any(r.name == "data_loading" for r in rows)

    def busy(self, thread, t):
        rows = [r for r in self.scenario.ranges if r.thread == thread and r.t0 <= t < r.t1]
        return bool(rows or self.calls(thread, t))


def origin(scenario):
    """Time zero: the first op, call or range, but no longer before the first two than they last."""
    rows = [*scenario.ops, *scenario.host_calls()]
    first, last = min(row.t0 for row in rows), max(row.t1 for row in rows)
    since = 2 * first - last
    return min([first, *(max(r.t0, since) for r in scenario.ranges if r.t1 >= since)])


@pytest.mark.slow
@examples(25)
@given(runs())
def test_every_instant_counts_once_in_the_class_that_the_definitions_give_it(scenario):
    zero = origin(scenario)
    ranks = analyze(scenario)
    assume(all(rank.step_marker.per_iteration == 1 for rank in ranks if rank.step_marker))
    for rank in ranks:
        walk = Walk(scenario, rank.device.index)
        seen = {i.index: i for i in rank.iterations if i.partition_ns}
        expected = walk.windows({i.index for i in rank.iterations if i.used})
        windows = {k: (i.start_ns + zero, i.end_ns + zero) for k, i in seen.items()}
        assert windows == {k: tuple(window) for k, window in expected.items()}
        for k, (low, high) in expected.items():
            parts, busy = {}, {}
            for t in range(low, high):
                parts[walk.part(t)] = parts.get(walk.part(t), 0) + 1
                for name in set(walk.classes(t)):
                    busy[name] = busy.get(name, 0) + 1
            assert nonzero(seen[k].partition_ns) == parts
            assert nonzero(seen[k].busy_ns) == busy


CLOCKS = [-1_000_000, -1_150, -1_001, 10**15, nsight.UTC_NS]


@examples(12)
@given(runs(), st.sampled_from(CLOCKS))
def test_the_clock_of_a_crowded_run_does_not_matter(scenario, clock):
    assert numbers(analyze(scenario.shifted(clock))) == numbers(analyze(scenario))


@examples(8)
@given(st.data())
def test_the_order_of_the_rows_of_a_crowded_run_does_not_matter(data):
    scenario = data.draw(runs(ties=False))
    other = data.draw(generated.shuffled(scenario))
    assert numbers(analyze(other)) == numbers(analyze(scenario))


@examples(8)
@given(runs(ties=False))
def test_names_and_numbers_in_a_crowded_run_do_not_matter(scenario):
    def renamed(number, op):
        name = f"vectorized_elementwise_kernel<{number % 3}>" if op.kind == "kernel" else op.name
        return replace(op, name=name, stream=100 - op.stream, device=3 - op.device)

    other = replace(scenario, ops=tuple(renamed(i, op) for i, op in enumerate(scenario.ops)))
    first = {r.device.index: r for r in analyze(scenario)}
    second = {3 - r.device.index: r for r in analyze(other)}
    assert numbers([second[d] for d in first]) == numbers(first.values())
