"""Parts of the page: step times, overlap, kernels by phase, time stamps, the next command."""

from __future__ import annotations

import msgspec
import pytest

from tests.rendering import html_of
from tests.report_factory import PARTITIONS, make_empty_report, make_rank, make_report, make_run
from traceprobe.records.rank import Iteration
from traceprobe.records.summary import KernelShare, StepTimes
from traceprobe.render import next_step
from traceprobe.render.pages import report_steps as steps
from traceprobe.render.pages import report_tables as tables
from traceprobe.render.pages.report_time import overlaps

change = msgspec.structs.replace


def rank_of(times_ms, unused=()):
    """A rank whose iterations take these times."""
    rank, start, iterations = make_rank(PARTITIONS["io"]), 0, []
    for index, ms in enumerate(times_ms):
        end = start + round(ms * 1e6)
        iterations.append(
            Iteration(
                index=index,
                label=str(index),
                start_ns=start,
                end_ns=end,
                coverage=1.0,
                used=index not in unused,
                skip_reason="too short" if index in unused else None,
                collectives=0,
                launches=1,
                partition_ns=None,
                busy_ns=None,
            )
        )
        start = end
    middle = sorted(times_ms)[len(times_ms) // 2]
    times = StepTimes(mean=middle, p10=min(times_ms), p50=middle, p90=max(times_ms))
    return change(rank, iterations=iterations, summary=change(rank.summary, step_ms=times))


def test_every_used_step_is_in_one_bin():
    times = [100.0, 101.0, 99.5, 100.2, 180.0, 1.0]
    found = steps.histogram(rank_of(times, unused=[5]))
    assert sum(found.counts) == 5
    assert found.edges[0] == 99.5
    assert found.edges[-1] == pytest.approx(180)
    assert len(found.edges) == len(found.counts) + 1
    assert found.counts[-1] == 1
    assert found.counts[0] == 4


def test_equal_steps_are_one_bar_and_few_steps_none():
    assert steps.histogram(rank_of([7.0] * 9)).counts == [9]
    assert steps.histogram(rank_of([7.0, 8.0, 9.0, 10.0])) is None


def test_many_steps_stay_few_bins():
    found = steps.histogram(rank_of([100 + k % 97 for k in range(5000)]))
    assert len(found.counts) == steps.MAX_BINS
    assert sum(found.counts) == 5000


def test_slow_steps_are_told_with_their_part_of_the_time():
    rank = rank_of([10.0] * 8 + [40.0, 40.0])
    words = steps.histogram_summary(steps.histogram(rank), rank)
    assert "2 steps are more than 1.5 times as long as that and take 50 % of the time" in words
    assert "more than" not in steps.histogram_summary(
        steps.histogram(rank_of([10.0] * 8)), rank_of([10.0] * 8)
    )


def test_what_hides_and_what_is_exposed_makes_the_whole_transfer():
    report = make_run(2)
    found = overlaps(report.ranks)
    communication = report.ranks[0].summary.communication
    bars = next(o.bars for o in found if o.caption == "Communication")
    bar = next(bar for bar in bars if bar.label == "Rank 0")
    parts = {piece.word: piece.value for piece in bar.pieces}
    assert sum(parts.values()) == communication.total_ns
    assert parts["hidden by kernels"] == communication.overlapped_ns
    waiting = parts.get("exposed, waiting for other ranks", 0)
    assert waiting == (communication.skew_exposed_ns or 0)
    assert 'id="overlap"' in html_of(report)


def test_nothing_to_hide_has_no_picture():
    assert overlaps(make_empty_report().ranks) == []


def test_kernels_are_grouped_by_phase_the_longest_first():
    def kernel(name, phase, ms, cores=None):
        return KernelShare(
            name=name,
            phase=phase,
            count=6,
            total_ns=ms * 1_000_000,
            mean_ns=1e6,
            phase_share=0.5,
            tensor_cores=cores,
        )

    rank = make_rank(PARTITIONS["io"])
    kernels = [
        kernel("a", "backward", 90, cores=True),
        kernel("b", "forward", 80, cores=False),
        kernel("void c<int>", "backward", 10),
    ]
    rank = change(rank, summary=change(rank.summary, top_kernels=kernels))
    rows = tables.kernels_table(rank).rows
    assert [row[1] for row in rows] == ["a", "c<int>", "b"]
    assert [row[-1] for row in rows] == ["yes", "—", "no"]
    assert {row[-2] for row in rows} == {"50.0 %"}


def test_time_stamps_are_those_of_the_file():
    source = make_report().inputs[0]
    chrome = change(source, format="kineto", origin_ns="1700000000123456789", base_ns="1700000000")
    assert tables.in_file(chrome, 1_000) == "1699999998423457.789 µs"
    nsys = change(source, format="nsys", origin_ns="5000", base_ns="0")
    assert tables.in_file(nsys, 7) == "5007 ns"


def test_the_next_command_fits_the_report():
    report = make_report()
    command, _ = next_step.next_command(report, ["/data/my run.json.gz"])
    k = report.ranks[0].picture.windows[0].iteration
    assert (
        command == f"traceprobe slice '/data/my run.json.gz' --steps {k}:{k + 2} -o step{k}.json.gz"
    )
    rank = report.ranks[0]
    stepless = change(rank, summary=change(rank.summary, iterations_used=0))
    command, _ = next_step.next_command(change(report, ranks=[stepless]))
    assert command == f"traceprobe inspect {report.inputs[0].name}"
    assert next_step.next_command(change(report, inputs=[], ranks=[])) is None


def test_findings_that_ask_for_nothing_are_folded_by_their_state():
    text = html_of(make_report())
    for state in ("could-not-be-checked", "passed", "not-applicable"):
        assert f'<details class="folded" id="findings-{state}">' in text
    assert "How it was computed" in html_of(
        change(make_report(), findings=[change(make_report().findings[0], rule="A minus B.")])
    )
