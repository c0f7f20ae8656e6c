"""What pages say in their titles, at the numbers where words could go wrong."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.every_record import every_record
from tests.observed_runs import run_of_classes, run_on, with_kernels, workload_of
from tests.report_factory import make_report
from tests.scaling_runs import run_of
from traceprobe.compare.compare import compare
from traceprobe.compare.gpus import compare_gpus
from traceprobe.compare.ladder import ladder
from traceprobe.compare.run import observe
from traceprobe.compare.scaling import scale
from traceprobe.formatting import counted, pace, plain, times
from traceprobe.records.diagnosis import Outcome
from traceprobe.records.whatif import Calibration, Predicted, WhatIf
from traceprobe.render import document_of
from traceprobe.render.document import Table
from traceprobe.render.pages.diagnosis import total


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (765, 30.7, "25× faster"),
        (100, 50, "2× faster"),
        (100, 50.1, "2× faster"),
        (100, 51, "96 % faster"),
        (101.5, 100, "1.5 % faster"),
        (100.04, 100, "less than 0.1 % faster"),
        (100, 100, "as fast"),
        (100, 101.5, "1.5 % slower"),
        (100, 112, "12 % slower"),
        (100, 200, "2× slower"),
        (54.2, 197, "3.6× slower"),
        (10_000, 1, "10,000× faster"),
    ],
)
def test_a_pace_is_a_factor_from_2_on_and_percent_below(before, after, said):
    assert pace(before / after) == said


@pytest.mark.parametrize(
    ("factor", "said"),
    [(25, "25×"), (9.96, "10×"), (3.38, "3.4×"), (2, "2×"), (1.08, "1.08×"), (0.957, "0.96×")],
)
def test_a_ratio_has_the_digits_that_matter(factor, said):
    assert times(factor) == said


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0"),
        (3, "3"),
        (1_260_000, "1,260,000"),
        (2.5, "2.5"),
        (7 / 3, "2.33"),
        (1250.5, "1,250"),
    ],
)
def test_a_count_has_no_exponent(count, said):
    assert plain(count) == said
    assert counted(count, "row") == f"{said} rows"


def test_one_is_singular():
    assert counted(1, "rank") == "1 rank"
    assert counted(2, "batch", "batches") == "2 batches"
    assert counted(1200, "step") == "1,200 steps"


def compared(before, after, steps=20, spread=0.001, **changes):
    """The page of two runs whose steps are backward passes of so many ms."""
    runs = (
        run_of_classes({"backward": ms}, steps, spread, label=label, **changes)
        for ms, label in ((before, "base"), (after, "new"))
    )
    return document_of(compare(*runs))


@pytest.mark.parametrize(
    ("before", "after", "title", "tone"),
    [
        (765, 30.7, "25× faster", "good"),
        (100, 50, "2× faster", "good"),
        (101.5, 100, "1.5 % faster", "good"),
        (100, 140, "40 % slower", "bad"),
        (54.2, 197, "3.6× slower", "bad"),
        (100, 100, "No measurable change", "plain"),
    ],
)
def test_the_title_of_a_comparison(before, after, title, tone):
    page = compared(before, after)
    assert (page.title, page.tone, page.secondary) == (title, tone, "base → new")


def test_a_change_within_the_noise_is_told_as_none():
    page = compared(100, 101.5, spread=0.2)
    assert page.title == "No measurable change"
    assert "before" in page.headline


def test_few_steps_are_too_few_to_tell():
    page = compared(100, 105, steps=4, spread=0.2)
    assert (page.title, page.tone) == ("Too few steps to tell", "unclear")
    assert "4 steps of each run" in page.headline


def test_a_headline_has_the_times_their_unit_once_and_the_steps():
    page = compared(765, 30.7)
    assert page.headline == (
        "A step takes 30.7 ms instead of 765 ms (20 steps of each run). Both runs are "
        "compute-bound."
    )


def test_batches_of_one_sample_are_singular():
    base = run_of_classes({"forward": 10}, workload=workload_of(1))
    new = run_of_classes({"forward": 20}, label="new", workload=workload_of(2))
    found = compare(base, new)
    (said,) = [c.message for c in found.cautions if c.code == "per-sample"]
    assert "holds 1 sample in the base and 2 in the new run" in said
    assert document_of(found).headline.startswith("A sample takes ")


def test_unknown_samples_have_no_rates():
    page = compared(100, 50)
    assert "samples/s" not in page.json.replace("samples_per", "") + str(page.sections)


def test_other_programs_are_the_first_caution():
    runs = [
        run_of_classes({"forward": 10}, label=name, workload={"name": name, "samples_per_step": 8})
        for name in ("unet", "gpt2")
    ]
    assert "different programs: unet and gpt2" in document_of(compare(*runs)).cautions[0]


def test_a_recording_that_is_compared_with_itself_is_called_that():
    one = run_of_classes({"forward": 10})
    assert "same-recording" in [caution.code for caution in compare(one, one).cautions]
    source = one.report.inputs[0]
    other = replace(one, report=replace(one.report, inputs=[replace(source, sha256="f" * 64)]))
    assert "same-recording" not in [caution.code for caution in compare(one, other).cautions]


def test_what_only_one_run_shows_is_told():
    base, new = (
        run_of_classes({"backward": 20}),
        run_of_classes({"backward": 20, "communication": 80}, label="new"),
    )
    found = compare(base, new)
    assert "ms exposed communication in the new run; the base shows none" in found.explanation[0]


@pytest.mark.parametrize(
    ("steps", "title"),
    [
        ((100, 50, 20), "5× faster after 2 changes"),
        ((100, 50), "2× faster after 1 change"),
        ((100, 140), "40 % slower after 1 change"),
        ((100, 100), "No measurable change after 1 change"),
        ((100,), "One rung, nothing to compare"),
    ],
)
def test_the_title_of_a_ladder(steps, title):
    runs = [
        run_of_classes({"backward": ms}, spread=0.001, label=f"r{n}") for n, ms in enumerate(steps)
    ]
    assert document_of(ladder(runs)).title == title


def predicted(change, step_ms, now_ms, low=None, high=None):
    return Predicted(
        changes=[change],
        step_ms=step_ms,
        low_ms=step_ms * 0.97 if low is None else low,
        high_ms=step_ms * 1.03 if high is None else high,
        speedup=now_ms / step_ms,
    )


def what_if(alone, asked=None, now_ms=100.0):
    """The page of a prediction."""
    summary = compare(run_of_classes({"backward": 100}), run_of_classes({"backward": 100})).base
    calibration = Calibration(played_ms=now_ms, host=1, host_known=True, collectives=1, rest=1)
    return document_of(
        WhatIf(
            schema_version=WhatIf.SCHEMA_VERSION,
            traceprobe_version="0",
            headline="",
            run=replace(summary, label="mine"),
            now_ms=now_ms,
            asked=asked,
            alone=alone,
            buckets=None,
            calibration=calibration,
            cautions=[],
        )
    )


def test_changes_without_effect_share_a_line():
    rows = [
        predicted("faster loader", 50, 100),
        predicted("x", 99.9, 100),
        predicted("y", 100, 100),
    ]
    page = what_if(rows)
    _, table, rest = page.sections[0].blocks
    assert page.title == "Up to 2× faster"
    assert [row[0] for row in table.rows] == ["faster loader"]
    assert rest.sentences == ["No effect on the step: x, y."]


@pytest.mark.parametrize(
    ("step_ms", "title", "tone"),
    [(4, "25× faster", "good"), (99.5, "No effect", "plain"), (150, "50 % slower", "bad")],
)
def test_the_title_of_what_was_asked_for(step_ms, title, tone):
    asked = predicted("loader twice as fast", step_ms, 100)
    page = what_if([asked], asked)
    assert (page.title, page.tone) == (title, tone)
    assert page.sections[0].title == "The change"


def test_where_nothing_helps_the_title_says_so():
    page = what_if([predicted("x", 100, 100), predicted("y", 120, 100)])
    assert page.title == "No single change helps"


def test_an_interval_from_nothing_is_a_bound():
    page = what_if([predicted("no host time", 3.45, 60, low=0.0001, high=60.5)], now_ms=60)
    assert page.sections[0].blocks[1].rows[0][2] == "up to 60.5"


@pytest.mark.parametrize(
    ("step", "title", "tone"),
    [
        (100, "8 ranks do the work of 8.00", "good"),
        (129, "8 ranks do the work of 6.20", "plain"),
        (400, "8 ranks do the work of 2.00", "bad"),
    ],
)
def test_the_title_of_a_scaling_curve(step, title, tone):
    page = document_of(scale([run_of(1), run_of(8, forward=step - 70)]))
    assert (page.title, page.tone) == (title, tone)
    assert page.headline.startswith("Weak scaling at ")
    assert f"{step} ms on 8 ranks, 100 ms on 1." in page.headline


def test_a_run_faster_than_ideal_loses_nothing():
    page = document_of(scale([run_of(1), run_of(2, forward=10)]))
    assert page.points[0] == (
        "On 2 ranks a step takes 20.0 ms less than ideal: the smallest run is slow for its size"
    )


def columns(page, section):
    """Titles of the columns of the first table there."""
    (found,) = (one for one in page.sections if one.id == section)
    return next(block for block in found.blocks if isinstance(block, Table)).head


def test_without_samples_there_are_no_rates():
    known = document_of(scale([run_of(1), run_of(2, transfer=5)]))
    unknown = document_of(scale([run_of(1, samples=0), run_of(2, transfer=5, samples=0)], "weak"))
    assert any("/s" in name for name in columns(known, "efficiency"))
    assert not any("/s" in name for name in columns(unknown, "efficiency"))
    ranked = document_of(
        compare_gpus([run_on("NVIDIA A40", 100), run_on("NVIDIA L4", 50, samples=None)])
    )
    assert "ms per step" in columns(ranked, "ranking")
    assert not any("/s" in name for name in columns(ranked, "ranking"))


@pytest.mark.parametrize(
    ("other", "title"),
    [(120, "NVIDIA A40 is fastest"), (100, "No clear winner"), (None, "One run, nothing to rank")],
)
def test_the_title_of_a_ranking(other, title):
    rest = [] if other is None else [run_on("NVIDIA A10", other)]
    assert document_of(compare_gpus([run_on("NVIDIA A40", 100), *rest])).title == title


def test_money_is_told_only_with_prices():
    runs = [run_on("NVIDIA A40", 100), run_on("NVIDIA A10", 120)]
    assert "$" not in str(document_of(compare_gpus(runs)).sections)
    priced = document_of(compare_gpus(runs, {"A40": 2.0, "A10": 0.5}))
    assert priced.points[0].startswith("Cheapest: NVIDIA A10")
    assert "$ per million samples" in columns(priced, "ranking")


def test_one_kernel_of_two_profilers_is_no_change():
    def recorded(name, source):
        report = with_kernels(make_report("io"), **{name: 200, "tiny": 0.01})
        inputs = [replace(i, format=source) for i in report.inputs]
        return observe(replace(report, inputs=inputs), source)

    kineto = "void at::native::(anonymous namespace)::softmax<4, float>(float*, int)"
    nsys = "void at::native::<unnamed>::softmax<(int)4, float>(T1 *, int)"
    assert compare(recorded(kineto, "kineto"), recorded(nsys, "nsys")).kernels == []
    assert len(compare(recorded(kineto, "nsys"), recorded(nsys, "nsys")).kernels) == 2


def test_a_kernel_has_a_short_name_and_the_whole_one_beside_it():
    name = "void at::native::(anonymous namespace)::softmax<4, float>(float*, int)"
    report = make_report("io")
    base, new = (observe(with_kernels(report, **{name: ms}), str(ms)) for ms in (200, 100))
    page = document_of(compare(base, new))
    (section,) = (one for one in page.sections if one.id == "kernels")
    (table,) = section.blocks
    assert (table.rows[0][0], list(table.full)) == ("softmax", [name])


@pytest.mark.parametrize(
    ("mfu", "achieved", "title", "said"),
    [
        (0.25, 250.0, "MFU 25.0 %", "would take 25.0 of the 100 ms of the step"),
        (None, 250.0, "250 TFLOP/s", "whose peak is not known"),
        (None, None, "MFU unknown", "A kernel runs for 17.0 % of the step on NVIDIA H200"),
    ],
)
def test_how_far_a_run_is_from_its_hardware(mfu, achieved, title, said):
    record = every_record()["roofline"]
    found = replace(record.roofline, step_ms=100.0, mfu=mfu, achieved_tflops=achieved)
    page = document_of(replace(record, roofline=found))
    assert page.title == title
    assert said in page.headline


@pytest.mark.parametrize(
    ("statuses", "said"),
    [
        (["ok"], "1 passed"),
        (["fail", "ok", "ok"], "1 check failed, 2 passed"),
        (["fail", "fail", "warn", "warn"], "2 checks failed, 2 warnings"),
        (["not-applicable"], "nothing to check"),
    ],
)
def test_the_title_of_a_diagnosis(statuses, said):
    assert total([Outcome(id="x", status=status, found="y") for status in statuses]) == said
