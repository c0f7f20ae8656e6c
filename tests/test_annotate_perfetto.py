"""Perfetto itself reads what was added, all of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.browsing import browser
from tests.chrome_trace import events_of, is_ours
from tests.conftest import ROOT
from tests.perfetto import TraceProcessor
from traceprobe.annotate.annotate_trace import annotate

__all__ = ["browser"]
pytestmark = pytest.mark.slow
INPUTS = {
    "kineto": ["h200_unet_w1.json.gz"],
    "ranks": ["profile_wide_mlp.rank0.json.gz", "profile_wide_mlp.rank1.json.gz"],
    "nsys": ["h200_gpt2_graph_level.sqlite.gz"],
}
SLICES = """
select process.name, thread.name, count(*), sum(dur), max(depth) from slice
join thread_track on slice.track_id = thread_track.id
join thread using (utid) join process using (upid)
where slice.category = 'traceprobe' group by 1, 2
"""
COUNTERS = """
select process.name, track.name, count(*) from counter
join process_counter_track track on counter.track_id = track.id
join process using (upid) group by 1, 2
"""
DROPPED = "select value from stats where name = 'slice_drop_overlapping_complete_event'"


def dropped(trace):
    return sum(value for (value,) in trace.rows(DROPPED))


@pytest.mark.parametrize("name", INPUTS)
def test_perfetto_has_every_slice_and_value(browser, tmp_path, name):
    paths = [ROOT / "sample_traces" / each for each in INPUTS[name]]
    target = tmp_path / "annotated.json.gz"
    annotate(paths, target)
    events = [event for event, _ in events_of(target)]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    own = [event for event in events if is_ours(event)]
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in own if e["name"] == "thread_name"}
    shown = [event for event in own if event["ph"] in "Xi"]
    slices = Counter((processes[e["pid"]], threads[e["pid"], e["tid"]]) for e in shown)
    values = Counter(
        (processes[e["pid"]], f"{e['name']} {next(iter(e['args']))}") for e in own if e["ph"] == "C"
    )
    trace = TraceProcessor(browser, target)
    found = trace.rows(SLICES)
    assert {(process, track): count for process, track, count, *_ in found} == slices
    assert {depth for _, track, *_, depth in found if track != "verdict and findings"} == {0}
    assert {(process, name): n for process, name, n in trace.rows(COUNTERS)} == values
    if (
        name == "kineto"
    ):  # kernels that overlap on a stream are dropped with or without what is ours
        assert dropped(trace) == dropped(TraceProcessor(browser, Path(paths[0])))
    else:
        assert dropped(trace) == 0
    ((headline,),) = trace.rows(
        "select distinct display_value from slice join args using (arg_set_id)"
        " where category = 'traceprobe' and key = 'args.headline'"
    )
    assert "step" in headline
