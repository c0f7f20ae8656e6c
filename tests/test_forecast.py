"""Predicted savings: what of a step goes with the cause of a finding, alone and together."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

import traceprobe
from tests.analyses import report_of
from tests.builders import kineto
from tests.builders.loop import Loop
from tests.builders.program import UPDATE, Program
from tests.builders.scenario import STREAM, Script
from tests.conftest import ROOT
from tests.report_factory import make_ablation, make_report
from traceprobe.findings.first_fixes import first_fixes
from traceprobe.formatting import significant
from traceprobe.records.prediction import JointPrediction, PredictedSaving
from traceprobe.records.rank import removable_ms
from traceprobe.records.report import Finding
from traceprobe.records.run import straggler_of
from traceprobe.render.savings import saving, together
from traceprobe.replay import scenario
from traceprobe.replay.predict import predict, prepare
from traceprobe.replay.scenario import Changes

US, MS = 1_000, 1_000_000
STEP = {
    "steps": 8,
    "forward_ns": 4 * MS,
    "backward_ns": 8 * MS,
    "optimizer_ns": MS,
    "step_name": "ProfilerStep#{}",
}


def removing(*names):
    return Changes(removed=frozenset(names))


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Reports of loops by what is slow in them."""
    folder = tmp_path_factory.mktemp("loops")
    kinds = {
        "loader": {"data_wait_ns": 20 * MS, "wait": "loader", "lag_ns": 100_000},
        "two": {"data_wait_ns": 20 * MS, "wait": "loader", "launch_gap_ns": 900_000},
        "neither": {"loop_gap_ns": 0, "lag_ns": 1_200_000},
    }
    found = {}
    for name, more in kinds.items():
        path = kineto.write(Loop(**STEP, **more).scenario(), folder / f"{name}.json")
        found[name] = traceprobe.analyze(traceprobe.load(path))
    return found


def asked(report, name):
    return next(f for f in report.findings if f.id == name)


# Changes at once


def test_changes_join_and_factors_multiply():
    one = Changes(removed=frozenset({"sync"}), speedup={"forward": 2.0, "h2d": 3.0}, margin=0.1)
    other = Changes(overlapped=frozenset({"h2d"}), speedup={"forward": 1.5}, margin=0.3)
    both = scenario.together(one, other)
    assert both.removed == {"sync"}
    assert both.overlapped == {"h2d"}
    assert both.speedup == {"forward": 3.0, "h2d": 3.0}
    assert both.margin == 0.3


def test_of_the_same_work_only_the_larger_factor_counts():
    one, other = Changes(speedup={"forward": 2.0}), Changes(speedup={"forward": 1.5})
    assert scenario.together(one, other, shared=True).speedup == {"forward": 2.0}


def test_what_one_change_makes_slower_stays_so_beside_another():
    one, slower = Changes(speedup={"communication": 2.0}), Changes(speedup={"backward": 0.8})
    both = {"communication": 2.0, "backward": 0.8}
    assert scenario.together(one, slower, shared=True).speedup == both
    assert scenario.together(slower, one, shared=True).speedup == both
    faster = Changes(speedup={"backward": 1.5})
    joined = scenario.together(slower, faster, shared=True).speedup
    assert joined == {"backward": pytest.approx(1.2)}


def test_what_is_gone_gets_no_faster():
    gone = removing("data-wait", "communication")
    other = Changes(speedup={"loader": 2.0, "communication": 2.0, "forward": 2.0})
    both = scenario.together(gone, replace_overlap(other))
    assert both.speedup == {"forward": 2.0}
    assert not both.overlapped


def replace_overlap(changes):
    return Changes(overlapped=frozenset({"communication"}), speedup=changes.speedup)


# Predictions


def test_without_the_wait_a_step_is_what_is_left(reports):
    found = asked(reports["loader"], "data-wait")
    assert found.predicted.ms == pytest.approx(20, rel=0.05)
    assert found.predicted.ms <= found.saving_ms_per_step
    assert found.predicted.low_ms > 15
    left = found.predicted
    assert left.step_ms == pytest.approx(13.1, rel=0.05)
    ends = f"{significant(left.step_low_ms)} to {significant(left.step_high_ms)}"
    assert found.evidence[-1].endswith(
        f"no waiting for data; that leaves {significant(left.step_ms)} ms a step ({ends})"
    )


def test_what_is_left_varies_though_no_more_can_be_saved(reports):
    """No prediction is above its bound; a step is 5 % longer or shorter in the next run."""
    for report in reports.values():
        for finding in report.findings:
            left = finding.predicted
            if not isinstance(left, PredictedSaving):
                continue
            now = left.step_ms + left.ms
            assert left.step_low_ms <= min(now - left.high_ms, 0.95 * left.step_ms) + 1e-5
            assert left.step_high_ms >= min(now, 1.05 * left.step_ms) - 1e-5
            assert now - left.low_ms - 1e-5 <= left.step_high_ms <= now + 1e-5


def test_nothing_is_predicted_where_nothing_is_asked(reports):
    for finding in reports["neither"].findings:
        asks = finding.status in ("fail", "warn") and finding.saving_ms_per_step is not None
        assert asks or isinstance(finding.predicted, msgspec.UnsetType)


def test_two_causes_are_played_together(reports):
    report = reports["two"]
    joint = report.joint
    loader, host = asked(report, "data-wait"), asked(report, "host-overhead")
    assert {"data-wait", "host-overhead"} <= set(joint.findings)
    gain = joint.now_ms - joint.step_ms
    # A late loader hides the host: that saves nothing alone, and something without the loader.
    assert host.predicted.ms < 0.1
    assert loader.predicted.ms + 1 < gain
    assert gain <= sum(asked(report, name).saving_ms_per_step for name in joint.findings)


def waiting(busy_us, tmp_path):
    """Steps of 10 ms whose host waits twice for a kernel, each time until 5 ms are over."""
    script = Script()
    for start in range(0, 8 * 10_000, 10_000):
        script.range(f"ProfilerStep#{start // 10_000}", start * US, (start + 9_900) * US)
        for half in (start, start + 5_000):
            launch = ((half + 100) * US, (half + 110) * US)
            script.op("kernel", (half + 120) * US, (half + 120 + busy_us) * US, launch)
            script.call("cudaStreamSynchronize", (half + 120) * US, (half + 125 + busy_us) * US)
    path = kineto.write(script.build(), tmp_path / "waits.json")
    return traceprobe.analyze(traceprobe.load(path))


def test_launching_is_what_is_left_once_nothing_is_waited_for(tmp_path):
    report = waiting(1_380, tmp_path)
    waits, launches = asked(report, "synchronization"), asked(report, "host-overhead")
    assert waits.predicted.ms == pytest.approx(2.77, abs=0.05)
    assert launches.predicted.ms < launches.saving_ms_per_step - waits.predicted.ms + 0.2
    assert launches.evidence[-1].endswith("3× as fast, once `synchronization` is fixed")
    named = [finding.id for finding in report.findings]
    assert named.index("synchronization") < named.index("host-overhead")


def test_where_waiting_is_why_the_host_is_late_nobody_has_to_launch_less(tmp_path):
    report = waiting(3_380, tmp_path)
    waits, launches = asked(report, "synchronization"), asked(report, "host-overhead")
    assert (waits.status, launches.status) == ("fail", "pass")
    assert waits.predicted.ms == pytest.approx(3.2, abs=0.2)
    assert any("is reported by `synchronization`" in line for line in launches.evidence)


def test_a_run_on_a_cpu_keeps_its_bounds_alone():
    report = report_of(ROOT / "sample_traces" / "cpu_convnet.json.gz")
    assert any(f.saving_ms_per_step for f in report.findings)
    assert all(isinstance(f.predicted, msgspec.UnsetType) for f in report.findings)
    assert isinstance(report.joint, msgspec.UnsetType)


def test_the_measurement_of_an_ablation_stands_beside_the_prediction(tmp_path):
    loop = Loop(**STEP, data_wait_ns=20 * MS, wait="loader")
    trace = traceprobe.load(kineto.write(loop.scenario(), tmp_path / "t.json"))
    ablation = make_ablation("io")
    report = traceprobe.analyze(trace, traceprobe.Options(ablation=ablation))
    steps = {v.name: v.step_ms.median for v in ablation.variants}
    assert {"full", "synthetic-host"} <= set(steps)
    assert asked(report, "data-wait").evidence[-1].startswith("an ablation measured ")


# In order, and in words


def finding(name, most=None, gain=None, status="warn"):
    predicted = (
        msgspec.UNSET
        if gain is None
        else PredictedSaving(ms=gain, low_ms=0.9 * gain, high_ms=1.1 * gain)
    )
    return Finding(
        id=name,
        status=status,
        title=name,
        saving_ms_per_step=most,
        saving_of=["idle_data_wait"] if name == "data-wait" else ["matmul_fp32"],
        evidence=[],
        advice=name,
        predicted=predicted,
    )


def with_findings(*findings, joint=msgspec.UNSET):
    return replace(make_report("io"), findings=list(findings), joint=joint)


def test_what_gains_more_comes_first_whatever_the_bound():
    precision, loader = finding("tf32-off", 50.0, 3.0), finding("data-wait", 20.0, 19.0)
    assert [f.id for f in first_fixes(with_findings(precision, loader))] == [
        "data-wait",
        "tf32-off",
    ]
    less = finding("data-wait", 20.0, 1.0)
    assert [f.id for f in first_fixes(with_findings(less, precision))] == ["tf32-off", "data-wait"]


def test_what_is_nothing_beside_another_is_not_done_first():
    loader, precision = finding("data-wait", 20.0, 19.0), finding("tf32-off", 0.01)
    assert [f.id for f in first_fixes(with_findings(loader, precision))] == ["data-wait"]
    assert [f.id for f in first_fixes(with_findings(precision))] == ["tf32-off"]


def test_of_what_gains_nothing_alone_the_larger_bound_comes_first():
    one, other = finding("tf32-off", 5.0, 0.0), finding("data-wait", 20.0, 0.001)
    assert sorted((one, other), key=lambda f: f.by_gain) == [other, one]


def test_a_saving_in_words():
    assert saving(finding("data-wait", 11.0, 8.1)) == "8.10 ms a step (7.29 to 8.91; up to 11.0)"
    assert saving(finding("data-wait", 11.0, 11.0)) == "11.0 ms a step (9.90 to 12.1)"
    assert saving(finding("data-wait", 11.0)) == "up to 11.0 ms a step"
    assert saving(finding("data-wait", 11.0, 0.0)) == ("little on its own (at most 11.0 ms)")
    assert saving(finding("data-wait")) == ""


def test_findings_that_save_nothing_together_are_called_that():
    fixes = [finding(name, 1.0, 0.001) for name in ("data-wait", "tf32-off")]
    joint = JointPrediction(
        findings=["data-wait", "tf32-off"], now_ms=2.02, step_ms=2.015, low_ms=1.9, high_ms=2.02
    )
    said = together(with_findings(*fixes, joint=joint), fixes)
    assert said == "These two together save almost nothing: something else limits the step."


def test_findings_together_in_words():
    fixes = [finding(name, 20.0, 10.0) for name in ("data-wait", "tf32-off", "host-overhead")]
    joint = JointPrediction(
        findings=["data-wait", "host-overhead"],
        now_ms=84.0,
        step_ms=52.0,
        low_ms=49.0,
        high_ms=56.0,
    )
    report = with_findings(*fixes, joint=joint)
    told = "84.0 → 52.0 ms a step (49.0 to 56.0)."
    assert together(report, fixes) == f"The 1st and 3rd together: {told}"
    assert together(report, [fixes[0], fixes[2]]) == f"These two together: {told}"
    assert together(report, fixes[:1]) == ""  # not all of them are shown
    assert together(replace(report, joint=msgspec.UNSET), fixes) == ""


# What holds for any report

WAITING = {"idle_data_wait", "h2d", "idle_host", "idle_sync", "idle_latency"}
"""Of which it is uncertain how long it is: there an interval may be wider than the bound."""


@pytest.mark.parametrize(
    ("joint", "problem"),
    [
        ({"step_ms": 50.0, "low_ms": 50.0}, "more together than they can"),
        ({"step_ms": 95.0, "high_ms": 96.0}, "less together than one"),
        ({"findings": ["data-wait", "sync"]}, "of a finding without one"),
    ],
)
def test_contradictions_of_a_joint_prediction_are_seen(joint, problem):
    one, other = finding("data-wait", 20.0, 15.0), finding("tf32-off", 20.0, 10.0)
    good = JointPrediction(
        findings=["data-wait", "tf32-off"], now_ms=100.0, step_ms=78.0, low_ms=76.0, high_ms=80.0
    )
    assert not list(with_findings(one, other, joint=good)._saving_problems())
    bad = with_findings(one, other, joint=replace(good, **joint))
    assert any(problem in each for each in bad._saving_problems())


@pytest.mark.parametrize(
    "left",
    [(70.0, 80.0, 79.0), (81.0, 80.0, 90.0), (-1.0, 80.0, 90.0), (70.0, 80.0, msgspec.UNSET)],
)
def test_a_step_that_is_left_outside_its_interval_is_seen(left):
    good = PredictedSaving(ms=20.0, low_ms=15.0, high_ms=22.0)
    assert not list(good.problems())
    names = ("step_low_ms", "step_ms", "step_high_ms")
    good = replace(good, **dict(zip(names, (74.0, 80.0, 85.0), strict=True)))
    assert not list(good.problems())
    (problem,) = replace(good, **dict(zip(names, left, strict=True))).problems()
    assert "leaves" in problem


def test_no_prediction_of_the_corpus_is_above_its_bound_or_class(corpus, corpus_row):
    if corpus_row["expected"] is None:
        pytest.skip("the manifest has no numbers for this file")
    report = report_of(corpus / corpus_row["file"])
    assert not list(report.problems())
    effect = report.quality.observer_effect
    for found in report.findings:
        if isinstance(found.predicted, msgspec.UnsetType):
            continue
        told = found.predicted
        assert 0 <= told.low_ms <= told.ms <= told.high_ms
        assert told.ms <= found.saving_ms_per_step + 1e-3
        if not {*found.saving_of} <= WAITING:
            assert told.high_ms <= found.saving_ms_per_step + 1e-3
        if effect is None and all(rank.long is msgspec.UNSET for rank in report.ranks):
            time = removable_ms(report.ranks, found.saving_of, straggler_of(report.run))
            assert told.high_ms <= time * (1 + 1e-3) + 1e-3
    if isinstance(report.joint, JointPrediction):
        assert report.joint.step_ms <= report.joint.now_ms


def test_what_the_first_kernel_waited_for_before_the_recording_is_not_played():
    program = Program()
    program._free[STREAM] = program.now + 40 * MS  # steps that were launched before it began
    for number in range(4):
        with program.range(f"ProfilerStep#{number}"):
            program.kernel("forward", 4 * MS).kernels(["backward"], ns=5 * MS, backward=True)
            with program.range("Optimizer.step#SGD.step"):
                program.kernel(UPDATE, MS)
    report = traceprobe.analyze(program.trace())
    (rank,) = report.ranks
    assert max(rank.replay.lag_ns) < MS
    assert predict(prepare(report), Changes(speedup={"compute": 2.0})).predicted == pytest.approx(
        5.0, rel=0.02
    )


@pytest.mark.parametrize("name", ["data_load", "prep"])
def test_a_host_that_makes_batches_beside_the_gpu_sets_the_pace_only_once_that_is_faster(name):
    """The host makes a batch in 2 ms and launches in less than 1, for steps of 7 ms."""
    program = Program()
    for number in range(6):
        with program.range(f"ProfilerStep#{number}"):
            with program.range(name):
                program.sleep(2 * MS)
            program.kernel("forward", 2 * MS).kernels(["backward"], ns=4 * MS, backward=True)
            with program.range("Optimizer.step#SGD.step"):
                program.kernel(UPDATE, MS)
    run = prepare(traceprobe.analyze(program.trace()))
    twice, tenfold = (Changes(speedup={"compute": factor}) for factor in (2.0, 10.0))
    assert predict(run, Changes()).predicted == pytest.approx(7.0, rel=0.02)
    assert predict(run, twice).predicted == pytest.approx(3.5, rel=0.02)
    assert 2.0 < predict(run, tenfold).predicted < 2.5
