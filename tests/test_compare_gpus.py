"""One workload on several devices: their order, the peak that explains it, and what is unknown."""

from __future__ import annotations

import json

import msgspec
import pytest
from msgspec.structs import replace

from tests.observed_runs import run_on
from tests.rendering import points_of
from tests.report_factory import (
    HOSTILE,
    PARTITIONS,
    make_hostile_report,
    make_rank,
    make_report,
)
from traceprobe.compare import peaks
from traceprobe.compare.gpus import UnknownPrice, compare_gpus
from traceprobe.compare.run import Observed, observe
from traceprobe.records import kinds
from traceprobe.records.gpus import GpuComparison
from traceprobe.records.rank import DeviceInfo
from traceprobe.records.report import ObserverEffect
from traceprobe.render import document_of
from traceprobe.verdict import gpu_specs as gpus

FLEET = ("Tesla T4", "NVIDIA A40", "NVIDIA A100-SXM4-40GB", "NVIDIA H200")


def by_peak(peak, names=FLEET, **more):
    """Runs whose compute time is inversely proportional to a peak."""
    return [run_on(name, 5000 / gpus.find_gpu(name).peaks[peak], **more) for name in names]


def codes(found):
    return [caution.code for caution in found.cautions]


def labels(found):
    return [contender.run.label for contender in found.contenders]


def test_the_fastest_per_device_and_sample_goes_first():
    """Eight GPUs do more in a second than one, each of them less; batches differ too."""
    found = compare_gpus(
        [
            run_on("NVIDIA A40", 100, label="one", samples=64),
            run_on("NVIDIA A40", 120, label="eight", samples=512, ranks=8),
            run_on("NVIDIA A40", 150, label="large", samples=128),
        ]
    )
    assert (found.per, labels(found)) == ("sample", ["large", "one", "eight"])
    rates = [c.rate for c in found.contenders]
    assert rates == pytest.approx([128e3 / 150, 640, 64e3 / 120], rel=0.01)
    assert [c.compute_ms for c in found.contenders] == pytest.approx(
        [150 / 128, 100 / 64, 120 / 64], rel=0.01
    )
    assert found.contenders[2].relative == pytest.approx(150 / 128 / (120 / 64), rel=0.01)
    assert found.headline.startswith("large (A40) is fastest: 854 samples/s per device, 1.60× as")


def test_without_batches_everything_is_per_step_and_says_so():
    found = compare_gpus([run_on("NVIDIA A40", 100), run_on("NVIDIA L4", 50, samples=None)])
    assert found.per == "step"
    assert codes(found) == ["unknown-batches"]
    assert found.contenders[0].rate == pytest.approx(20, rel=0.01)
    assert "50.0 ms per step, 2× as fast as" in found.headline


def test_a_lead_within_the_noise_is_none():
    close = compare_gpus(
        [run_on("NVIDIA A40", 100, spread=0.1), run_on("NVIDIA A10", 100.5, spread=0.1)]
    )
    clear = compare_gpus([run_on("NVIDIA A40", 100), run_on("NVIDIA A10", 120)])
    assert "equally fast" in close.headline
    assert clear.headline.startswith("NVIDIA A40 is fastest: 640 samples/s per device")


def test_times_without_a_profiler_decide_where_they_are_known():
    """As traced the A40 is faster: its profiler costs less."""
    found = compare_gpus(
        [timed(run_on("NVIDIA A40", 100), 90), timed(run_on("NVIDIA A10", 110), 70)]
    )
    assert found.headline.startswith("NVIDIA A10 is fastest: 914 samples/s per device")
    assert codes(found) == []
    assert codes(compare_gpus([timed(run_on("NVIDIA A40", 100), 90), run_on("NVIDIA A10", 1)])) == [
        "different-bases"
    ]


def timed(run, ms):
    """The same run, of which a calibration has timed the step."""
    effect = ObserverEffect(profiled_step_ms=1.0, unprofiled_step_ms=ms, ratio=1.0)
    quality = replace(run.report.quality, observer_effect=effect)
    return Observed(run.label, replace(run.report, quality=quality), run.step_ms, run.classes)


@pytest.mark.parametrize(
    ("precision", "peak"), [("fp32", "fp32"), ("tf32", "tf32"), ("fp16", "half")]
)
def test_the_peak_that_sets_the_time_explains_it(precision, peak):
    """T4 has no TF32, so its fp32 peak counts; of the others all have all."""
    names = FLEET if precision != "tf32" else FLEET[1:]
    found = compare_gpus(by_peak(precision, names, precision=precision))
    assert found.explained_by == peak
    assert found.fits[0].peak == peak
    assert found.fits[0].agreement == 1
    assert found.fits[0].spread == pytest.approx(1, abs=0.02)
    assert found.fits[0].slope == pytest.approx(1, abs=0.02)
    assert found.fits[0].r2 > 0.999


def test_bandwidth_explains_what_it_limits():
    names = ("Tesla T4", "NVIDIA A40", "NVIDIA GeForce RTX 3090", "NVIDIA H200")
    runs = [run_on(name, 1e4 / gpus.find_gpu(name).bandwidth_gbps) for name in names]
    found = compare_gpus(runs)
    assert found.explained_by == "bandwidth"
    assert "memory bandwidth peak explains" in found.explanation


def test_a_gpu_without_tf32_is_as_fast_at_it_as_in_fp32():
    v100, *rest = ("Tesla V100-SXM2-16GB", "NVIDIA A40", "NVIDIA A100-SXM4-40GB")
    tf32, fp32 = {"matmul_tf32": 9}, {"matmul_fp32": 9}
    runs = by_peak("tf32", rest, kernels=tf32, precision="tf32")
    runs.append(run_on(v100, 5000 / 15.7, kernels=fp32, precision="tf32"))
    found = compare_gpus(runs)
    assert found.explained_by == "tf32"
    assert "different-precisions" not in codes(found)
    assert any(text.endswith("it has no TF32") for text in found.points)
    runs.append(run_on("NVIDIA H200", 10, kernels={"matmul_half": 9}, precision="bf16"))
    assert "different-precisions" in codes(compare_gpus(runs))


def test_peaks_that_cannot_be_told_apart_are_all_named():
    """A100 of 40 and 80 GB have one fp32 peak; all peaks of H200 are higher."""
    runs = by_peak("tf32", ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA H200"))
    found = compare_gpus(runs)
    assert found.explained_by in {"tf32", "half"}
    assert "explains them as well" in found.explanation


def test_an_order_against_all_peaks_is_explained_by_none():
    names = ("Tesla T4", "NVIDIA A10", "NVIDIA A40", "NVIDIA H200")
    found = compare_gpus([run_on(name, ms) for name, ms in zip(names, (1, 2, 3, 4), strict=True)])
    assert found.explained_by is None
    assert found.explanation.startswith("No peak explains")
    assert all(fit.agreement == -1 for fit in found.fits)


def test_different_precisions_are_not_explained_by_one_peak():
    runs = by_peak("fp32", FLEET[1:3], kernels={"matmul_fp32": 9})
    found = compare_gpus([*runs, run_on("NVIDIA H200", 1, kernels={"matmul_half": 9})])
    assert found.fits
    assert found.explained_by is None
    assert "different-precisions" in codes(found)


@pytest.mark.parametrize(
    ("count", "words", "ratios"),
    [(1, "One run", set()), (2, "cannot be decided", {"compute", *peaks.PEAKS})],
)
def test_fewer_than_three_devices_decide_nothing(count, words, ratios):
    found = compare_gpus(by_peak("fp32", FLEET[:count]))
    assert (found.fits, found.explained_by) == ([], None)
    assert words in found.explanation
    assert set(found.ratios) == ratios


def test_ratios_are_of_the_fastest_over_the_slowest():
    found = compare_gpus([run_on("NVIDIA A40", 100), run_on("NVIDIA A100-SXM4-40GB", 50)])
    assert found.ratios == pytest.approx(
        {"compute": 2, "fp32": 0.521, "tf32": 2.086, "half": 2.084, "bandwidth": 2.234}, rel=0.01
    )


def test_many_runs_of_one_device_are_one_device():
    runs = [run_on("NVIDIA A40", 100 + n, label=str(n)) for n in range(4)]
    found = compare_gpus(runs)
    assert (found.fits, found.ratios) == ([], {})
    assert "here is 1" in found.explanation


def test_a_device_that_is_not_in_the_table_is_ranked_without_peaks():
    found = compare_gpus([*by_peak("fp32"), run_on("NVIDIA H20", 1)])
    first = found.contenders[0]
    assert (first.device, first.hardware) == ("H20", None)
    assert codes(found) == ["unknown-device"]
    assert all(fit.devices <= 4 for fit in found.fits)
    assert found.explained_by == "fp32"


def test_a_device_without_a_name_is_known_by_its_facts():
    facts = {"multiprocessors": 304, "memory_bytes": 206_141_652_992, "warp_size": 64}
    device = DeviceInfo(index=0, name=None, kind="gpu", capability="9.4", **facts)
    hardware = compare_gpus([run_on(device, 10)]).contenders[0].hardware
    assert (hardware.name, hardware.matched) == ("MI300X", "fingerprint")


def test_a_run_on_several_kinds_of_devices_has_no_peaks():
    run = run_on("NVIDIA A40", 100, ranks=2)
    ranks = run.report.ranks
    other = replace(ranks[1], device=DeviceInfo(index=1, name="NVIDIA L4", kind="gpu"))
    run = Observed("both", replace(run.report, ranks=[ranks[0], other]), run.step_ms, run.classes)
    found = compare_gpus([run])
    assert found.contenders[0].hardware is None
    assert codes(found) == ["mixed-devices"]


def test_a_slice_as_fast_as_a_smaller_gpu_is_explained_by_its_part():
    found = compare_gpus(
        [
            run_on("NVIDIA A40", 100),
            run_on("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 105),
            run_on("NVIDIA A100-SXM4-40GB", 40),
        ]
    )
    (point,) = [text for text in found.points if "computes as fast as the whole A40" in text]
    assert point.endswith(
        "of 42 of 108 multiprocessors its peaks are fp32 7.58 to 37.4, TF32 60.7 to 74.8, "
        "16-bit 121 to 150 TFLOP/s, 778 to 696 GB/s"
    )
    part = found.contenders[2].hardware
    assert (part.slice, part.part) == ("3g.20gb", pytest.approx(42 / 108, rel=1e-4))


def test_no_word_of_a_slice_that_is_faster_or_of_its_own_gpu():
    slow = compare_gpus(
        [run_on("NVIDIA A40", 100), run_on("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 300)]
    )
    own = compare_gpus(
        [run_on("NVIDIA A100-SXM4-40GB", 100), run_on("NVIDIA A100-SXM4-40GB MIG 4g.20gb", 100)]
    )
    assert not any("computes as fast" in text for found in (slow, own) for text in found.points)


def test_waiting_for_data_is_told_with_its_workers():
    found = compare_gpus(
        [
            run_on("NVIDIA A40", 95, wait=5, workers=16),
            run_on("NVIDIA H200", 40, wait=160, bound="io", workers=2),
            run_on("NVIDIA L4", 500, wait=1, workers=4),
        ]
    )
    (waiting,) = [text for text in found.points if text.startswith("Waiting for data")]
    assert waiting == (
        "Waiting for data, of the step: NVIDIA A40 5 %, NVIDIA H200 80 % (workers: 16, 2)"
    )
    (loader,) = [text for text in found.points if "its pace is that of its loader" in text]
    assert loader.startswith("NVIDIA H200 (H200 SXM) is I/O-bound")
    assert loader.endswith("up to 1,600 samples/s per device")
    (order,) = [text for text in found.points if text.startswith("By compute time alone")]
    assert order.index("H200") < order.index("A40") < order.index("L4")


def test_the_order_is_not_explained_twice_where_compute_time_has_the_same():
    assert not any("compute time alone" in text for text in compare_gpus(by_peak("fp32")).points)


def test_a_precision_that_did_not_run_is_told():
    mixed = {"matmul_fp32": 6, "matmul_tf32": 3, "other": 90}
    found = compare_gpus([run_on("NVIDIA A40", 100, kernels=mixed, precision="tf32")])
    assert found.contenders[0].ran == "fp32"
    assert any("asked for tf32" in text and "without tensor cores" in text for text in found.points)


@pytest.mark.parametrize(
    ("kernels", "asked", "ran"),
    [
        ({"matmul_unknown": 9}, "tf32", None),
        ({"matmul_fp32": 3, "matmul_tf32": 3, "matmul_half": 3}, "tf32", None),
        ({"matmul_tf32": 9, "other": 90}, "tf32", "tf32"),
        ({"matmul_unaligned": 5, "matmul_half": 1, "matmul_fp32": 4}, "fp16", "half"),
        ({"matmul_half": 9}, "bf16", "half"),
    ],
)
def test_a_precision_that_ran_or_is_not_known_is_not(kernels, asked, ran):
    found = compare_gpus([run_on("NVIDIA A40", 100, kernels=kernels, precision=asked)])
    assert (found.contenders[0].ran, found.points) == (ran, [])


def test_fp32_beside_16_bits_is_another_precision_without_tf32_too():
    t4, a40 = {"matmul_fp32": 9}, {"matmul_half": 9}
    found = compare_gpus(
        [run_on("Tesla T4", 100, kernels=t4), run_on("NVIDIA A40", 50, kernels=a40)]
    )
    assert codes(found) == ["different-precisions"]


def test_other_settings_than_the_device_s_are_told():
    base = {"precision": "tf32", "compile": "off", "workers": 4}
    found = compare_gpus(
        [
            run_on("NVIDIA A40", 100, **base),
            run_on("NVIDIA L4", 200, **{**base, "compile": "default"}),
        ]
    )
    assert codes(found) == ["different-settings"]
    assert "compile" in found.cautions[0].message
    assert (
        compare_gpus(
            [run_on("NVIDIA A40", 1, **base), run_on("NVIDIA L4", 2, **base, seed=1)]
        ).cautions
        == []
    )


def test_costs_are_per_million_samples_of_one_device():
    found = compare_gpus(
        [
            run_on("NVIDIA A40", 100, label="a"),
            run_on("NVIDIA H200", 25, label="b", ranks=2, samples=128),
        ],
        {"nvidia a40": 0.5, "b": 3.6},
    )
    b, a = found.contenders
    assert (a.usd_per_hour, b.usd_per_hour) == (0.5, 3.6)
    assert a.usd_per_million == pytest.approx(0.5e6 / 3600 / 640, rel=0.01)
    assert b.usd_per_million == pytest.approx(3.6e6 / 3600 / 2560, rel=0.01)
    assert found.points[0].startswith("Cheapest: a (A40), $0.217 a million samples; dearest b")


def test_a_label_goes_before_a_device_and_a_slice_has_its_own_price():
    runs = [
        run_on("NVIDIA H200", 25, label="spot"),
        run_on("NVIDIA H200", 26, label="reserved"),
        run_on("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 99, label="part"),
    ]
    found = compare_gpus(runs, {"spot": 1.0, "H200": 3.0, "A100 SXM4 40GB MIG 3g.20gb": 0.4})
    assert [c.usd_per_hour for c in found.contenders] == [1.0, 3.0, 0.4]


def test_a_price_for_nothing_is_refused():
    with pytest.raises(UnknownPrice, match=r"A30: no run and no device .* A40"):
        compare_gpus([run_on("NVIDIA A40", 100)], {"A30": 1.0})
    with pytest.raises(UnknownPrice):  # what the whole GPU costs, its slice does not
        compare_gpus(
            [run_on("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 9, label="x")], {"A100 SXM4 40GB": 1.0}
        )


def test_efficiency_needs_the_operations_of_the_model():
    kernels = {"matmul_tf32": 9}
    run = run_on("NVIDIA A100-SXM4-40GB", 100, kernels=kernels, precision="tf32", ranks=2)
    assert compare_gpus([run]).contenders[0].achieved_tflops is None
    workload = {**run.report.workload, "flops_per_step": 10.3e12}
    told = Observed("x", replace(run.report, workload=workload), run.step_ms, run.classes)
    contender = compare_gpus([told]).contenders[0]
    assert contender.achieved_tflops == pytest.approx(51.5, rel=0.01)
    assert contender.efficiency == pytest.approx(0.33, rel=0.01)


def test_points_that_lie_on_a_line_fit_it():
    exact = [peaks.Point(x**0.5, {"fp32": x}) for x in (1.0, 4.0, 16.0)]
    (fit,) = peaks.fits(exact)
    assert (fit.slope, fit.r2, fit.agreement, fit.spread) == (0.5, 1.0, 1.0, 4.0)


def test_devices_of_equal_peaks_are_in_no_order():
    same = [(1.0, 1.0), (2.0, 1.0), (3.0, 2.0)]
    points = [peaks.Point(speed, {"fp32": x, "bandwidth": speed}) for speed, x in same]
    assert {fit.peak: fit.agreement for fit in peaks.fits(points)} == {"bandwidth": 1, "fp32": 1}


def test_a_peak_that_is_the_same_on_all_devices_is_left_out():
    a100 = ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe")
    found = compare_gpus([run_on(name, 1e4 / gpus.find_gpu(name).bandwidth_gbps) for name in a100])
    assert [fit.peak for fit in found.fits] == ["bandwidth"]


def test_the_order_goes_before_the_fit():
    table = [(1.0, 1.0, 1.0), (2.0, 20.0, 3.1), (3.0, 400.0, 3.0)]
    points = [peaks.Point(speed, {"fp32": x, "tf32": y}) for speed, x, y in table]
    first, second = peaks.fits(points)
    assert (first.peak, second.peak) == ("fp32", "tf32")
    assert first.spread > second.spread


def test_a_peak_that_fits_worse_does_not_explain_as_well():
    table = [(1.0, 1.0, 1.0), (2.0, 2.0, 3.0), (3.0, 3.0, 9.0)]
    points = [peaks.Point(speed, {"fp32": x, "tf32": y}) for speed, x, y in table]
    assert [fit.peak for fit in peaks.best(peaks.fits(points))] == ["fp32"]


def test_a_peak_that_not_all_devices_have_explains_nothing():
    """All but the T4 follow their bf16 peak exactly; the T4 has none."""
    runs = by_peak("bf16", FLEET[1:], precision="bf16")
    found = compare_gpus([*runs, run_on("Tesla T4", 100, precision="bf16")])
    last = found.fits[-1]
    assert (last.peak, last.devices, last.spread) == ("half", 3, pytest.approx(1, abs=0.02))
    assert [fit.devices for fit in found.fits[:-1]] == [4, 4, 4]
    assert found.explained_by != "half"


def test_the_json_comes_back_as_it_went(tmp_path):
    found = compare_gpus(by_peak("fp32"), {"T4": 0.35})
    assert kinds.read(found.to_json()) == found
    assert isinstance(kinds.read(found.to_json()), GpuComparison)
    assert json.loads(found.to_json())["kind"] == "gpus"


def test_the_document_shows_every_run_and_adds_up():
    found = compare_gpus([*by_peak("fp32"), run_on("NVIDIA H20", 30, wait=10)], {"T4": 0.35})
    told = document_of(found)
    assert [section.id for section in told.sections][:3] == ["ranking", "phases", "peaks"]
    ranking = told.sections[0].blocks[0]
    assert len(ranking.rows) == 5
    assert all(len(row) == len(ranking.head) for row in ranking.rows)
    (bars,) = told.sections[1].blocks
    for bar, contender in zip(bars.bars, found.contenders, strict=True):
        total = sum(piece.value for piece in bar.pieces)
        assert total == pytest.approx(1e3 / contender.rate, rel=0.01)
    curves = points_of(told.sections[2].blocks[-1])
    assert set(curves) == {
        "fp32",
        "TF32",
        "16-bit",
        "memory bandwidth",
        "proportional",
    }
    assert all(min(x for x, _ in points) > 0 for points in curves.values())


@pytest.mark.parametrize("output", ["to_html", "to_markdown"])
def test_names_from_traces_stay_text(output):
    runs = [observe(make_hostile_report(), name) for name in HOSTILE[:3]]
    text = getattr(compare_gpus(runs), output)()
    assert "<img src=x" not in text.replace("&lt;", "")
    assert "\x1b" not in text


@pytest.fixture
def reports(tmp_path):
    for name, bound in (("a40", "compute"), ("l4", "io")):
        ranks = [make_rank(PARTITIONS[bound], name=f"NVIDIA {name.upper()}")]
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_text(make_report(bound, ranks=ranks).to_json())
    return tmp_path / "a40", tmp_path / "l4"


def test_the_command_writes_all_outputs(cli, reports, tmp_path):
    done = cli("gpus", *reports, "--price", "A40=0.5", "-o", "f.html", "-o", "f.md", "-o", "f.json")
    assert "wrote f.html" in done.expect(0).err
    found = kinds.read((tmp_path / "f.json").read_bytes())
    assert [c.usd_per_hour for c in found.contenders] == [0.5, None]
    assert "a40" in (tmp_path / "f.md").read_text()
    assert "a40" in done.out


def test_the_command_s_json_can_be_rendered_again(cli, reports, tmp_path):
    cli("gpus", *reports, "-o", "f.json", "-o", "f.md", "-q").expect(0)
    cli("render", "f.json", "-o", "g.md").expect(0)
    assert (tmp_path / "f.md").read_text() == (tmp_path / "g.md").read_text()


@pytest.mark.parametrize(
    ("price", "words"),
    [
        ("A40", "write NAME=USD_PER_HOUR"),
        ("=3", "write NAME=USD_PER_HOUR"),
        ("A40=-1", "write NAME=USD_PER_HOUR"),
        ("A40=nan", "write NAME=USD_PER_HOUR"),
        ("A40=inf", "write NAME=USD_PER_HOUR"),
        ("H200=3", "no run and no device has this name; A40, L4, a40, l4 do"),
    ],
)
def test_a_price_that_means_nothing_is_a_usage_error(cli, reports, price, words):
    assert words in cli("gpus", *reports, "--price", price).expect(2).err


def test_a_price_given_twice_is_a_usage_error(cli, reports):
    done = cli("gpus", *reports, "--price", "A40=1", "--price", "A40=2")
    assert "given twice" in done.expect(2).err


def test_records_refuse_what_they_do_not_know():
    text = compare_gpus([run_on("NVIDIA A40", 100)]).to_json().replace('"sample"', '"hour"')
    with pytest.raises(msgspec.ValidationError):
        kinds.read(text)
