"""The roofline of a run: every number by hand, in every output, and what is not known stays so."""

from __future__ import annotations

import json

import msgspec
import pytest
from msgspec.structs import replace

from tests.analyses import trace_of
from tests.rendering import points_of
from tests.report_factory import make_report
from tests.roofline_runs import TFLOP, counted_phase, counted_workload, run_on_h200
from traceprobe import UsageError, analyze
from traceprobe.model.taxonomy import GPU_METRICS
from traceprobe.options import Options
from traceprobe.records import kinds
from traceprobe.records.gpu_metrics import GpuMetrics, PhaseUtilisations, Utilisations
from traceprobe.records.peaks import MeasuredPeaks
from traceprobe.records.report import Report
from traceprobe.records.roofline import RooflineRecord, SampledUnits
from traceprobe.render import document_of
from traceprobe.render.document import Chart
from traceprobe.render.pages.roofline import lines
from traceprobe.verdict.roofline import roofline, with_limit

STEP_MS = 53.2
"""Of the reports, without a profiler."""


def of(report, work=None, *options):
    return roofline(report.ranks, report.quality, work or counted_workload(), *options)


PEAK, BANDWIDTH = 989.5, 4800.0


@pytest.fixture(scope="module")
def found():
    return of(run_on_h200())


def test_mfu_is_the_models_work_at_peak_over_the_unprofiled_step(found):
    assert found.published.tflops["bf16"] == pytest.approx(PEAK, rel=1e-3)
    assert found.step_ms == STEP_MS
    assert found.unprofiled
    assert found.mfu == pytest.approx(12 / found.published.tflops["bf16"] / STEP_MS * 1e3, rel=1e-5)
    assert found.hfu == found.mfu
    assert found.achieved_tflops == pytest.approx(12 / STEP_MS * 1e3, rel=1e-6)


def test_a_phase_has_its_rates_and_floors(found):
    forward, backward, optimizer = found.phases
    assert [p.phase for p in found.phases] == ["forward", "backward", "optimizer"]
    assert forward.tflops == pytest.approx(4 / 12 * 1e3, rel=1e-6)
    assert forward.gbps == pytest.approx(10 / 12 * 1e3, rel=1e-6)
    assert forward.intensity == pytest.approx(400)
    assert forward.math_ms == pytest.approx(4 / found.published.tflops["bf16"] * 1e3, rel=1e-5)
    assert forward.memory_ms == pytest.approx(10 / BANDWIDTH * 1e3, rel=1e-6)
    # Matrices: 4.04 ms of math hide 0.83 ms of traffic; the other 6 GB take 1.25 ms.
    assert forward.floor_ms == pytest.approx(forward.math_ms + 6 / BANDWIDTH * 1e3, rel=1e-5)
    assert backward.floor_ms == pytest.approx(backward.math_ms + 12 / BANDWIDTH * 1e3, rel=1e-5)
    assert optimizer.floor_ms == optimizer.memory_ms == pytest.approx(1.0)
    assert (optimizer.tflops, optimizer.intensity, optimizer.math_ms) == (None, None, 0)


def test_math_traffic_and_rest_make_the_step(found):
    assert found.math_ms == pytest.approx(12 / found.published.tflops["bf16"] * 1e3, rel=1e-5)
    assert found.memory_ms == pytest.approx((6 + 12 + 4.8) / BANDWIDTH * 1e3, rel=1e-5)
    assert found.math_ms + found.memory_ms + found.rest_ms == pytest.approx(STEP_MS)


def test_matrices_that_are_mostly_traffic_take_that():
    report = run_on_h200()
    thin = counted_workload(forward=counted_phase(10**10, 10**10, 8 * 10**9))
    forward = of(report, thin).phases[0]
    assert forward.floor_ms == pytest.approx(forward.memory_ms) == pytest.approx(10 / 4.8)


def test_a_phase_that_is_faster_than_its_traffic_counts_with_its_time():
    found = of(run_on_h200(), counted_workload(optimizer={"bytes": 10**12}))
    assert found.memory_ms == pytest.approx((6 + 12) / BANDWIDTH * 1e3 + 4, rel=1e-5)


def test_what_is_computed_again_counts_for_the_hardware_only():
    again = counted_workload(recompute=counted_phase(4 * TFLOP, 10**9, 10**9, model=0))
    found = of(run_on_h200({"recompute": 6}), again)
    assert found.hfu == pytest.approx(16 / 12 * found.mfu, rel=1e-4)
    assert [p.phase for p in found.phases] == ["forward", "backward", "recompute", "optimizer"]
    joined = of(run_on_h200(), again).phases
    assert [p.phase for p in joined] == ["forward", "backward", "optimizer"]
    assert joined[1].flops == {"bf16": 12 * TFLOP}


def test_graphs_have_all_passes_in_one():
    found = of(run_on_h200({"graph": 30, "forward": 0, "backward": 1}))
    graph, optimizer = found.phases
    assert (graph.phase, graph.ms, graph.flops) == ("graph", 31, {"bf16": 12 * TFLOP})
    assert optimizer.phase == "optimizer"


def test_each_precision_counts_at_its_own_peak():
    mixed = counted_workload(
        forward=counted_phase(4 * TFLOP, precision="tf32"), backward=counted_phase(8 * TFLOP)
    )
    found = of(run_on_h200(), mixed)
    peaks = found.published.tflops
    assert found.math_ms == pytest.approx(4e3 / peaks["tf32"] + 8e3 / peaks["bf16"], rel=1e-5)


def test_the_traffic_of_a_compiled_model_is_unknown_but_for_the_optimizer():
    found = of(run_on_h200(), counted_workload(compiled=True))
    assert [p.bytes for p in found.phases] == [None, None, 48 * 10**8]
    assert found.memory_ms is found.rest_ms is None
    assert found.mfu is not None
    assert any("compiled" in note for note in found.notes)


@pytest.mark.parametrize(
    ("times", "moved", "limit"),
    [
        ({"forward": 5, "backward": 10, "optimizer": 1}, 10**9, "math"),
        ({"forward": 30, "backward": 30, "optimizer": 20}, 22 * 10**10, "memory"),
        ({"forward": 30, "backward": 30, "optimizer": 20}, 10**9, "neither"),
    ],
)
def test_the_limit_is_what_explains_most_of_the_kernels(times, moved, limit):
    report = run_on_h200(times)
    found = of(report, counted_workload(forward=counted_phase(4 * TFLOP, moved, 0)))
    assert found.limit == limit
    verdict = with_limit(report.verdict, found)
    assert (verdict.bound, verdict.limit) == ("compute", limit)
    assert verdict.reasons[:-1] == report.verdict.reasons
    assert f"{100 * found.math_ms / found.kernel_ms:.0f} %" in verdict.reasons[-1]


def test_only_a_verdict_of_compute_has_a_limit(found):
    verdict = make_report("io").verdict
    assert with_limit(verdict, found) == verdict
    assert with_limit(verdict, None) == verdict


def test_the_limit_is_unknown_where_the_work_is():
    report = run_on_h200()
    found = of(report, {"name": "a program"})
    assert with_limit(report.verdict, found) == report.verdict
    assert of(run_on_h200(), counted_workload(compiled=True)).limit is None


def sampled(report, **phases):
    """The report with counters (tensor cores, memory) by phase."""
    (rank,) = report.ranks
    unknown = dict.fromkeys(GPU_METRICS)
    units = [
        PhaseUtilisations(
            phase=name, **unknown | {"tensor_active": tensor, "dram_read": read, "dram_write": 0.1}
        )
        for name, (tensor, read) in phases.items()
    ]
    metrics = GpuMetrics(
        interval_us=100.0, step=Utilisations(**unknown), phases=units, iterations=[]
    )
    return replace(
        report, ranks=[replace(rank, summary=replace(rank.summary, gpu_metrics=metrics))]
    )


@pytest.mark.parametrize(
    ("phases", "units", "limit"),
    [
        # Forward takes 12 ms, backward 24, the optimizer 4.
        ({"forward": (0.9, 0.1), "backward": (0.6, 0.2)}, (0.7, 0.2667), "math"),
        ({"forward": (0.1, 0.5), "backward": (0.4, 0.7)}, (0.3, 0.7333), "memory"),
        ({"forward": (0.9, 0.1), "backward": (0.1, 0.1)}, (0.3667, 0.2), None),
        ({"backward": (0.8, 0.1)}, (0.8, 0.2), "math"),
        ({"forward": (0.8, 0.1)}, None, None),
        ({"forward": (None, 0.1), "backward": (0.8, 0.3)}, (0.8, 0.4), "math"),
        ({"communication": (0.8, 0.1)}, None, None),
    ],
)
def test_counters_go_before_work_at_peak_rates(phases, units, limit):
    report = sampled(run_on_h200(), **phases)
    unknown = of(report, {"name": "a program"})
    expected = None if units is None else SampledUnits(tensor_active=units[0], dram=units[1])
    assert (unknown.sampled or None) == expected
    assert unknown.limit == limit
    verdict = with_limit(report.verdict, unknown)
    assert verdict.limit == (limit or msgspec.UNSET)
    estimated = of(run_on_h200()).limit
    told = with_limit(report.verdict, of(report))
    assert told.limit == (limit or estimated)
    assert ("by counters of the GPU" in " ".join(told.reasons)) == (limit is not None)
    if limit is not None:
        assert f"{100 * units[0]:.0f} %" in verdict.reasons[-1]
        assert [line for line in lines(unknown) if line.startswith("counters while kernels run")]


def test_utilisation_three_ways():
    filled = {"multiprocessors_covered": 0.9, "occupancy": 0.4}
    used = of(run_on_h200(), None, filled).utilisation
    assert used.busy == pytest.approx(42 / STEP_MS, rel=1e-5)
    assert used.covered == pytest.approx(0.9 * used.busy, rel=1e-4)
    assert used.occupancy == pytest.approx(0.4 * used.busy, rel=1e-4)
    without = of(run_on_h200(), None, {}).utilisation
    assert (without.busy, without.covered, without.occupancy) == (used.busy, None, None)


def test_a_roofline_that_contradicts_itself_is_an_error(report, found):
    assert [*report.problems()] == [*replace(report, roofline=msgspec.UNSET).problems()]
    more = replace(report, roofline=replace(found, mfu=found.hfu + 0.1))
    assert "the model has more operations than were executed" in [*more.problems()]
    less = replace(report, roofline=replace(found, rest_ms=found.rest_ms - 1))
    assert "math, memory and rest are less than the step" in [*less.problems()]


# What is not known


def test_without_work_there_is_utilisation_and_how_to_get_more():
    found = of(run_on_h200(), {"name": "a program"})
    assert (found.mfu, found.hfu, found.phases, found.math_ms) == (None, None, [], None)
    assert found.utilisation.busy is not None
    assert "--flops-per-step" in found.notes[0]


def test_an_error_of_counting_is_named_by_its_kind_alone():
    found = of(run_on_h200(), {"work_missing": "ValueError: /home/someone/secret"})
    assert "could not count it (ValueError); describe" in found.notes[0]
    hostile = of(run_on_h200(), {"work_missing": "<b>/home/someone: secret"})
    assert "could not count it (an error)" in hostile.notes[0]


@pytest.mark.parametrize("damage", ["x", [], {"forward": 3}, {"forward": {"flops": {"bf16": -1}}}])
def test_work_of_another_form_is_no_work(damage):
    found = of(run_on_h200(), {"work": damage, "flops_per_step": True})
    assert (found.phases, found.flops_per_step) == ([], None)


def test_a_device_that_is_not_in_the_table_has_rates_without_peaks():
    found = of(run_on_h200(name="NVIDIA Imaginary 9000"))
    assert (found.published, found.mfu, found.math_ms) == (None, None, None)
    assert found.achieved_tflops == pytest.approx(12 / STEP_MS * 1e3, rel=1e-6)
    assert any("--measure" in note for note in found.notes)


def test_ranks_of_different_devices_have_no_peak():
    report = run_on_h200()
    (rank,) = report.ranks
    other = replace(rank, rank=1, device=replace(rank.device, name="Tesla T4"))
    found = roofline([rank, other], report.quality, counted_workload())
    assert (found.device, found.mfu) == (None, None)


def test_a_cpu_without_work_has_no_roofline():
    assert of(run_on_h200(kind="cpu", name=None), {"name": "a program"}) is None
    assert of(run_on_h200(kind="cpu", name=None)).utilisation.busy is None


def test_kernels_that_contradict_the_settings_are_told():
    report = run_on_h200()
    (rank,) = report.ranks
    summary = replace(rank.summary, kernel_ns={"matmul_fp32": 90, "matmul_half": 10})
    report = replace(report, ranks=[replace(rank, summary=summary)])
    assert any(
        "the settings say bf16, the names of the kernels fp32" in n for n in of(report).notes
    )
    (rank,) = report.ranks
    halves = replace(rank, summary=replace(rank.summary, kernel_ns={"matmul_half": 10}))
    assert of(replace(report, ranks=[halves])).notes == []


def test_a_users_number_counts_at_the_peak_of_the_kernels():
    report = run_on_h200()
    (rank,) = report.ranks
    summary = replace(rank.summary, kernel_ns={"matmul_tf32": 90})
    report = replace(report, ranks=[replace(rank, summary=summary)])
    found = of(report, {"ranks": 2}, None, 24e12)
    tf32 = found.published.tflops["tf32"]
    assert found.mfu == pytest.approx(12e3 / tf32 / STEP_MS, rel=1e-5)
    assert found.hfu is None


# Measured peaks

MEASURED = MeasuredPeaks(
    schema_version=MeasuredPeaks.SCHEMA_VERSION,
    traceprobe_version="0.1.0",
    device="NVIDIA H200",
    device_kind="gpu",
    torch="2.11.0",
    matrix_side=8192,
    repetitions=20,
    tflops={"bf16": 800.0},
    copy_gbps=4000.0,
    h2d_gbps=50.0,
)


def test_floors_prefer_measured_peaks_and_mfu_the_published():
    plain, found = of(run_on_h200()), of(run_on_h200(), None, None, None, MEASURED)
    assert found.mfu == plain.mfu
    assert found.math_ms == pytest.approx(12 / 800 * 1e3)
    assert found.phases[-1].floor_ms == pytest.approx(4.8 / 4000 * 1e3)


def test_peaks_of_another_device_are_refused(samples):
    options = Options(peaks=changed_device("Tesla T4"))
    with pytest.raises(UsageError, match=r"measured on Tesla T4, the trace has"):
        analyze(trace_of(samples / "h200_unet_w1.json.gz"), options)


def changed_device(name):
    return replace(MEASURED, device=name)


def test_peaks_of_the_same_device_are_taken(samples):
    report = analyze(trace_of(samples / "h200_unet_w1.json.gz"), Options(peaks=MEASURED))
    assert report.roofline.measured.tflops == {"bf16": 800.0}


# Outputs


@pytest.fixture(scope="module")
def report(found):
    return replace(run_on_h200(), roofline=found)


def test_all_outputs_have_the_same_numbers(report):
    mfu = f"{100 * report.roofline.mfu:.1f} %"
    assert f"MFU {mfu}" in report.to_markdown()
    page = report.to_html()
    assert f"MFU {mfu}" in page
    assert 'id="roofline"' in page
    assert "roof of bf16" in page
    assert "nvidia-smi calls this utilisation" in page
    assert msgspec.json.decode(report.to_json(), type=Report) == report


def test_a_report_without_roofline_has_no_section():
    page = make_report().to_html()
    assert 'id="roofline"' not in page
    assert "MFU " not in page  # packed scripts may hold the letters by chance


def test_a_roofline_of_its_own_is_told_in_all_outputs(found):
    record = RooflineRecord(
        schema_version="1.0",
        traceprobe_version="0.1.0",
        headline="compute decides",
        inputs=["trace.json.gz"],
        roofline=found,
    )
    assert kinds.read(record.to_json()) == record
    told = document_of(record)
    assert told.title == f"MFU {100 * found.mfu:.1f} %"
    assert "Phases beside their floors" in record.to_html()
    assert "roof of bf16" in record.to_markdown()
    chart = next(b for b in told.sections[0].blocks if isinstance(b, Chart))
    assert chart.data["points"]["kind"][0] == "modelled"
    (x, y), (ridge, top), (_, end) = points_of(chart)["roof of bf16"]
    assert y / x == pytest.approx(top / ridge) == pytest.approx(BANDWIDTH / 1e3)
    assert top == end == found.published.tflops["bf16"]


def test_measured_peaks_are_told_in_all_outputs():
    assert kinds.read(MEASURED.to_json()) == MEASURED
    for text in (MEASURED.to_html(), MEASURED.to_markdown()):
        assert "800 TFLOP/s" in text
        assert "4,000 GB/s" in text


# Traces and the command line


def test_a_real_trace_says_how_much_of_the_gpu_its_kernels_fill(samples):
    trace = trace_of(samples / "h200_unet_w1.json.gz")
    told = {
        k: v for k, v in trace.metadata.items() if k in ("multiprocessors_covered", "occupancy")
    }
    assert all(0 < value <= 1 for value in told.values())
    used = analyze(trace).roofline.utilisation
    assert used.occupancy == pytest.approx(used.busy * told["occupancy"], rel=1e-4)
    assert used.occupancy <= used.covered <= used.busy <= 1
    silent = replace(trace, metadata={})
    assert analyze(silent).roofline.utilisation.covered is None


def test_the_command_shows_a_run(samples, tmp_path, cli):
    trace, target = str(samples / "h200_unet_w1.json.gz"), tmp_path / "roofline.json"
    done = cli("roofline", trace, "--flops-per-step", "5.15e12", "-o", target).expect(0)
    assert "MFU" in done.out
    record = kinds.read(target.read_bytes())
    assert record.roofline.flops_per_step == 5.15e12
    again = cli("render", target).expect(0)
    assert document_of(record).title in again.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a run, or use --measure"),
        (("x", "--measure"), "not both"),
        (("--measure", "--flops-per-step", "3"), "does not go with"),
        (("{report}", "--flops-per-step", "3"), "is analysed already"),
        (("{cpu}",), "has no roofline"),
        (("{cpu}", "--flops-per-step", "-3"), "must be a positive number"),
    ],
)
def test_what_makes_no_sense_is_refused(samples, tmp_path, cli, arguments, message):
    report = tmp_path / "report.json"
    report.write_text(make_report().to_json())
    places = {"report": report, "cpu": samples / "cpu_convnet.json.gz"}
    done = cli("roofline", *(a.format(**places) for a in arguments)).expect(2)
    assert message in done.err


def test_a_file_that_is_no_peaks_is_refused(samples, tmp_path, cli):
    wrong = tmp_path / "peaks.json"
    wrong.write_text(json.dumps({"kind": "comparison"}))
    trace = samples / "cpu_convnet.json.gz"
    done = cli("analyze", trace, "--peaks", wrong, "-o", "-").expect(2)
    assert "is not what `traceprobe roofline --measure -o` writes" in done.err


def test_old_reports_are_read_without_a_roofline():
    text = json.loads(make_report().to_json())
    assert "roofline" not in text
    assert isinstance(Report.from_json(json.dumps(text)).roofline, msgspec.UnsetType)
