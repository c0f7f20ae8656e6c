"""Micro-batches of an update: passes that launch equally much."""

from __future__ import annotations

import polars as pl
import pytest

from tests import records
from tests.evidence import finding_of
from traceprobe.model.codes import Kind
from traceprobe.model.taxonomy import Phase
from traceprobe.timeline.micro_batches import micro_batches

PHASES = {"F": Phase.FORWARD, "B": Phase.BACKWARD, "O": Phase.OPTIMIZER}


def found(*iterations):
    """Of kernels in launch order, a string of letters for each iteration."""
    rows = [
        {"iteration": k, "phase": int(PHASES[letter])}
        for k, letters in enumerate(iterations)
        for letter in letters
    ]
    ops = pl.DataFrame(rows).with_columns(
        kind=pl.lit(int(Kind.KERNEL), pl.Int8),
        launch_t0=pl.int_range(pl.len()),
        t0=pl.int_range(pl.len()),
    )
    return micro_batches(ops)


LARGE = "F" * 60 + "B" * 40
SMALLER = "F" * 58 + "B" * 40


@pytest.mark.parametrize(
    ("iterations", "expected"),
    [
        (["FFBBFFBBFFBBOO"] * 2, 3),
        ([LARGE + SMALLER + "O"], 2),
        (["FFBFFBBBO"], 2),
        (["FFBBOO"] * 3, None),
        (["FFBBFFFFBBBBOO"] * 2, None),
        (["FFBBFFBBO", "FFBBFFBBFFBBO"], None),
        (["OO"], None),
    ],
    ids=[
        "equal",
        "nearly equal",
        "only the first adds to nothing",
        "one",
        "two networks",
        "other numbers",
        "no passes",
    ],
)
def test_equal_passes_are_counted(iterations, expected):
    assert found(*iterations) == expected


@pytest.mark.parametrize(("count", "says"), [(8, "fewer than 8"), (None, "Launch less")])
def test_the_host_is_relieved_by_larger_ones_first(count, says):
    parts = {"forward": 200, "backward": 200, "idle_host": 600}
    counted = {} if count is None else {"micro_batches": count}
    rank = records.rank(parts, collectives=[], **counted)
    advice = finding_of("host-overhead", rank).advice
    assert advice.startswith("Make micro-batches larger") == (count is not None)
    assert says in advice
