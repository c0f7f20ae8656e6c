"""Two runs compared: changes are exact where the numbers are, and real only beyond the noise."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from tests.analyses import REFUSED, report_of
from tests.conftest import trace_files
from tests.observed_runs import calibrated, run_of_classes, with_kernels, workload_of
from tests.report_factory import MS, make_report, make_run, without_calibration
from traceprobe.compare import noise
from traceprobe.compare.compare import ENOUGH_STEPS, compare, part
from traceprobe.compare.run import NothingToCompare, default_label, observe
from traceprobe.model.taxonomy import PARTITION
from traceprobe.records.loader import Loader
from traceprobe.records.operator_calls import MOST_OPERATORS, OperatorCalls
from traceprobe.records.rank import DeviceInfo

SOURCE = np.random.default_rng(5)


def named(changes, name):
    return next(change for change in changes if change.name == name)


def test_used_steps_of_a_report_are_taken_whole():
    report = make_report("io")
    seen = observe(report)
    rank = report.ranks[0]
    used = [i for i in rank.iterations if i.used]
    assert len(seen.step_ms) == len(used)
    assert seen.step_ms.tolist() == [(i.end_ns - i.start_ns) / MS for i in used]
    known = [values for values in seen.classes.values() if values is not None]
    assert np.sum(known, axis=0) == pytest.approx(seen.step_ms)
    assert {n for n, v in seen.classes.items() if v is None} == {
        n for n in PARTITION if used[0].partition_ns[n] is None
    }


def test_ranks_are_averaged_step_by_step():
    report = make_run(4)
    seen = observe(report)
    first = [next(i for i in rank.iterations if i.used) for rank in report.ranks]
    assert seen.step_ms[0] == pytest.approx(np.mean([(i.end_ns - i.start_ns) / MS for i in first]))
    assert seen.world_size == 4


def test_a_class_that_one_rank_cannot_show_is_unknown():
    report = make_run(2)
    other = report.ranks[1]
    blind = [
        replace(i, partition_ns={**i.partition_ns, "communication": None}) if i.used else i
        for i in other.iterations
    ]
    seen = observe(replace(report, ranks=[report.ranks[0], replace(other, iterations=blind)]))
    assert seen.classes["communication"] is None
    assert seen.classes["forward"] is not None


def test_too_few_steps_are_refused_with_advice():
    report = make_report("io")
    rank = report.ranks[0]
    rest = [replace(i, used=i.used and i.index < 3) for i in rank.iterations]
    with pytest.raises(NothingToCompare, match="record more steps"):
        observe(replace(report, ranks=[replace(rank, iterations=rest)]), "mine")


def test_a_label_is_the_first_input_without_its_suffixes():
    assert default_label(make_report("io")) not in ("", "run")
    assert not default_label(make_report("io")).endswith((".gz", ".json", ".sqlite"))


def test_the_same_steps_are_no_change_at_all():
    base = run_of_classes({"forward": 10, "backward": 20})
    found = compare(base, base, 0.05)
    assert (found.direction, found.gate.decision) == ("unchanged", "pass")
    assert found.step.delta == 0
    assert not any(change.real for change in found.classes)
    assert found.kernels == []
    assert found.settings == {}


def test_a_phase_that_grew_is_found_and_named():
    base = run_of_classes({"forward": 10, "backward": 20, "optimizer": 2})
    new = run_of_classes({"forward": 10, "backward": 24, "optimizer": 2}, label="new")
    found = compare(base, new, 0.05)
    assert (found.direction, found.gate.decision) == ("slower", "regression")
    real = [change.name for change in found.classes if change.real]
    assert real == ["backward"]
    change = named(found.classes, "backward")
    assert change.low < change.delta < change.high
    assert change.delta == pytest.approx(4, abs=0.3)
    assert found.explanation[0].startswith("+4.")
    assert "ms backward (" in found.explanation[0]


def test_classes_sum_to_the_step():
    base = run_of_classes({"forward": 10, "idle_data_wait": 20})
    new = run_of_classes({"forward": 10, "idle_data_wait": 1}, label="new")
    found = compare(base, new)
    assert sum(c.delta for c in found.classes) == pytest.approx(found.traced_step.delta, abs=1e-4)
    assert found.direction == "faster"
    assert found.explanation[0].startswith("−18.9")
    assert "waiting for data" in found.explanation[0]


def test_what_one_run_cannot_show_is_unknown_and_never_real():
    base, new = (
        run_of_classes({"forward": 10, "h2d": 1}),
        run_of_classes({"forward": 10}, label="new"),
    )
    change = named(compare(base, new).classes, "h2d")
    assert change.base == pytest.approx(1, abs=0.1)
    assert (change.new, change.delta, change.low, change.real) == (None, None, None, False)


@pytest.mark.parametrize(
    ("steps", "spread", "growth", "decision"),
    [
        (20, 0.01, 0.0, "pass"),
        (20, 0.01, 0.03, "pass"),
        (20, 0.01, 0.10, "regression"),
        (20, 0.01, -0.30, "pass"),
        (ENOUGH_STEPS - 1, 0.01, 0.10, "inconclusive"),
        (20, 0.60, 0.0, "inconclusive"),
    ],
)
def test_the_gate(steps, spread, growth, decision):
    base = run_of_classes({"backward": 20}, steps, spread)
    new = run_of_classes({"backward": 20 * (1 + growth)}, steps, spread, label="new")
    assert compare(base, new, 0.05).gate.decision == decision


@pytest.mark.parametrize(
    ("name", "kind", "decision"),
    [
        ("B", "gpu", "inconclusive"),
        ("", "cpu", "inconclusive"),
        ("", "gpu", "pass"),
        ("{} ", "gpu", "pass"),
    ],
)
def test_the_gate_does_not_judge_a_program_by_another_device(name, kind, decision):
    """A faster one hides what the program lost; one without a name may be the same."""
    base, new = run_of_classes({"forward": 20}), run_of_classes({"forward": 10}, label="new")
    known = base.report.ranks[0].device.name
    device = DeviceInfo(index=0, name=name.format(known.upper()) or None, kind=kind)
    ranks = [replace(rank, device=device) for rank in new.report.ranks]
    new = replace(new, report=replace(new.report, ranks=ranks))
    gate = compare(base, new, 0.05).gate
    assert gate.decision == decision
    assert ("different devices" in gate.reason) == (decision == "inconclusive")


def test_without_a_profiler_decides_where_both_runs_timed_it():
    base, new = run_of_classes({"idle_host": 20}), run_of_classes({"idle_host": 20}, label="new")
    found = compare(calibrated(base, 10.0), calibrated(new, 12.0), 0.05)
    assert (found.step.base, found.step.new, found.step.delta) == (10, 12, 2)
    assert found.gate.decision == "regression"
    assert found.traced_step.delta == pytest.approx(0, abs=0.3)
    assert "profiler-distorts" in {caution.code for caution in found.cautions}
    assert found.base.basis == "unprofiled"
    alone = compare(calibrated(base, 10.0), new, 0.05)
    assert alone.step == alone.traced_step
    assert alone.gate.decision == "pass"


def test_a_step_of_other_conditions_is_not_compared():
    base, new = (
        calibrated(run_of_classes({"forward": 10}), 2.0),
        run_of_classes({"forward": 10}, label="new"),
    )
    effect = replace(calibrated(new, 20.0).report.quality.observer_effect, other_conditions=True)
    quality = replace(new.report.quality, observer_effect=effect)
    new = replace(new, report=replace(new.report, quality=quality))
    assert (new.unprofiled_step_ms, new.basis) == (None, "traced")
    assert compare(base, new, 0.05).gate.decision == "pass"


def test_what_both_mixes_of_a_verdict_are_is_told_in_words():
    mixed = make_report("mixed")
    mixed = replace(mixed, verdict=replace(mixed.verdict, bound="mixed", secondary="io+overhead"))
    parts = {"forward": 10}
    base, new = (
        run_of_classes(parts, verdict=mixed.verdict),
        run_of_classes(parts, label="new", verdict=mixed.verdict),
    )
    told = compare(base, new).to_markdown()
    assert "mixed, I/O and overhead" in told
    assert "io+overhead" not in told


def test_a_step_never_gets_shorter_by_more_than_it_took():
    base = run_of_classes({"forward": 20}, spread=0.5)
    new = run_of_classes({"forward": 4}, label="new")
    step = compare(calibrated(base, 10.0), calibrated(new, 0.5)).step
    assert step.low == -10 < step.delta < step.high


def test_steps_of_different_sizes_are_compared_by_sample():
    base = run_of_classes({"forward": 10}, workload=workload_of(10))
    new = run_of_classes({"forward": 20}, label="new", workload=workload_of(20))
    found = compare(base, new)
    assert (found.per, found.direction) == ("sample", "unchanged")
    assert found.step.base == pytest.approx(1, rel=0.02)
    assert found.settings == {"batch_size": [10, 20], "samples_per_step": [10, 20]}
    assert "per-sample" in {caution.code for caution in found.cautions}
    assert found.base.samples_per_second == pytest.approx(1e3, rel=0.02)


def loaded(batches_per_step, batch_size, workers=2):
    return Loader(workers=workers, batch_size=batch_size, batches_per_step=batches_per_step)


def test_the_loader_tells_how_many_samples_a_step_holds_where_the_program_does_not():
    base = run_of_classes({"forward": 10}, loader=loaded(1.0, 16))
    new = run_of_classes({"forward": 20}, label="new", loader=loaded(1.98, 16, workers=4))
    found = compare(base, new)
    assert (found.per, found.direction) == ("sample", "unchanged")
    assert (found.base.samples_per_step, found.new.samples_per_step) == (16, 32)
    assert found.settings == {"workers": [2, 4]}
    assert run_of_classes({"forward": 10}, loader=loaded(1.5, 16)).per_step("samples") is None
    assert run_of_classes({"forward": 10}, loader=loaded(1.0, None)).per_step("samples") is None
    told = run_of_classes({"forward": 10}, loader=loaded(1.0, 16), workload=workload_of(10))
    assert told.per_step("samples") == 10


def test_cautions_about_devices_ranks_profilers_and_verdicts():
    base = run_of_classes({"forward": 10}, bound="inconclusive")
    other = without_calibration(make_run(2))
    nsys = [replace(i, format="nsys") for i in other.inputs]
    ranks = [replace(r, device=DeviceInfo(index=0, name="B", kind="gpu")) for r in other.ranks]
    new = observe(replace(other, ranks=ranks, inputs=nsys), "new")
    codes = {caution.code for caution in compare(base, new).cautions}
    assert codes >= {
        "different-devices",
        "different-profilers",
        "different-world-sizes",
        "inconclusive-verdict",
        "unknown-batches",
    }


def test_measures_are_told_where_they_change():
    steps = np.ones(20)
    base = run_of_classes(
        {"backward": 20}, measures={"collectives": 8 * steps, "launches": 100 * steps}
    )
    new = run_of_classes(
        {"backward": 20},
        label="new",
        measures={"collectives": 5 * steps, "launches": 101 * steps},
    )
    found = compare(base, new)
    change = named(found.measures, "collectives")
    assert (change.base, change.new, change.delta, change.real) == (8, 5, -3, True)
    said = [text for text in found.explanation if "Collectives" in text]
    assert said == ["Collectives: 8 → 5 a step"]
    assert not any("launches" in text for text in found.explanation)


def test_kernels_appear_vanish_and_change():
    report = make_report("io")
    base = observe(with_kernels(report, old=200, same=90, slow=50, tiny=0.01))
    new = observe(with_kernels(report, fresh=100, same=90, slow=80))
    found = compare(base, new).kernels
    assert [(k.name, k.state, k.base_ms, k.new_ms) for k in found] == [
        ("old", "vanished", 200, None),
        ("fresh", "appeared", None, 100),
        ("slow", "slower", 50, 80),
    ]


def test_a_kernel_that_is_too_short_for_the_other_list_did_not_appear():
    report = make_report("io")
    longest = {f"k{n}": 50.0 for n in range(15)}
    base = observe(with_kernels(report, **longest))
    new = observe(with_kernels(report, **longest, other=40))
    assert compare(base, new).kernels == []


def operators(report, **uses):
    """The report with these operators alone: calls, ms on the device and on the host, a step."""
    rank = report.ranks[0]
    steps = rank.summary.iterations_used
    listed = [
        OperatorCalls(
            name=name,
            count=int(count * steps),
            host_ns=int(host * steps * MS),
            operations=int(count * steps),
            device_ns=int(device * steps * MS),
        )
        for name, (count, device, host) in uses.items()
    ]
    summary = replace(rank.summary, operators=listed)
    return replace(report, ranks=[replace(rank, summary=summary)])


def test_operators_appear_vanish_and_are_called_more_or_less_often():
    report = make_report("io")
    base = operators(report, old=(2, 9, 1), mm=(4, 8, 2), view=(30, 0, 1), same=(1, 1, 1))
    new = operators(report, mm=(6, 13, 2), view=(20, 0, 1), same=(1, 1, 1), fresh=(1, 0.5, 1))
    found = compare(observe(base), observe(new)).operators
    assert [(o.name, o.state, o.base_count, o.new_count, o.base_ms, o.new_ms) for o in found] == [
        ("old", "vanished", 2, 0, 9, 0),
        ("mm", "more", 4, 6, 8, 13),
        ("fresh", "appeared", 0, 1, 0, 0.5),
        ("view", "fewer", 30, 20, 0, 0),
        ("same", "same", 1, 1, 1, 1),
    ]
    assert [(o.base_host_ms, o.new_host_ms) for o in found[:2]] == [(1, 0), (2, 2)]


def test_operators_of_one_report_alone_are_none_at_all():
    report = make_report("io")
    found = compare(observe(operators(report, mm=(1, 1, 1))), observe(report))
    assert not found.operators
    assert '"operators"' not in found.to_json()


def test_an_operator_that_a_full_list_lacks_is_left_out():
    report = make_report("io")
    full = {f"op{n}": (1, 1, 1) for n in range(MOST_OPERATORS)}
    base = observe(operators(report, **full))
    new = observe(operators(report, op0=(2, 1, 1), other=(1, 9, 1)))
    found = {each.name: each.state for each in compare(base, new).operators}
    assert "other" not in found
    assert (found["op0"], found["op1"], len(found)) == ("more", "vanished", MOST_OPERATORS)


def test_calls_are_per_step_and_times_per_sample_where_steps_differ_in_size():
    listed = operators(make_report("io"), mm=(4, 8, 2))
    base = run_of_classes({"forward": 10}, workload=workload_of(10), ranks=listed.ranks)
    new = run_of_classes({"forward": 20}, label="new", workload=workload_of(20), ranks=listed.ranks)
    (found,) = compare(base, new).operators
    assert (found.state, found.base_count, found.new_count) == ("same", 4, 4)
    assert (found.base_ms, found.new_ms) == (0.8, 0.4)
    assert (found.base_host_ms, found.new_host_ms) == (0.2, 0.1)


@pytest.mark.parametrize(("grown", "named"), [(13, True), (9, False)])
def test_the_operator_that_explains_much_of_a_change_is_named(grown, named):
    report = make_report("io")
    before, after = (operators(report, mm=(4, ms, 2), add=(1, 1, 1)) for ms in (8, grown))
    base = run_of_classes({"backward": 20}, ranks=before.ranks)
    new = run_of_classes({"backward": 25}, label="new", ranks=after.ranks)
    said = [text for text in compare(base, new).explanation if "Operator" in text]
    line = (
        "Operator that changed most: mm, +5.00 ms on the device (8.00 → 13.0; 4 → 4 calls a step)"
    )
    assert said == ([line] if named else [])


def test_operators_without_a_row_are_summed_on_the_page():
    from traceprobe.render.pages.comparison_operators import MOST_ROWS, operator_section

    report = make_report("io")
    many = {f"op{n}": (1, 50 + n, 1) for n in range(MOST_ROWS + 3)}
    base = observe(operators(report, **many, same=(2, 7, 1)))
    new = observe(
        operators(
            report, **{name: (1, 2 * ms, 1) for name, (_, ms, _) in many.items()}, same=(2, 7, 1)
        )
    )
    found = compare(base, new)
    (section,) = operator_section(found, 1.0)
    (table,) = section.blocks
    assert [row[0] for row in table.rows[:2]] == [f"op{MOST_ROWS + 2}", f"op{MOST_ROWS + 1}"]
    rest = 50 + 51 + 52
    assert table.rows[-1] == [
        *("4 others", "", "5", "5", f"{rest + 7}", f"{2 * rest + 7}", f"+{rest}", "", ""),
    ]
    assert len(table.rows) == MOST_ROWS + 1
    assert not list(operator_section(compare(base, base), 1.0))


def test_a_comparison_comes_back_from_its_json():
    from traceprobe.records.comparison import Comparison
    from traceprobe.records.kinds import read

    base, new = run_of_classes({"forward": 10}), run_of_classes({"forward": 12}, label="new")
    found = compare(base, new, 0.05)
    assert isinstance(read(found.to_json()), Comparison)
    assert read(found.to_json()).to_json() == found.to_json()


# Noise


def test_resamples_of_long_runs_are_drawn_in_pieces_and_are_the_same(monkeypatch):
    values = np.random.default_rng(3).normal(1e6, 1e4, 2_000)
    held: list[int] = []
    drawn = noise._drawn

    def counted(series, starts, block):
        held.append(starts.size * block)
        return drawn(series, starts, block)

    monkeypatch.setattr(noise, "_drawn", counted)
    monkeypatch.setattr(noise, "STEPS_AT_ONCE", 10**9)
    at_once = noise.means(values, np.random.default_rng(noise.SEED))
    whole = max(held)
    monkeypatch.setattr(noise, "STEPS_AT_ONCE", 50)
    in_pieces = noise.means(values, np.random.default_rng(noise.SEED))
    assert in_pieces.tolist() == at_once.tolist()
    assert held[1:] == [whole // 40] * 40


def test_the_interval_of_a_known_noise_has_about_the_width_of_students():
    widths = []
    for _ in range(40):
        base, new = SOURCE.standard_normal((2, 10))
        found = noise.difference(base, new, 0.95)
        widths.append(found.high - found.low)
    # Student's with 9 degrees of freedom: 2.26 * sqrt(2 / 10) to either side.
    assert np.mean(widths) == pytest.approx(2 * 2.26 * np.sqrt(0.2), rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("count", [5, 10, 40])
def test_equal_runs_are_rarely_called_different(count):
    wrong = sum(
        noise.difference(*SOURCE.standard_normal((2, count)), 0.95).real for _ in range(400)
    )
    assert wrong <= 0.05 * 400


@pytest.mark.parametrize(
    ("z", "freedom", "value"), [(1.96, 4, 2.776), (1.96, 9, 2.262), (2.576, 29, 2.756)]
)
def test_students_quantiles(z, freedom, value):
    assert noise.student(z, freedom) == pytest.approx(value, rel=0.005)


def stalls(steps, every):
    series = 100 + SOURCE.standard_normal(steps)
    series[every - 1 :: every] += 1000
    return series


@pytest.mark.parametrize("every", [2, 4, 5])
def test_a_loader_that_stalls_every_few_steps_has_a_period(every):
    assert noise.period(stalls(40, every)) == every


@pytest.mark.parametrize("series", [np.ones(40), SOURCE.standard_normal(40), np.arange(40.0)])
def test_other_series_have_none(series):
    assert noise.period(series) == 1


def test_stalls_with_a_period_do_not_widen_the_interval():
    base, new = stalls(40, 5), stalls(40, 5) + 20
    blind = noise.difference(base, new, 0.95)
    found = noise.difference(base, new, 0.95, (5, 5))
    assert found.real
    assert found.high - found.low < 0.2 * (blind.high - blind.low)


def test_what_changes_slowly_inside_a_run_is_the_least_that_counts():
    slow = np.linspace(100, 110, 30)
    assert noise.drift(slow) > 6
    assert not noise.difference(slow, slow + 5, 0.95).real


def test_a_part_of_a_run_is_a_run():
    whole = run_of_classes({"forward": 10}, steps=10)
    half = part(whole, np.arange(5))
    assert half.step_ms.tolist() == whole.step_ms[:5].tolist()
    assert half.classes["backward"] is None


def test_no_corpus_run_differs_from_itself(corpus, corpus_row):
    """First and last half of every real run, either way round: never a regression."""
    try:
        report = report_of(*trace_files(corpus_row))
        seen = observe(without_calibration(report))  # both halves would share a calibration
    except (*REFUSED, NothingToCompare):
        return
    half = len(seen.step_ms) // 2
    by_kernels = (
        r.step_marker is not None and r.step_marker.kind == "kernels" for r in report.ranks
    )
    if half < 2 or any(by_kernels):  # periods of kernels are no steps that somebody would compare
        return
    halves = part(seen, np.arange(half)), part(seen, np.arange(half, 2 * half))
    for base, new in (halves, halves[::-1], (seen, seen)):
        assert compare(base, new, 0.05).gate.decision != "regression"
