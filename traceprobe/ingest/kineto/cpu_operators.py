"""Which operators are the work of a CPU, and what those are that the backward pass runs.

An operator of the dispatcher (`aten::…`, a compiled graph) is work as a whole: what it calls
belongs to it. So is a node of autograd, which the engine runs in C++ (`evaluate_function` in
`torch/csrc/autograd/engine.cpp`) and which does little but call its operators. Where the program's
Python runs in a node it is no work by itself: the operators in it are, and what they leave is the
host's. Python runs

- in a `torch.autograd.Function`. Its `apply` is recorded under the class's name, its node under
  that and "Backward" (`torch/csrc/autograd/python_function.cpp`), where generated nodes end in a
  number. `CompiledFunction` is a compiled graph of AOTAutograd.
- where the forward pass is run again: by `torch.utils.checkpoint`, which does so as soon as a node
  asks for what it has not kept. Nodes run without gradients, so an operator in one that has a
  sequence number is such, unless the pass itself is recorded (`create_graph=True`): then the node's
  own operators, which come last, have one too.
- in hooks. They are known by annotations, as of an optimizer that updates in the backward pass.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from traceprobe.ingest.joins import Table, keep_rows, per_name, take_rows
from traceprobe.model.codes import NOTES, UNKNOWN, Bools, Int64s, Ints, Role

EVALUATE = "autograd::engine::evaluate_function: "
_OF_A_CLASS = re.compile(r"^(?!CompiledFunction)[^:]+Backward$")
_COMPILED = "CompiledFunctionBackward"
_UPDATE = re.compile(r"^Optimizer\.")


class _Form(IntEnum):
    """What a row is to autograd."""

    OPERATOR = 0
    FUNCTION = 1
    """`Function.apply`."""
    NODE = 2
    ENGINE = 3
    """The engine's own row, around that of the node."""


class Work(NamedTuple):
    """Rows that are work, none inside of another.

    Args:
        rows: of the operators.
        role: `Role` of what Python ran in the backward pass; UNKNOWN of others.
        around: rows of autograd in which Python runs, which are no work by themselves.
    """

    rows: Table
    role: Int64s
    around: Table


class _Thread(NamedTuple):
    """Operators of a thread, by start; those around others first. Columns of equal length."""

    t0: Ints
    t1: Ints
    form: Ints
    of_class: Bools
    recorded: Bools


def cpu_operators(operators: Table, ranges: Mapping[str, Any], names: Sequence[str]) -> Work:
    """The operators that are the work of each thread.

    Args:
        operators: rows with `sequence` and `forward_thread`.
        ranges: columns of `HOST_RANGES`; those of the program tell where its Python runs.
    """
    order = np.lexsort((-operators["t1"], operators["t0"], operators["thread"]))
    rows = {column: values[order] for column, values in operators.items()}
    form, of_class = _forms(rows["name"], names)
    plain = np.isin(form, (_Form.OPERATOR, _Form.FUNCTION))
    recorded = plain & (rows["sequence"] != UNKNOWN) & (rows["forward_thread"] <= 0)
    noted = ~np.isin(ranges["source"], NOTES)
    update = per_name(ranges["name"], names, lambda n: bool(_UPDATE.search(n))) > 0
    work, opened = (np.zeros(len(order), dtype=bool) for _ in range(2))
    role = np.full(len(order), UNKNOWN, dtype=np.int64)
    for thread in np.unique(rows["thread"]):
        mine = np.flatnonzero(rows["thread"] == thread)
        on = noted & (ranges["thread"] == thread)
        marks = np.sort(ranges["t0"][on])
        updates = (ranges["t0"][on & update], ranges["t1"][on & update])
        part = _Thread(
            rows["t0"][mine], rows["t1"][mine], form[mine], of_class[mine], recorded[mine]
        )
        work[mine], opened[mine], role[mine] = _work_of_thread(part, marks, updates)
    return Work(keep_rows(rows, work), role[work], keep_rows(rows, opened))


def outermost(t0: Ints, t1: Ints) -> Bools:
    """Which rows begin inside of no row before them, by start."""
    reach = np.maximum.accumulate(t1)
    return np.concatenate([np.ones(min(len(t0), 1), dtype=bool), t0[1:] >= reach[:-1]])


def _forms(name: Ints, names: Sequence[str]) -> tuple[Ints, Bools]:
    """`_Form` of rows, and which are of a class that the program derives from `Function`."""
    present = {names[i] for i in np.unique(name).tolist()}
    nodes = {n.removeprefix(EVALUATE) for n in present if n.startswith(EVALUATE)}
    functions = {n.removesuffix("Backward") for n in nodes if _OF_A_CLASS.search(n)} & present
    classes = functions | {f"{n}Backward" for n in functions}

    def form(text: str) -> _Form:
        if text.startswith(EVALUATE):
            return _Form.ENGINE
        if text in functions:
            return _Form.FUNCTION
        return _Form.NODE if text in nodes and text != _COMPILED else _Form.OPERATOR

    of_class = per_name(name, names, lambda n: n.removeprefix(EVALUATE) in classes) > 0
    return per_name(name, names, form), of_class


def _work_of_thread(
    rows: _Thread, marks: Int64s, updates: tuple[Int64s, Int64s]
) -> tuple[Bools, Bools, Int64s]:
    """Which rows of a thread are work, which are around it, and roles, as in `Work`."""
    held = np.flatnonzero(rows.form == _Form.OPERATOR)
    held = held[outermost(rows.t0[held], rows.t1[held])]
    holders = np.flatnonzero(rows.form != _Form.OPERATOR)
    role = np.full(len(rows.t0), UNKNOWN, dtype=np.int64)
    runs_python = np.zeros(len(rows.t0), dtype=bool)
    if len(holders):
        tree = _Tree.of(rows, holders)
        around = tree.innermost(rows.t0[held])
        again, again_held = _run_again(rows, tree, held, around)
        unit = take_rows(tree.unit, around)
        in_node = (unit != UNKNOWN) & (take_rows(tree.form, unit) >= _Form.NODE)
        updating = _updating(rows.t0[held], take_rows(tree.t0, unit), updates)
        role[held[in_node]] = int(Role.BACKWARD)
        role[held[in_node & updating]] = int(Role.UNKNOWN)
        role[held[again_held]] = role[holders[again]] = int(Role.RECOMPUTE)
        # An annotation inside of an operator, as of a compiled graph, is that operator's.
        last = np.searchsorted(rows.t0[held], marks, "right") - 1
        free = (last < 0) | (take_rows(rows.t1[held], last) <= marks)
        evidence = np.concatenate([around[again_held], tree.innermost(marks[free])])
        python = rows.of_class[holders] | tree.around(evidence)
        python = tree.around(np.flatnonzero(python))
        runs_python[holders] = python & tree.around(around)
    chosen = np.flatnonzero(~runs_python)
    work = np.zeros(len(rows.t0), dtype=bool)
    work[chosen[outermost(rows.t0[chosen], rows.t1[chosen])]] = True
    return work, runs_python, role


class _Tree(NamedTuple):
    """Rows of a thread that are of autograd, by start, and which is inside of which.

    Args:
        parent: place of the innermost other one around each, or UNKNOWN.
        unit: the engine's row for a node in it, else the row itself.
        edges: times from which on the innermost row is that at the place beside, or none.
    """

    t0: Ints
    form: Ints
    parent: Int64s
    unit: Int64s
    edges: tuple[Int64s, Int64s]

    @classmethod
    def of(cls, rows: _Thread, holders: Int64s) -> _Tree:
        t0, t1, form = rows.t0[holders], rows.t1[holders], rows.form[holders]
        parents: list[int] = []
        edges: list[tuple[int, int]] = []
        open_ones: list[tuple[int, int]] = [(UNKNOWN, int(t1.max()) + 1)]
        for place, (start, end) in enumerate(zip(t0.tolist(), t1.tolist(), strict=True)):
            while open_ones[-1][1] <= start:
                closed = open_ones.pop()
                edges.append((closed[1], open_ones[-1][0]))
            parents.append(open_ones[-1][0])
            edges.append((start, place))
            open_ones.append((place, end))
        while len(open_ones) > 1:
            closed = open_ones.pop()
            edges.append((closed[1], open_ones[-1][0]))
        times, places = np.array(edges, dtype=np.int64).T
        parent = np.array(parents, dtype=np.int64)
        inner = (form == _Form.NODE) & (take_rows(form, parent) == _Form.ENGINE)
        unit = np.where(inner, parent, np.arange(len(holders)))
        # A damaged row may end after the one around it.
        return cls(t0, form, parent, unit, (np.maximum.accumulate(times), places))

    def innermost(self, times: Ints) -> Int64s:
        """Place of the innermost row around each time, or UNKNOWN."""
        times_of_edges, places = self.edges
        at = np.searchsorted(times_of_edges, times, "right") - 1
        return np.where(at < 0, UNKNOWN, places[at])

    def around(self, places: Int64s) -> Bools:
        """Which rows are at one of the places, or around one."""
        found = np.zeros(len(self.t0), dtype=bool)
        while len(places := np.unique(places[places != UNKNOWN])):
            places = places[~found[places]]
            found[places] = True
            places = self.parent[places]
        return found


def _run_again(rows: _Thread, tree: _Tree, held: Int64s, around: Int64s) -> tuple[Bools, Bools]:
    """Which rows of the tree, and which operators in it, run the forward pass again.

    Args:
        held: operators, as rows of the thread.
        around: the innermost row of the tree around each, or UNKNOWN.
    """
    holders = np.flatnonzero(rows.form != _Form.OPERATOR)
    own = tree.unit == np.arange(len(holders))  # those that are no part of the engine's row
    child = np.concatenate([held, holders[own]])
    unit = take_rows(tree.unit, np.concatenate([around, tree.parent[own]]))
    inside = np.flatnonzero(unit != UNKNOWN)
    inside = inside[np.argsort(child[inside], kind="stable")]
    graph = np.zeros(len(holders), dtype=bool)
    graph[unit[inside]] = rows.recorded[child[inside]]  # of several assignments the last holds
    backward = (tree.form >= _Form.NODE) & ~graph
    directly = rows.recorded[child] & (unit != UNKNOWN) & backward[unit]
    again = np.zeros(len(holders), dtype=bool)
    again[own] = directly[len(held) :]
    function = tree.form == _Form.FUNCTION
    for place in np.flatnonzero(function).tolist():  # those around others come first
        outer = tree.parent[place]
        if outer != UNKNOWN and function[outer]:
            again[place] |= again[outer]
    return again, directly[: len(held)] | ((around != UNKNOWN) & (function & again)[around])


def _updating(times: Ints, since: Ints, updates: tuple[Int64s, Int64s]) -> Bools:
    """Which times lie in an update that has begun in the node around it, at `since`."""
    order = np.argsort(updates[0], kind="stable")
    t0, t1 = updates[0][order], updates[1][order]
    last = np.searchsorted(t0, times, "right") - 1
    return (last >= 0) & (take_rows(t0, last) >= since) & (take_rows(t1, last) > times)
