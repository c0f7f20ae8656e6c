"""Real traces, against reference numbers that another reader computed."""

from __future__ import annotations

import pytest

import traceprobe
from tests.analyses import report_of, trace_of

COMPUTE = {"forward", "backward", "recompute", "optimizer", "graph", "input", "unattributed"}
PART = {
    "exposed_comm": {"communication"},
    "exposed_h2d": {"h2d"},
    "exposed_d2h": {"d2h"},
    "exposed_mem": {"memory"},
    "compute": COMPUTE,
}


def mean(windows, table, names):
    return sum(v or 0 for i in windows for k, v in getattr(i, table).items() if k in names) / len(
        windows
    )


def test_the_numbers_of_the_manifest_come_out(corpus, corpus_row):
    if corpus_row["expected"] is None:
        pytest.skip("the manifest has no numbers for this file")
    report = report_of(corpus / corpus_row["file"])
    for want in corpus_row["expected"]:
        (rank,) = [
            r
            for r in report.ranks
            if r.device.index == want["device"] and want.get("pid") in (None, r.pid)
        ]
        steady = want.get("steady_ns_per_step")
        if not steady:
            continue
        # The manifest's numbers lie between the first and the last boundary of steps.
        windows = [i for i in rank.iterations[:-1] if i.partition_ns]
        length = sum(i.end_ns - i.start_ns for i in windows) / len(windows)
        assert length == pytest.approx(steady["window"], abs=1_000)
        for name, classes in PART.items():
            assert mean(windows, "partition_ns", classes) == pytest.approx(steady[name], abs=1_000)
        if "truncated" in corpus_row["file"]:
            continue
        for phase, busy in (want.get("phase_busy_ns_per_step") or {}).items():
            near = pytest.approx(busy, rel=0.005, abs=2e-4 * steady["window"])
            assert mean(windows, "busy_ns", {phase}) == near
        counts = [str(i.collectives) for i in rank.iterations if i.collectives]
        if want.get("collectives_per_step"):
            assert {c: counts.count(c) for c in set(counts)} == want["collectives_per_step"]


def test_ops_and_links_are_counted_as_in_the_manifest(corpus, corpus_row):
    if corpus_row["expected"] is None:
        pytest.skip("the manifest has no numbers for this file")
    report = report_of(corpus / corpus_row["file"])
    assert report.quality.gpu_ops == sum(e["gpu_ops"] for e in corpus_row["expected"])
    assert report.quality.gpu_ops_linked == sum(e["gpu_ops_linked"] for e in corpus_row["expected"])


def test_the_bound_is_the_one_that_is_right(corpus, corpus_row):
    if corpus_row["bound"] is None:
        pytest.skip("several bounds are defensible")
    run = corpus_row.get("run") or []
    path = corpus / corpus_row["file"]
    if run and corpus_row["format"] == "kineto":
        options = traceprobe.Options(unprofiled_step_ms=run[0]["step_ms_plain"])
        report = traceprobe.analyze(trace_of(path), options)
    else:
        report = report_of(path)
    assert report.verdict.bound == corpus_row["bound"]


def test_a_profile_that_inflates_overhead_is_not_believed(corpus):
    report = report_of(corpus / "kineto" / "h200_gpt2_bf16.json.gz")
    assert report.verdict.bound in ("overhead", "inconclusive")
    assert report.verdict.confidence <= 0.3
    assert "observer-effect" in {w.code for w in report.quality.warnings}


@pytest.mark.parametrize(
    "name",
    [
        "sc21_dali_amp",
        "sc21_4gpu_nobroadcast_truncated",
        "sc22_baseline",
        "sc22_4gpu_baseline",
        "sc23_4workers",
    ],
)
def test_nearly_all_kernel_time_has_a_phase_without_a_backward_range(corpus, name):
    (rank,) = report_of(corpus / "nsys" / f"{name}.sqlite.gz").ranks
    assert rank.summary.attributed_share >= 0.98


@pytest.mark.parametrize(
    ("nsys", "kineto", "rank"),
    [
        ("h200_unet_w1", "h200_unet_w1", 0),
        ("h200_gpt2_bf16", "h200_gpt2_bf16", 0),
        ("h200_ddp2_gpt2_sock", "h200_ddp2_gpt2_sock.rank0", 0),
        ("h200_ddp2_gpt2_sock", "h200_ddp2_gpt2_sock.rank1", 1),
    ],
)
def test_both_profilers_saw_the_same_phases(corpus, nsys, kineto, rank):
    def busy(path, index):
        (found,) = [r for r in report_of(path).ranks if r.device.index == index]
        steps = found.summary.iterations_used
        return {p: found.summary.busy_ns[p] / steps for p in ("forward", "backward", "optimizer")}

    one = busy(corpus / "nsys" / f"{nsys}.sqlite.gz", rank)
    other = busy(corpus / "kineto" / f"{kineto}.json.gz", rank)
    assert one == pytest.approx(other, rel=0.01)


def test_the_loader_of_sc22_is_found_between_the_steps(corpus):
    report = report_of(corpus / "nsys" / "sc22_baseline.sqlite.gz")
    (rank,) = report.ranks
    summary = rank.summary
    per_step = {
        k: round(v / summary.iterations_used / 1e6, 1) for k, v in summary.busy_ns.items() if v
    }
    assert report.verdict.bound == "io"
    assert any("between steps" in reason for reason in report.verdict.reasons)
    assert round(summary.step_ms.mean) == 765
    assert per_step["forward"] == 42.1
    assert per_step["backward"] == 57.9
    assert per_step["optimizer"] == 7.3
    assert per_step["h2d"] == 22.8


def test_the_all_reduces_of_sc22_are_counted_and_mostly_hidden(corpus):
    (rank,) = report_of(corpus / "nsys" / "sc22_4gpu_baseline.sqlite.gz").ranks
    assert rank.summary.collectives_per_step == 8
    assert 92 <= rank.summary.communication.overlap_pct <= 93
