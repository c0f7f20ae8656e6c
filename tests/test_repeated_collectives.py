"""Collectives that every backward pass before an update makes again: found, and told."""

from __future__ import annotations

import polars as pl
import pytest
from msgspec.structs import replace

from tests import records
from tests.evidence import evidence, finding_of
from tests.records import communication, step
from traceprobe import findings
from traceprobe.model.codes import UNKNOWN, Kind, Operation
from traceprobe.model.taxonomy import Phase
from traceprobe.records.repeated_collectives import RepeatedCollectives as Record
from traceprobe.timeline.repeated_collectives import (
    Large,
    repeated_collectives,
)

KERNELS = {
    "F": Phase.FORWARD,
    "B": Phase.BACKWARD,
    "R": Phase.RECOMPUTE,
    "O": Phase.OPTIMIZER,
}
MESSAGES = {
    "a": (Operation.ALL_REDUCE, 25_000_000),
    "b": (Operation.ALL_REDUCE, 8_000_000),
    "loss": (Operation.ALL_REDUCE, 4),
    "scatter": (Operation.REDUCE_SCATTER, 4_000_000),
    "gather": (Operation.ALL_GATHER, 4_000_000),
    "buffers": (Operation.BROADCAST, 9_000_000),
}
NS = 1_000
"""Of each op, kernel or message."""


LARGE = Large(bytes=1e6, part=0.02, unlike=1.5)


def amounts(found):
    """How many passes, and what is reduced and gathered again."""
    return found.passes, found.reduced_ns, found.gathered_ns


def launched(*steps):
    """Ops in launch order, a string of words for each iteration."""
    words = [(k, word) for k, step_ in enumerate(steps) for word in step_.split()]
    rows = []
    for at, (iteration, word) in enumerate(words):
        operation, size = MESSAGES.get(word, (UNKNOWN, UNKNOWN))
        rows.append(
            {
                "iteration": iteration,
                "kind": int(Kind.KERNEL if word in KERNELS else Kind.COMM),
                "phase": int(KERNELS.get(word, UNKNOWN)),
                "operation": int(operation),
                "bytes": size,
                "thread": 1,
                "launch_t0": at * 10,
                "t0": at * NS,
                "t1": (at + 1) * NS,
            }
        )
    return pl.DataFrame(rows)


def repeated(*steps):
    return repeated_collectives(launched(*steps), LARGE)


def test_gradients_that_each_pass_reduces_are_reduced_again():
    accumulating = "F F B a B b F B a B b F B a B b O O"
    assert amounts(repeated(accumulating, accumulating)) == (3, 2 * 4 * NS, 0)


def test_what_is_needed_after_each_pass_or_is_no_gradient_does_not_count():
    accumulating = "F B a loss buffers F B loss a buffers O"
    assert amounts(repeated(accumulating)) == (2, NS, 0)


@pytest.mark.parametrize(
    "iterations",
    [
        ["F B a B b O"] * 3,
        ["F B F B a B b O"] * 3,
        ["F B a B b O F B a O"],
        ["F B a O F B a O"],
        ["F B a F B b O"],
        ["F a B a F a B a O"],
        ["F B a F B a O", "F B a F B a F B a O"],
        ["F B gather F B gather O"],
        ["F B F B O a"],
        ["a b a b"],
        ["F B F B O"],
    ],
    ids=[
        "one pass",
        "no_sync",
        "two models",
        "updates between",
        "other sizes",
        "a model that is split",
        "as many passes as never before",
        "features of a batch",
        "averaged parameters",
        "no kernels",
        "one rank",
    ],
)
def test_nothing_is_said_of_other_communication(iterations):
    assert repeated(*iterations) is None


def test_shards_are_gathered_once_for_all_passes():
    one = "gather F gather F gather R B gather R B"
    found = repeated(f"{one} {one} scatter O")
    assert amounts(found) == (2, 0, 6 * NS)


def test_shards_that_are_gathered_and_reduced_by_each_pass():
    one = "gather F B scatter"
    assert amounts(repeated(f"{one} {one} O")) == (2, NS, NS)


def test_all_communication_is_what_repeats_are_part_of():
    """Also what is too small to count, or of another kind."""
    found = repeated("F loss B a F loss B a buffers O")
    assert (found.reduced_ns, found.all_ns) == (NS, 5 * NS)


def test_shards_of_other_sizes_are_not_taken_for_the_same():
    assert repeated("gather F B F B scatter O") is None


def without_sizes(*steps, **ns):
    """As `launched`, of an export that says how long messages take and not how large they are."""
    words = [word for step_ in steps for word in step_.split()]
    long = pl.Series([ns.get(word, NS) for word in words])
    ops = launched(*steps).with_columns(
        bytes=pl.lit(UNKNOWN), t0=long.cum_sum() - long, t1=long.cum_sum()
    )
    return repeated_collectives(ops, LARGE)


def test_without_sizes_messages_that_last_as_long_are_the_same():
    accumulating = "F B a B b F B a B b F B a B b O O"
    assert amounts(without_sizes(accumulating, accumulating)) == (3, 2 * 4 * NS, 0)
    one = "gather F gather F gather R B gather R B"
    assert amounts(without_sizes(f"{one} {one} scatter O")) == (2, 0, 6 * NS)


def test_without_sizes_messages_of_other_durations_or_operations_are_others():
    assert amounts(without_sizes("F B a F B b O")) == (2, NS, 0)
    assert without_sizes("F B a F B b O", b=2 * NS) is None
    assert without_sizes("F B a F B scatter O") is None
    assert without_sizes("F B a F B a b O") is None


def test_without_sizes_what_takes_hardly_any_time_is_a_metric():
    assert amounts(without_sizes("F loss B a F loss B a O", loss=NS // 100)) == (2, NS, 0)
    assert without_sizes("F loss B a F loss B a O", loss=NS // 20) is None


def test_one_late_rank_makes_no_other_messages():
    ops = launched(*["F B a F B a O"] * 3).with_columns(bytes=pl.lit(UNKNOWN))
    late = ops.with_columns(t1=pl.col("t1") + pl.Series([0, 0, 5 * NS, *[0] * (len(ops) - 3)]))
    found = repeated_collectives(late, LARGE)
    assert found is not None
    assert found.passes == 2


def rank(reduced, gathered, passes=4, share=100):
    """A rank whose collectives last 100 ms a step and repeat so many ms of these."""
    ns = 1_000_000 * records.STEPS
    each = Record(
        passes=passes, reduced_ns=reduced * ns, gathered_ns=gathered * ns, all_ns=100 * ns
    )
    found = records.rank(
        step(communication=share, optimizer=10), communication=communication(share)
    )
    return replace(found, summary=replace(found.summary, repeated_collectives=each))


@pytest.mark.parametrize(
    ("reduced", "gathered", "says", "not_says"),
    [(75, 0, "no_sync()", "reshard"), (0, 80, "reshard_after_forward=False", "no_sync()")],
)
def test_the_finding_says_what_to_do_once(reduced, gathered, says, not_says):
    finding = finding_of("repeated-collectives", rank(reduced, gathered))
    assert finding.status == "warn"
    assert says in finding.advice
    assert not_says not in finding.advice
    assert (
        finding.evidence[0] == "4 backward passes before an update, each with the same collectives"
    )
    assert finding.saving_ms_per_step == pytest.approx(
        (reduced + gathered)
        / 100
        * finding_of("communication-exposed", rank(reduced, gathered)).saving_ms_per_step
    )


def test_a_rank_that_repeats_nothing_leaves_nothing_to_say():
    silent = records.rank(step(communication=100), communication=communication(100))
    assert finding_of("repeated-collectives", silent).status == "not-applicable"
    assert finding_of("repeated-collectives", rank(75, 0), silent).status == "not-applicable"


def test_hidden_communication_asks_for_nothing():
    found = rank(75, 0, share=1)
    assert finding_of("repeated-collectives", found).status == "pass"


def test_what_is_not_sent_again_is_not_launched_again():
    changes = findings.RULES["repeated-collectives"].examine(evidence(rank(75, 0)))[1]
    assert changes.speedup == changes.fewer == {"communication": 4.0}
