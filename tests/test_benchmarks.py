"""What the benchmarks read is what they say: longer traces and more ranks, of the same numbers."""

from __future__ import annotations

import json
import sys

import pytest

import traceprobe
from benchmarks import grow_kineto, grow_nsight, performance_page, ranks
from benchmarks.processes import measure
from tests.conftest import ROOT

SAMPLES = ROOT / "sample_traces"
KINETO = ["h200_unet_w1.json.gz", "profile_wide_mlp.rank0.json.gz"]
NSIGHT = ["h200_unet_w1.sqlite.gz", "profile_wide_mlp.sqlite.gz"]


def analysed(*paths):
    return traceprobe.analyze([traceprobe.load(path) for path in paths])


def duration(iteration):
    return iteration.end_ns - iteration.start_ns


def assert_repeated(grown, source, factor):
    """Every step but the last of a copy, which the next copy ends, is the source's."""
    assert len(grown.ranks) == len(source.ranks)
    for long, short in zip(grown.ranks, source.ranks, strict=True):
        count = len(short.iterations)
        assert len(long.iterations) == factor * count
        for i, iteration in enumerate(long.iterations):
            if (i + 1) % count:
                expected = short.iterations[i % count]
                assert duration(iteration) == duration(expected)
                assert iteration.partition_ns == expected.partition_ns
                assert iteration.collectives == expected.collectives


@pytest.mark.slow
@pytest.mark.parametrize("name", KINETO)
def test_a_grown_kineto_trace_has_the_same_steps_again(name, tmp_path):
    made = grow_kineto.grow(SAMPLES / name, tmp_path / "3x.json.gz", 3)
    grown = analysed(made.path)
    assert_repeated(grown, analysed(SAMPLES / name), 3)
    labels = [iteration.label for iteration in grown.ranks[0].iterations]
    assert len(set(labels)) == len(labels)


@pytest.mark.slow
@pytest.mark.parametrize("name", NSIGHT)
def test_a_grown_export_has_the_same_steps_again(name, tmp_path):
    made = grow_nsight.grow(SAMPLES / name, tmp_path / "3x.sqlite", 3)
    grown = analysed(made.path)
    assert_repeated(grown, analysed(SAMPLES / name), 3)
    labels = [iteration.label for iteration in grown.ranks[0].iterations]
    assert len(set(labels)) == len(labels)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("grow", "name", "target"),
    [
        (grow_kineto, "h200_unet_w1.json.gz", "1x.json"),
        (grow_nsight, "h200_unet_w1.sqlite.gz", "1x.sqlite"),
    ],
)
def test_grown_once_is_the_source(grow, name, target, tmp_path):
    made = grow.grow(SAMPLES / name, tmp_path / target, 1)
    assert made.bytes == made.plain_bytes == pytest.approx(grow.plain_bytes(SAMPLES / name), 0.01)
    assert analysed(made.path).ranks[0].iterations == analysed(SAMPLES / name).ranks[0].iterations


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Report of three ranks, the last one a straggler."""
    folder = tmp_path_factory.mktemp("ranks")
    paths = ranks.write(SAMPLES / "profile_wide_mlp.rank0.json.gz", folder, 3, straggler=2)
    return analysed(*paths)


def test_made_ranks_are_the_ranks_of_one_run(run):
    assert [rank.rank for rank in run.ranks] == [0, 1, 2]
    assert {row.group_size for rank in run.ranks for row in rank.summary.collectives} == {3}
    steps = {
        (len(rank.iterations), tuple(i.collectives for i in rank.iterations)) for rank in run.ranks
    }
    assert len(steps) == 1


def test_the_straggler_is_found(run):
    assert run.run.straggler_rank == 2


def test_what_the_source_took_without_a_profiler_is_not_said_of_the_run(run):
    source = analysed(SAMPLES / "profile_wide_mlp.rank0.json.gz")
    assert source.quality.observer_effect is not None
    assert run.quality.observer_effect is None
    assert not any("profile" in reason for reason in run.verdict.reasons)
    assert run.workload == source.workload


def test_a_rank_is_made_the_same_again():
    source = ranks.Source(SAMPLES / "profile_wide_mlp.rank0.json.gz")
    texts = [source.rank(rank, 40, straggler=False) for rank in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    info = json.loads(texts[0])["distributedInfo"]
    assert (info["rank"], info["world_size"]) == (1, 40)


def test_a_trace_without_collectives_is_of_one_rank_only():
    with pytest.raises(ValueError, match="collectives"):
        ranks.Source(SAMPLES / "h200_unet_w1.json.gz")


def test_the_memory_of_children_counts(tmp_path):
    hold = "import time; held = b'x' * 60_000_000; time.sleep(1)"
    code = (
        "import subprocess, sys\n"
        f"started = [subprocess.Popen([sys.executable, '-c', {hold!r}]) for _ in range(2)]\n"
        "for process in started: process.wait()"
    )
    cost = measure([sys.executable, "-c", code], tmp_path, {}, 60)
    assert cost.failed is None
    assert cost.peak_bytes > 120_000_000


def test_what_fails_says_why(tmp_path):
    cost = measure([sys.executable, "-c", "raise SystemExit('no | way')"], tmp_path, {}, 60)
    assert cost.failed == "exit 1: no / way"


def test_what_never_ends_is_stopped(tmp_path):
    cost = measure([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path, {}, 0.2)
    assert cost.failed is not None
    assert cost.failed.startswith("stopped")


def test_a_section_of_the_page_is_replaced():
    text = "before\n<!-- a -->\nold\n<!-- /a -->\nafter\n"
    assert performance_page.replace(text, "a", "new") == (
        "before\n<!-- a -->\n\nnew\n\n<!-- /a -->\nafter\n"
    )
    with pytest.raises(KeyError):
        performance_page.replace(text, "b", "new")
