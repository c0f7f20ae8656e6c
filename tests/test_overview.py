"""Many ranks at a glance: who is alike, who is worst, which steps belong together."""

from __future__ import annotations

import json
from itertools import combinations
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import traceprobe
from tests import records
from tests.builders import memory
from tests.builders.scenario import Process, Script
from tests.matched_ranks import EARLY, scenario_of_rank
from traceprobe.anonymise.redact import redact
from traceprobe.pipeline.build_overview import TOLERANCE, similar, survey
from traceprobe.records.picture import Picture
from traceprobe.records.report import Report
from traceprobe.records.tree import Tree


def analyze(*scenarios):
    return traceprobe.analyze([memory.trace(scenario) for scenario in scenarios])


def late(count, slow):
    """Ranks of one run, of which some compute longer and come late."""
    found = []
    for n in range(count):
        arrival = (4_000, 5_000) if n in slow else (2_000, 5_000)
        compute = (1_000, 3_900) if n in slow else (1_000, 2_000)
        found.append(scenario_of_rank(n, arrival, compute=compute, world=count))
    return found


def test_two_ranks_need_no_overview():
    assert "overview" not in json.loads(analyze(*late(2, {1})).to_json())["run"]


def test_ranks_that_are_alike_are_grouped_and_the_late_one_is_worst():
    overview = analyze(*late(5, {3})).run.overview
    assert [(g.members, g.median_rank) for g in overview.groups] == [([0, 1, 2, 4], 1), ([3], 3)]
    assert (overview.worst_rank, overview.median_rank) == (3, 2)
    assert overview.detailed_ranks == [0, 1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.parametrize(("count", "detailed"), [(16, 16), (17, 3)])
def test_of_many_ranks_a_few_keep_their_details(count, detailed):
    report = analyze(*late(count, {3}))
    overview = report.run.overview
    assert len(overview.detailed_ranks) == detailed
    assert {overview.worst_rank, overview.median_rank, 3} <= set(overview.detailed_ranks)
    for one in report.ranks:
        kept = one.rank in overview.detailed_ranks
        assert bool(one.iterations) == kept
        assert isinstance(one.picture, Picture) == kept
        assert isinstance(one.tree, Tree) == kept
        assert one.iteration_count == 6
        assert one.summary.iterations_used == 5
    again = Report.from_json(report.to_json())
    assert again == report
    for render in ("to_html", "to_markdown"):
        assert "5 of 6 iterations" in getattr(again, render)()


def test_the_verdict_does_not_depend_on_the_details():
    few, several = analyze(*late(16, {3})), analyze(*late(17, {3}))
    assert few.verdict.bound == several.verdict.bound
    assert [f.status for f in few.findings] == [f.status for f in several.findings]


def test_steps_of_captures_that_begin_at_different_ones_share_their_columns():
    ranges = (range(2, 8), range(6), range(4, 10))
    ranks = [scenario_of_rank(n, *EARLY, steps=steps, world=3) for n, steps in enumerate(ranges)]
    steps = analyze(*ranks).run.overview.steps
    assert steps.labels == [f"step {k}" for k in range(10)]
    assert steps.iterations_per_bin == 1
    used = [[k for k, ms in enumerate(row) if ms is not None] for row in steps.step_ms]
    # The last window of a capture has no end.
    assert used == [[*range(2, 7)], [*range(5)], [*range(4, 9)]]
    assert {ms for row in steps.step_ms for ms in row} == {None, 0.01}


def test_long_captures_are_joined_to_64_columns():
    ranks = [scenario_of_rank(n, *EARLY, steps=range(130), world=3) for n in range(3)]
    steps = analyze(*ranks).run.overview.steps
    assert (steps.iterations_per_bin, len(steps.labels)) == (3, 44)
    assert steps.labels[:2] == ["step 0", "step 3"]
    assert {ms for row in steps.step_ms for ms in row[:-1]} == {0.01}


def test_labels_are_redacted():
    report = redact(analyze(*[scenario_of_rank(n, *EARLY, world=3) for n in range(3)]))
    assert all(label.startswith("#") for label in report.run.overview.steps.labels)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(1, 1.3), st.floats(0, 0.2), st.floats(0, 0.2)), min_size=1, max_size=25
    )
)
def test_members_of_a_group_agree_two_by_two(features):
    step = np.array([f[0] for f in features])
    share = np.array([f[1:] for f in features])
    groups = similar(step, share)
    assert sorted(n for group in groups for n in group.tolist()) == list(range(len(features)))
    assert [len(g) for g in groups] == sorted((len(g) for g in groups), reverse=True)
    limit = TOLERANCE + 1e-12
    for group in groups:
        for a, b in combinations(group.tolist(), 2):
            assert abs(step[a] - step[b]) <= limit * np.median(step)
            assert np.abs(share[a] - share[b]).max() <= limit


def test_of_a_thousand_ranks_that_are_alike_three_keep_their_details():
    lone = records.rank({"forward": 90, "communication": 10})
    ranks = [replace(lone, rank=n) for n in range(1_024)]
    overview, kept = survey(ranks, straggler=700)
    assert overview.detailed_ranks == [0, 511, 700]
    assert len(kept) == len(ranks)


def unnumbered(name):
    trace = memory.trace(Script(Process(5)).op("kernel", 10, 20, (0, 5)).build())
    origin = replace(
        trace.origin,
        name=name,
        sha256=f"{crc32(name.encode()):064x}",  # no two are copies
    )
    return replace(trace, origin=origin)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["run.rank3.json"], [3]),
        (["Rank_3.json", "rank-1.json.gz"], [3, 1]),
        (["a.r2.json", "a.r0.json"], [2, 0]),
        (["trace_3.json", "trace_1.json"], [3, 1]),
        (["trace_3.json"], [0]),
        (["a/rank0.json", "b/rank0.json"], [0, 1]),
        (["rank1.json", "other.json"], [1, 0]),
    ],
)
def test_the_name_of_a_file_says_its_rank_where_nothing_else_does(names, expected):
    report = traceprobe.analyze([unnumbered(name) for name in names])
    assert [r.rank for r in report.ranks] == expected


def test_the_content_of_a_file_goes_before_names():
    numbered = memory.trace(scenario_of_rank(1, *EARLY, world=None))
    report = traceprobe.analyze([numbered, unnumbered("rank1.json"), unnumbered("rank5.json")])
    assert [r.rank for r in report.ranks] == [1, 0, 5]
