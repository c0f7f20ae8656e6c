"""Real traces: every GPU op is read, has its kind and its launch, and every window adds up."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.analyses import report_of, trace_of
from traceprobe.errors import TraceprobeError
from traceprobe.model.codes import Kind


def wanted(row):
    if row["expected"] is None:
        pytest.skip("the manifest has no numbers for this file")
    return row["expected"]


def test_every_gpu_op_is_read_with_its_kind_and_its_launch(corpus, corpus_row):
    expected = wanted(corpus_row)
    ops = trace_of(corpus / corpus_row["file"]).gpu_ops
    for want in expected:
        mine = ops.filter(ops["device"] == want["device"])
        if want.get("pid") is not None:
            mine = mine.filter(mine["pid"] == want["pid"])
        kinds = Counter(Kind(kind).name.lower() for kind in mine["kind"])
        assert (len(mine), dict(kinds)) == (want["gpu_ops"], want["kinds"])
        assert int(mine["linked"].sum()) == want["gpu_ops_linked"]


def test_every_window_adds_up_to_the_nanosecond(corpus, corpus_row):
    wanted(corpus_row)
    for rank in report_of(corpus / corpus_row["file"]).ranks:
        for i in rank.iterations:
            if i.partition_ns:
                assert sum(ns or 0 for ns in i.partition_ns.values()) == i.end_ns - i.start_ns
        assert sum(ns or 0 for ns in rank.summary.partition_ns.values()) == rank.summary.window_ns


def find(ranks, want):
    """The device of the process that the manifest means."""
    places = [(r, r.device.index, r.pid) for r in ranks]
    return [r for r, d, p in places if d == want["device"] and want.get("pid") in (None, p)]


def test_idle_time_of_a_step_is_what_is_left(corpus, corpus_row):
    for want in wanted(corpus_row):
        (rank,) = find(report_of(corpus / corpus_row["file"]).ranks, want)
        # The manifest's numbers lie between the first and the last boundary of steps.
        parts = [i.partition_ns for i in rank.iterations[:-1] if i.partition_ns]
        if steady := want.get("steady_ns_per_step"):
            idle = sum(ns or 0 for p in parts for c, ns in p.items() if c.startswith("idle"))
            assert idle / len(parts) == pytest.approx(steady["idle"], abs=1_000)


def test_a_whole_capture_without_steps_is_accounted(corpus, corpus_row):
    for want in wanted(corpus_row):
        ranks = report_of(corpus / corpus_row["file"]).ranks
        (rank,) = find(ranks, want)
        if rank.step_marker is None:
            part, span = rank.summary.partition_ns, want["span_ns"]
            seen = {
                "window": rank.summary.window_ns,
                "exposed_comm": part["communication"] or 0,
                "exposed_h2d": part["h2d"] or 0,
                "exposed_d2h": part["d2h"] or 0,
                "exposed_mem": part["memory"] or 0,
            }
            assert seen == pytest.approx({name: span[name] for name in seen}, abs=1_000)


@pytest.mark.parametrize("name", ["no_cuda_rows_2024_6", "no_cuda_tables_2021"])
def test_a_capture_without_gpu_work_says_why(corpus, name):
    with pytest.raises(TraceprobeError, match=r"no GPU work|no CUDA tables"):
        trace_of(corpus / "nsys" / f"{name}.sqlite.gz")


def test_the_pitch_of_sc22_is_that_of_the_manifest(corpus):
    rows = json.loads((corpus / "manifest.json").read_text())
    (row,) = (r for r in rows if r["file"] == "nsys/sc22_baseline.sqlite.gz")
    (rank,) = report_of(corpus / row["file"]).ranks
    pitch = row["expected"][0]["steady_ns_per_step"]["window"] / 1e6
    assert rank.summary.step_ms.mean == pytest.approx(pitch, rel=0.001)
