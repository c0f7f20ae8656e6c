"""What causes cost: medians of rounds, and intervals that are as honest as they say."""

from __future__ import annotations

import json
import random
from math import log

import pytest

from benchmarks.slowbench.cases import cases
from benchmarks.slowbench.costs import (
    CONFIDENCE,
    costs,
    difference,
    is_felt,
    outside,
    waits_for_host,
)
from benchmarks.slowbench.rows import UNTIMED, row_of, with_times


def blocks(*ms):
    return [{"ms": value, "steps": 6} for value in ms]


def test_five_rounds_give_their_least_and_most():
    found = difference(blocks(12, 13, 12, 14, 12), blocks(10, 10, 10, 10, 11))
    assert found == {"ms": 2, "low": 1, "high": 4}


def test_more_rounds_leave_out_what_is_far_off():
    slow = blocks(*(10 + n for n in range(10)), 1000)
    assert difference(slow, blocks(*[10] * 11)) == {"ms": 5, "low": 2, "high": 8}


@pytest.mark.parametrize("rounds", [1, 2, 3, 4, 5, 9, 11, 15, 40])
def test_an_interval_holds_the_median_as_often_as_it_says(rounds):
    out = outside(rounds)
    assert 0 <= 2 * out < rounds
    source = random.Random(rounds)
    held = 0
    for _ in range(2000):
        values = sorted(source.expovariate(1) for _ in range(rounds))
        held += values[out] <= log(2) <= values[-1 - out]
    if rounds < 5:
        assert out == 0  # as wide as can be, and less sure
    else:
        assert held / 2000 > CONFIDENCE - 0.02


def test_what_is_within_the_noise_is_not_felt():
    assert is_felt(0.51, 10)
    assert not is_felt(0.49, 10)
    assert not is_felt(0.29, 1)


@pytest.mark.parametrize(
    ("late", "hidden"),
    [((10, 10, 10.4, 10.1, 10), True), ((11, 11, 11, 11, 10), False), ((10,) * 5, True)],
)
def test_a_control_hides_a_host_that_is_late(late, hidden):
    timed = {
        "slow": blocks(10, 10, 10, 10, 10),
        "late": [{**block, "late_ms": 1.06} for block in blocks(*late)],
    }
    why = waits_for_host(timed)
    assert (why is None) is hidden
    assert hidden or why == "no control: 1.06 ms of its host make a step 1.00 ms longer"


def test_a_control_that_is_none_has_failed():
    case = next(c for c in cases("open", 1, 20, cpu=False, nsys=False) if not c.causes)
    timed = {"slow": blocks(10), "late": [{"ms": 11, "steps": 6, "late_ms": 1}]}
    row = row_of(case, {"failed": None, "blocks": timed}, {})
    assert row["failed"].startswith("no control")
    assert row_of(case, {"failed": None, "blocks": {"slow": blocks(10)}}, {})["failed"] is None


def test_a_cause_of_two_costs_what_goes_away_without_it():
    drawn = cases("open", 1, 300, cpu=True, nsys=False)
    case = next(case for case in drawn if len(case.causes) == 2)
    first, second = (placed.cause for placed in case.causes)
    found = costs(
        case,
        {
            "healthy": blocks(10, 10, 10, 10, 10),
            "slow": blocks(16, 16, 16, 16, 16),
            f"without {first}": blocks(12, 12, 12, 12, 12),
            f"without {second}": blocks(15.9, 15.8, 15.9, 15.9, 16.1),
        },
    )
    assert [cause["ms"] for cause in found["causes"]] == [4, 0.1]
    assert found["each_felt"] == [True, False]
    assert found["felt"]


def test_a_case_of_nsight_systems_has_the_times_of_its_twin():
    drawn = cases("open", 1, 20, cpu=False, nsys=True)
    case = next(case for case in drawn if case.backend == "nsys" and len(case.causes) == 1)
    row = row_of(case, {"failed": None, "blocks": {}}, {})
    assert row["slow_ms"] is None
    twin = costs(case, {"healthy": blocks(*[10] * 5), "slow": blocks(*[15] * 5)})
    timed = with_times({**row, "failed": UNTIMED}, twin)
    assert (timed["causes"][0]["ms"], timed["healthy_ms"], timed["felt"]) == (5, 10, True)


def test_a_case_that_waits_for_its_twin_gets_its_times_in_a_later_call(tmp_path):
    pytest.importorskip("torch")
    from benchmarks.slowbench.sessions import Plan, Session

    drawn = cases("open", 1, 20, cpu=False, nsys=True)
    case = next(case for case in drawn if case.backend == "nsys" and len(case.causes) == 1)
    waiting = row_of(case, {"failed": UNTIMED, "blocks": {}}, {})
    times = {"healthy": blocks(*[10] * 5), "slow": blocks(*[15] * 5)}
    twin = next(each for each in drawn if each.id == case.twin)
    timed = row_of(twin, {"failed": None, "blocks": times}, {})
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(waiting) + "\n")
    plan = Plan(
        tmp_path,
        "open",
        1,
        20,
        0,
        1,
        1,
        0,
        0,
        0,
        5,
        1,
        nsys=False,
        healthy_every=6,
        only=(case.id,),
    )
    Session(plan, tmp_path).run()
    assert len(rows.read_text().splitlines()) == 1
    rows.write_text(json.dumps(waiting) + "\n" + json.dumps(timed) + "\n")
    Session(plan, tmp_path).run()
    last = json.loads(rows.read_text().splitlines()[-1])
    assert (last["id"], last["failed"], last["slow_ms"]) == (case.id, None, 15)
