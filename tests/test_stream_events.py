"""Event records, waits between streams and waits of the host: the rows of `Trace.stream_events`."""

from __future__ import annotations

import json
import sqlite3

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.builders import kineto, nsight
from tests.builders.scenario import PID, Noted, Process, Script, merge
from traceprobe.anonymise.anonymise_trace import anonymise_trace
from traceprobe.ingest.read_trace import read_trace
from traceprobe.model.codes import UNKNOWN, StreamEvent
from traceprobe.model.events import STREAM_EVENTS
from traceprobe.slicing.slice_trace import slice_trace

MS = 1_000_000
US = 1_000
RECORD, WAIT, HOST = (int(k) for k in StreamEvent)
OLD, NEW = "3.7.2", "3.24.0"
"""Schemas of Nsight without and with numbers of records."""


def script(process=None):
    """Two streams and a step, with a call between its launches."""
    found = Script() if process is None else Script(process)
    found.range("step 0", 0, 10 * MS).range("step 1", 10 * MS, 20 * MS)
    for n in range(4):
        at = n * 5 * MS
        found.op("kernel", at + MS, at + 2 * MS, (at, at + 10 * US))
        found.op("comm", at + 2 * MS, at + 3 * MS, (at + 20 * US, at + 30 * US), stream=20)
    return found


def waits(serials=True):
    """One event recorded twice, and a wait after each; then the host waits in every way."""
    found = script()
    number = {"serial": 1} if serials else {}
    again = {"serial": 2} if serials else {}
    calls = [
        ("cudaEventRecordWithFlags", Noted(stream=7, event=3, **number)),
        ("cudaStreamWaitEvent", Noted(stream=20, event=3, **number)),
        ("cudaEventRecord", Noted(stream=20, event=3, **again)),
        ("cudaStreamWaitEvent", Noted(stream=7, event=3, **again)),
        ("cudaEventSynchronize", Noted(event=3, **again)),
        ("cudaEventQuery", Noted(event=3, **again)),
        ("cudaStreamSynchronize", Noted(stream=7)),
        ("cudaDeviceSynchronize", Noted()),
    ]
    for n, (api, noted) in enumerate(calls):
        found.call(api, 3 * MS + n * 10 * US, 3 * MS + n * 10 * US + 4 * US, noted=noted)
    return found


def expected(first):
    """(kind, stream, event, record) of `waits`; `first` is the correlation of its first call."""
    return [
        (RECORD, 7, 3, UNKNOWN),
        (WAIT, 20, 3, first),
        (RECORD, 20, 3, UNKNOWN),
        (WAIT, 7, 3, first + 2),
        (HOST, 20, 3, first + 2),
        (HOST, 7, UNKNOWN, UNKNOWN),
        (HOST, UNKNOWN, UNKNOWN, UNKNOWN),
    ]


def rows(trace, *columns):
    return trace.stream_events.select(columns or ("kind", "stream", "event", "record")).rows()


def first_call(scenario):
    return min(call.correlation for call in scenario.calls)


def read_kineto(scenario, tmp_path, dialect="E", **options):
    return read_trace(kineto.write(scenario, tmp_path / "trace.json", dialect, **options))


def read_nsight(scenario, tmp_path, schema=NEW, **options):
    return read_trace(nsight.write(scenario, tmp_path / "trace.sqlite", schema, **options))


def named_by_the_profiler(scenario):
    """The same run as older versions of CUDA note it: waits name their records, and only they."""
    last = {}
    calls = []
    for call in sorted(scenario.calls, key=lambda c: c.t0):
        noted = call.noted
        if "EventRecord" in call.api:
            last[noted.event] = call
        elif noted.event is not None and noted.event in last:
            record = last[noted.event]
            known = {"record": record.correlation, "record_stream": record.noted.stream}
            noted = Noted(**{**vars(noted), **known})
        calls.append(type(call)(**{**vars(call), "noted": noted}))
    return type(scenario)(**{**vars(scenario), "calls": tuple(calls)})


@pytest.mark.parametrize("dialect", ["C", "D", "E", "F", "G"])
def test_waits_that_name_their_record_tell_of_it(tmp_path, dialect):
    scenario = named_by_the_profiler(waits().build())
    trace = read_kineto(scenario, tmp_path, dialect, sync_rows=True)
    assert rows(trace) == expected(first_call(scenario))
    calls = [call for call in scenario.calls if call.api != "cudaEventQuery"]
    shift = kineto.SHIFT_NS[dialect]
    times = [(PID, PID, c.t0 + shift, c.t1 + shift, c.correlation) for c in calls]
    assert rows(trace, "pid", "thread", "t0", "t1", "correlation") == times
    assert trace.stream_events["device"].to_list() == [0] * len(calls)
    assert trace.stream_events.schema == pl.Schema(STREAM_EVENTS)


def test_of_newer_cuda_waits_have_an_event_and_records_nothing(tmp_path):
    """CUDA 12.9 and later: `wait_on_stream` and the record's correlation are -1."""
    trace = read_kineto(waits().build(), tmp_path, sync_rows=True)
    assert rows(trace) == [
        (RECORD, UNKNOWN, UNKNOWN, UNKNOWN),
        (WAIT, 20, 3, UNKNOWN),
        (RECORD, UNKNOWN, UNKNOWN, UNKNOWN),
        (WAIT, 7, 3, UNKNOWN),
        (HOST, UNKNOWN, 3, UNKNOWN),
        (HOST, 7, UNKNOWN, UNKNOWN),
        (HOST, UNKNOWN, UNKNOWN, UNKNOWN),
    ]


def test_rows_of_records_tell_which_a_wait_is_for(tmp_path):
    """The last record of the event before the wait, which is what CUDA defines."""
    scenario = waits().build()
    trace = read_kineto(scenario, tmp_path, sync_rows=True, event_rows=True)
    assert rows(trace) == expected(first_call(scenario))
    assert trace.gpu_ops.height == len(scenario.ops)


def test_without_such_rows_the_calls_are_all_that_is_known(tmp_path):
    trace = read_kineto(waits().build(), tmp_path)
    kinds = [RECORD, WAIT, RECORD, WAIT, HOST, HOST, HOST]
    assert trace.stream_events["kind"].to_list() == kinds
    unknown = trace.stream_events.select("device", "stream", "event", "record")
    assert set(unknown.unique().row(0)) == {UNKNOWN}


def test_calls_of_hip_and_of_the_driver_count(tmp_path):
    found = script()
    named = (
        *("hipEventRecord", "hipStreamWaitEvent", "cuEventRecord", "cuStreamWaitEvent"),
        *("cuCtxSynchronize", "hipEventQuery", "cuEventDestroy_v2", "cudaEventElapsedTime"),
    )
    for n, api in enumerate(named):
        found.call(api, 3 * MS + n * 10 * US, 3 * MS + n * 10 * US + US)
    trace = read_kineto(found.build(), tmp_path)
    assert trace.stream_events["kind"].to_list() == [RECORD, WAIT, RECORD, WAIT, HOST]


@pytest.mark.parametrize("event_trace", [True, False])
@pytest.mark.parametrize("mislabelled", [True, False])
@pytest.mark.parametrize("schema", [OLD, NEW])
def test_an_export_joins_waits_and_records(tmp_path, schema, mislabelled, event_trace):
    """By the number of the record, before 3.20 by order. Wrong types of rows change nothing."""
    scenario = waits(serials=schema == NEW).build()
    options = {"mislabelled_syncs": mislabelled, "event_trace": event_trace}
    trace = read_nsight(scenario, tmp_path, schema, **options)
    wanted = expected(first_call(scenario))
    if not event_trace:
        unknown = (RECORD, UNKNOWN, UNKNOWN, UNKNOWN)
        wanted = [
            unknown
            if kind == RECORD
            else (kind, UNKNOWN if kind == HOST and event > 0 else stream, event, UNKNOWN)
            for kind, stream, event, _ in wanted
        ]
    assert rows(trace) == wanted


def test_an_export_says_which_record_a_wait_is_for_also_out_of_order(tmp_path):
    """Two threads: the event is recorded again between the record that is meant and the wait."""
    found = script()
    found.call("cudaEventRecord", MS, MS + US, noted=Noted(stream=7, event=1, serial=4))
    found.call("cudaEventRecord", 2 * MS, 2 * MS + US, noted=Noted(stream=20, event=1, serial=5))
    found.call(
        "cudaStreamWaitEvent", 3 * MS, 3 * MS + US, noted=Noted(stream=13, event=1, serial=4)
    )
    found.call(
        "cudaStreamWaitEvent", 4 * MS, 4 * MS + US, noted=Noted(stream=13, event=1, serial=6)
    )
    scenario = found.build()
    first = first_call(scenario)
    trace = read_nsight(scenario, tmp_path)
    assert [row[3] for row in rows(trace)] == [UNKNOWN, UNKNOWN, first, UNKNOWN]
    old = read_nsight(scenario, tmp_path, OLD)
    assert [row[3] for row in rows(old)] == [UNKNOWN, UNKNOWN, first + 1, first + 1]


@pytest.mark.parametrize("missing", [False, True])
def test_records_without_rows_are_counted_where_waits_have_their_number(tmp_path, missing):
    """As newer versions of nsys write it by default; they number the records of a process."""
    found = script()
    wanted = []
    at = 2 * MS
    for n in range(12):
        event = 3 + n % 2
        noted = Noted(stream=7, event=event, serial=900 + n)
        found.call("cudaEventRecord", at, at + US, noted=noted)
        record = found.calls[-1].correlation
        if n == 5:  # recorded again before it is waited for
            found.call("cudaEventRecord", at + 2 * US, at + 3 * US, noted=noted)
        noted = Noted(stream=20, event=event, serial=900 + n + (n > 5))
        found.call("cudaStreamWaitEvent", at + 5 * US, at + 6 * US, noted=noted)
        wanted.append(record)
        at += 10 * US
    if missing:
        found.calls.remove(next(c for c in found.calls if c.correlation == wanted[8]))
    scenario = found.build()
    trace = read_nsight(scenario, tmp_path, event_trace=False)
    waits = trace.stream_events.filter(pl.col("kind") == WAIT)
    records = trace.stream_events.filter(pl.col("kind") == RECORD)
    assert set(records["stream"]) == {UNKNOWN}
    if missing:
        assert set(waits["record"]) == {UNKNOWN}
    else:
        assert waits["record"].to_list() == wanted
        told = dict(records.select("correlation", "event").rows())
        assert [told[r] for r in wanted] == waits["event"].to_list()


def test_events_are_numbered_in_each_process_and_device(tmp_path):
    """The same numbers, and the same correlations, mean something else in another process."""
    one, two = script(), script(process=Process(2000))
    for found, stream, device in ((one, 7, 0), (two, 21, 0)):
        found.call(
            "cudaEventRecord", MS, MS + US, noted=Noted(stream=stream, event=1, device=device)
        )
        found.call(
            *("cudaStreamWaitEvent", 2 * MS, 2 * MS + US),
            noted=Noted(stream=30, event=1, device=device),
        )
    two.call("cudaEventRecord", 3 * MS, 3 * MS + US, noted=Noted(stream=9, event=5, device=1))
    two.call("cudaStreamWaitEvent", 4 * MS, 4 * MS + US, noted=Noted(stream=9, event=5, device=0))
    both = merge(one.build(), two.build())
    trace = read_nsight(both, tmp_path, OLD)
    first = first_call(both)
    assert rows(trace, "pid", "kind", "stream", "record") == [
        (PID, RECORD, 7, UNKNOWN),
        (PID, WAIT, 30, first),
        (2000, RECORD, 21, UNKNOWN),
        (2000, WAIT, 30, first),
        (2000, RECORD, 9, UNKNOWN),
        (2000, WAIT, 9, UNKNOWN),
    ]


def test_an_export_without_process_ids_has_one_process(tmp_path):
    scenario = waits().build()
    trace = read_nsight(scenario, tmp_path, global_pid=False)
    assert rows(trace) == expected(first_call(scenario))


@pytest.mark.parametrize("form", ["kineto", "nsight"])
def test_a_wait_without_its_call_has_its_own_times_and_no_thread(tmp_path, form):
    found = script()
    times = (3 * MS, 3 * MS + US)
    found.call("cudaEventRecord", 2 * MS, 2 * MS + US, noted=Noted(stream=7, event=2, serial=1))
    noted = Noted(stream=20, event=2, serial=1, call=False)
    found.call("cuStreamWaitEvent", *times, noted=noted)
    found.call("cuEventRecord", 4 * MS, 4 * MS + US, noted=Noted(stream=7, event=2, call=False))
    scenario = found.build()
    if form == "kineto":
        trace = read_kineto(scenario, tmp_path, sync_rows=True, event_rows=True)
        times = tuple(t + kineto.SHIFT_NS["E"] for t in times)
    else:
        trace = read_nsight(scenario, tmp_path)
    first = first_call(scenario)
    assert rows(trace)[1:] == [(WAIT, 20, 2, first)]
    assert rows(trace, "thread", "t0", "t1")[1:] == [(UNKNOWN, *times)]


def test_a_wait_inside_another_call_is_on_its_thread(tmp_path):
    """`cudaFree` waits for the device; the call itself lasts longer."""
    found = script()
    found.call("cudaFree", 3 * MS, 5 * MS, thread=77)
    path = kineto.write(found.build(), tmp_path / "trace.json")
    args = {"cuda_sync_kind": "Context Sync", "stream": -1, "device": 0}
    args["correlation"] = first_call(found.build())
    noted = {"ph": "X", "cat": "cuda_sync", "name": "Context Sync", "pid": 0, "tid": -1}
    changed = json.loads(path.read_text())
    changed["traceEvents"].append(noted | {"ts": 3100.0, "dur": 50.0, "args": args})
    path.write_text(json.dumps(changed))
    base = kineto.EPOCH_NS
    trace = read_trace(path)
    assert rows(trace) == [(HOST, UNKNOWN, UNKNOWN, UNKNOWN)]
    assert rows(trace, "thread", "t0", "t1") == [(77, base + 3_100 * US, base + 3_150 * US)]


def test_a_record_in_the_future_is_none(tmp_path):
    """Kineto before 2026 named the record that it had seen last, of whatever time."""
    found = script()
    found.call("cudaStreamWaitEvent", MS, MS + US, noted=Noted(20, 1, record=10, record_stream=7))
    found.call("cudaEventRecord", 2 * MS, 2 * MS + US, noted=Noted(7, 1))
    scenario = found.build()
    _, record = scenario.calls
    assert record.correlation == 10
    trace = read_kineto(scenario, tmp_path, sync_rows=True)
    assert rows(trace) == [(WAIT, 20, 1, UNKNOWN), (RECORD, UNKNOWN, UNKNOWN, UNKNOWN)]


def test_a_question_tells_of_the_record_and_is_no_wait(tmp_path):
    found = script()
    found.call("cudaEventRecord", MS, MS + US, noted=Noted(7, 1))
    record = found.calls[-1].correlation
    noted = Noted(None, 1, record=record, record_stream=7)
    found.call("cudaEventQuery", 2 * MS, 2 * MS + US, noted=noted)
    trace = read_kineto(found.build(), tmp_path, sync_rows=True)
    assert rows(trace) == [(RECORD, 7, 1, UNKNOWN)]


def test_calls_that_begin_together_keep_their_order(tmp_path):
    found = script()
    for number in (1, 2):
        found.call("cudaEventRecord", MS, MS, noted=Noted(7 + number, 1))
        found.call("cudaStreamWaitEvent", MS, MS, noted=Noted(20, 1))
    scenario = found.build()
    first = first_call(scenario)
    trace = read_kineto(scenario, tmp_path, sync_rows=True, event_rows=True)
    assert [row[3] for row in rows(trace)] == [UNKNOWN, first, UNKNOWN, first + 2]


HOSTILE = (None, "", "seven", -7, 2**31, 2**32 - 1, 2**63, -(2**70), 1.5e300, [], {}, [[1]], True)


KEYS = ("event", "stream", "record", "of the record", "kind", "event_id")
_PLAIN = ("stream",)
"""Arguments that other events share are numbers or texts, or the event is lost and counted."""


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (key, value)
        for key in KEYS
        for value in HOSTILE
        if key not in _PLAIN or not isinstance(value, (list, dict, bool))
    ],
    ids=repr,
)
def test_what_is_no_id_is_unknown_and_costs_no_event(tmp_path, key, value):
    path = kineto.write(
        *(named_by_the_profiler(waits().build()), tmp_path / "trace.json"),
        sync_rows=True,
        event_rows=True,
    )
    names = {
        "event": "wait_on_cuda_event_id",
        "record": "wait_on_cuda_event_record_corr_id",
        "of the record": "wait_on_stream",
        "kind": "cuda_sync_kind",
    }
    changed = json.loads(path.read_text())
    for event in changed["traceEvents"]:
        if event.get("cat") in ("cuda_sync", "cuda_event") and names.get(key, key) in event["args"]:
            event["args"][names.get(key, key)] = value
    path.write_text(json.dumps(changed))
    trace = read_trace(path)
    assert trace.quality.events_lost == 0
    assert [row[0] for row in rows(trace)] == [RECORD, WAIT, RECORD, WAIT, HOST, HOST, HOST]
    ids = trace.stream_events.select("stream", "event")
    assert ids.min_horizontal().min() >= UNKNOWN
    assert not (ids.to_numpy() == 2**32 - 1).any()


@pytest.mark.parametrize("column", ["streamId", "eventId", "eventSyncId", "correlationId"])
@pytest.mark.parametrize("table", ["SYNCHRONIZATION", "CUDA_EVENT"])
def test_odd_values_in_tables_of_events_cost_no_trace(tmp_path, table, column):
    scenario = waits().build()
    for value in ("NULL", "'x'", "-5", "4294967295", "9223372036854775807", "x'00'", "1.5"):
        path = nsight.write(scenario, tmp_path / "trace.sqlite", NEW)
        with sqlite3.connect(path) as db:
            definition = f'"CUPTI_ACTIVITY_KIND_{table}"'
            loose = f"CREATE TABLE loose AS SELECT * FROM {definition}"
            for text in (loose, f"DROP TABLE {definition}"):
                db.execute(text)
            db.execute(f"ALTER TABLE loose RENAME TO {definition}")
            db.execute(f"UPDATE {definition} SET {column} = {value}")
        trace = read_trace(path)
        kinds = trace.stream_events["kind"].to_list()
        lost = (table, column) == ("SYNCHRONIZATION", "correlationId")
        assert kinds.count(RECORD) == 2
        assert kinds.count(WAIT) == (4 if lost else 2)  # a wait and its note, not joined
        path.unlink()


@pytest.mark.parametrize("table", ["SYNCHRONIZATION", "CUDA_EVENT", "RUNTIME"])
def test_each_table_of_events_may_be_missing(tmp_path, table):
    without = frozenset({f"CUPTI_ACTIVITY_KIND_{table}"})
    trace = read_nsight(waits().build(), tmp_path, without=without)
    kinds = trace.stream_events["kind"].to_list()
    assert kinds.count(WAIT) == 2
    assert kinds.count(RECORD) == (0 if table == "RUNTIME" else 2)


def test_two_processes_in_a_merged_trace_keep_their_waits(tmp_path):
    """Both number their calls alike; a note belongs to the call that is nearest in time."""
    parts = []
    for pid, late in ((PID, 0), (2000, 40 * MS)):
        found = script(Process(pid))
        found.call("cudaEventRecord", MS, MS + US, noted=Noted(7, 1))
        found.call("cudaStreamWaitEvent", 2 * MS, 2 * MS + US, noted=Noted(20, 1))
        scenario = named_by_the_profiler(found.build().shifted(late))
        path = kineto.write(scenario, tmp_path / f"{pid}.json", sync_rows=True)
        parts.append(json.loads(path.read_text()))
    merged = parts[0] | {"traceEvents": [e for part in parts for e in part["traceEvents"]]}
    path = tmp_path / "merged.json"
    path.write_text(json.dumps(merged))
    trace = read_trace(path)
    assert rows(trace, "pid", "kind", "stream", "event") == [
        (pid, *row) for pid in (PID, 2000) for row in ((RECORD, 7, 1), (WAIT, 20, 1))
    ]


@pytest.mark.parametrize("form", ["kineto", "nsight"])
def test_a_copy_without_names_has_the_same_events(tmp_path, form):
    trace, path = written(tmp_path, form)
    copied = tmp_path / f"copy{path.suffix}"
    anonymise_trace(path, copied)
    same = read_trace(copied)
    by = STREAM_EVENTS.keys() - {"t0", "t1"}
    assert len(trace.stream_events)
    assert_frame_equal(same.stream_events.select(by), trace.stream_events.select(by))
    steps = [f.stream_events["t0"].diff().drop_nulls().to_list() for f in (same, trace)]
    assert steps[0] == steps[1]


@pytest.mark.parametrize("form", ["kineto", "nsight"])
def test_a_slice_keeps_the_events_of_its_window(tmp_path, form):
    trace, path = written(tmp_path, form)
    sliced = tmp_path / f"slice{path.suffix}"
    slice_trace(path, sliced, (1, 3))
    found = read_trace(sliced).stream_events
    assert_frame_equal(found, trace.stream_events.slice(4, 8))


def written(tmp_path, form):
    """Four steps with a record, two waits and a synchronisation each."""
    found = Script()
    for n in range(4):
        at = n * 10 * MS
        found.range(f"ProfilerStep#{n}", at, at + 10 * MS)
        found.op("kernel", at + MS, at + 9 * MS, (at, at + 10 * US))
        event = n + 1
        for k, (api, noted) in enumerate(
            [
                ("cudaEventRecord", Noted(7, event, serial=event)),
                ("cudaStreamWaitEvent", Noted(20, event, serial=event)),
                ("cudaEventSynchronize", Noted(None, event, serial=event)),
                ("cudaDeviceSynchronize", Noted()),
            ]
        ):
            found.call(api, at + (3 + k) * MS, at + (3 + k) * MS + US, noted=noted)
    scenario = found.build()
    if form == "nsight":
        path = nsight.write(scenario, tmp_path / "trace.sqlite", NEW)
    else:
        path = kineto.write(
            *(named_by_the_profiler(scenario), tmp_path / "trace.json"),
            sync_rows=True,
            event_rows=True,
        )
    return read_trace(path), path
