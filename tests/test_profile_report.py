"""What `traceprobe profile` makes of the traces that it recorded."""

from __future__ import annotations

import gc
import weakref

import pytest

from tests.analyses import report_of
from tests.conftest import ROOT
from traceprobe.ingest.read_trace import read_trace
from traceprobe.pipeline import files
from traceprobe.pipeline import trace_part as part
from traceprobe.sweep.recording import analyze_recording

PAIR = [ROOT / "sample_traces" / f"h200_collectives.rank{n}.json.gz" for n in (0, 1)]


@pytest.fixture(params=[1, 2], ids="{} cores".format)
def cores(request, monkeypatch):
    monkeypatch.setattr(files, "cores", lambda: request.param)


def test_the_report_is_that_of_all_ranks(cores, tmp_path):
    made = analyze_recording(PAIR, tmp_path)
    assert made.to_json() == report_of(*PAIR).to_json()
    assert (tmp_path / "report.json").read_text() == made.to_json()


def test_a_damaged_rank_costs_that_rank(cores, tmp_path):
    damaged = tmp_path / "rank1.json.gz"
    damaged.write_bytes(PAIR[1].read_bytes()[:11] + bytes(99))
    made = analyze_recording([PAIR[0], damaged], tmp_path)
    assert [lost.name for lost in made.quality.lost] == ["rank1.json.gz"]
    assert [rank.rank for rank in made.ranks] == [0]


def test_one_trace_at_a_time_is_in_memory(tmp_path, monkeypatch):
    seen = []

    def loaded(*arguments, **named):
        gc.collect()
        assert all(frame() is None for frame in seen)
        trace = read_trace(*arguments, **named)
        seen.append(weakref.ref(trace.gpu_ops))
        return trace

    monkeypatch.setattr(files, "cores", lambda: 1)
    monkeypatch.setattr(part, "read_trace", loaded)
    made = analyze_recording(PAIR, tmp_path)
    assert len(made.ranks) == len(seen) == 2
