"""Nsight files that lack, add or misuse tables and columns, and how they explain themselves."""

from __future__ import annotations

import gzip
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from tests.builders import nsight, truth
from tests.builders.loop import EVERYTHING_PAGEABLE
from tests.builders.nsight_schema import KERNEL, MEMCPY, RUNTIME
from tests.builders.scenario import PID, Process, Script, colliding_ranks
from tests.builders.truth import assert_same_events
from tests.written_traces import read_nsight
from traceprobe.errors import EmptyTrace
from traceprobe.ingest.nsight import open_export, pages
from traceprobe.ingest.nsight import ranges as nsight_ranges
from traceprobe.ingest.read_trace import read_trace
from traceprobe.model.codes import UNKNOWN, Kind
from traceprobe.model.events import Device

OPTIONAL = (
    *("ThreadNames", "PROCESSES", "TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE"),
    *("TARGET_INFO_SESSION_START_TIME", "TARGET_INFO_SYSTEM_ENV", "ANALYSIS_DETAILS"),
    *("META_DATA_EXPORT", "META_DATA_CAPTURE", "TARGET_INFO_CUDA_CONTEXT_INFO"),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
)


@pytest.mark.parametrize("table", OPTIONAL)
def test_tables_that_may_be_missing(tmp_path, table):
    scenario = EVERYTHING_PAGEABLE.scenario()
    trace = read_nsight(scenario, tmp_path, without=frozenset({table}))
    assert truth.seen_ops(trace) == truth.gpu_ops(scenario)
    assert truth.seen_calls(trace) == truth.host_calls(scenario)
    assert truth.seen_ranges(trace) == truth.host_ranges(scenario)


def test_everything_optional_may_be_missing_at_once(tmp_path):
    scenario = EVERYTHING_PAGEABLE.scenario()
    trace = read_nsight(
        scenario, tmp_path, without=frozenset({*OPTIONAL, "NVTX_EVENTS"}), enums=False
    )
    assert truth.seen_ops(trace) == truth.gpu_ops(scenario)
    assert trace.host_ranges.is_empty()


def test_without_api_rows_the_gpu_work_stays(tmp_path):
    scenario = EVERYTHING_PAGEABLE.scenario()
    trace = read_nsight(scenario, tmp_path, without=frozenset({RUNTIME}))
    bare = replace(scenario, ops=tuple(replace(op, launch=None) for op in scenario.ops))
    assert truth.seen_ops(trace) == truth.gpu_ops(bare)
    assert trace.host_calls.is_empty()
    assert truth.seen_ranges(trace) == truth.host_ranges(scenario)


def test_without_strings_kernels_are_unnamed_but_counted(tmp_path):
    trace = read_nsight(EVERYTHING_PAGEABLE.scenario(), tmp_path, without=frozenset({"StringIds"}))
    assert len(trace.gpu_ops) == len(EVERYTHING_PAGEABLE.scenario().ops)


@pytest.mark.parametrize(
    "column",
    [
        *((KERNEL, name) for name in ("contextId", "graphNodeId", "shortName", "demangledName")),
        *((MEMCPY, name) for name in ("contextId", "copyCount", "graphNodeId")),
        *((RUNTIME, name) for name in ("eventClass", "returnValue", "callchainId")),
        *(("NVTX_EVENTS", name) for name in ("textId", "domainId", "rangeId", "endGlobalTid")),
    ],
    ids=".".join,
)
def test_columns_that_may_be_missing(tmp_path, column):
    scenario = EVERYTHING_PAGEABLE.scenario()
    trace = read_nsight(scenario, tmp_path, without=frozenset({column}))
    assert truth.seen_ops(trace) == truth.gpu_ops(scenario)
    assert truth.seen_calls(trace) == truth.host_calls(scenario)
    assert truth.seen_ranges(trace) == truth.host_ranges(scenario)


def test_without_process_ids_the_file_is_one_process(tmp_path):
    scenario = EVERYTHING_PAGEABLE.scenario()
    trace = read_nsight(scenario, tmp_path, global_pid=False)
    assert truth.seen_ops(trace) == truth.gpu_ops(scenario)
    assert list(trace.quality.warnings) == ["no-process-ids"]


def test_without_process_ids_two_processes_are_not_guessed_apart(tmp_path):
    trace = read_nsight(colliding_ranks(), tmp_path, global_pid=False)
    assert len(trace.gpu_ops) == 6
    assert "no-process-ids" in trace.quality.warnings


def test_without_correlation_ids_nothing_is_linked(tmp_path):
    trace = read_nsight(
        EVERYTHING_PAGEABLE.scenario(), tmp_path, without=frozenset({(KERNEL, "correlationId")})
    )
    kernels = trace.gpu_ops.filter(trace.gpu_ops["kind"] == int(Kind.KERNEL))
    assert not kernels["linked"].any()
    assert set(kernels["launch_t0"]) == set(kernels["correlation"]) == {UNKNOWN}


def test_null_ids_are_unlinked_and_no_error(tmp_path):
    scenario = EVERYTHING_PAGEABLE.scenario()
    path = nsight.write(scenario, tmp_path / "run.sqlite")
    nsight.edit(
        path,
        f"UPDATE {RUNTIME} SET correlationId = NULL WHERE rowid = 3",
        f"UPDATE {KERNEL} SET correlationId = NULL WHERE rowid = 5",
        f"UPDATE {KERNEL} SET globalPid = NULL WHERE rowid = 6",
        "UPDATE NVTX_EVENTS SET globalTid = NULL WHERE rowid = 2",
        "UPDATE ThreadNames SET globalTid = NULL WHERE rowid = 1",
    )
    trace = read_trace(path)
    assert len(trace.gpu_ops) == len(scenario.ops)
    assert trace.gpu_ops["linked"].to_list().count(False) == 3
    assert len(truth.seen_ranges(trace)) == len(scenario.ranges)


def test_copy_codes_come_from_the_files_own_table(tmp_path):
    scenario = (
        Script().op("h2d", 10, 20, (0, 1), bytes=4).op("d2h", 20, 30, (2, 3), bytes=4).build()
    )
    path = nsight.write(scenario, tmp_path / "run.sqlite")
    assert read_trace(path).gpu_ops["kind"].to_list() == [Kind.H2D, Kind.D2H]
    nsight.edit(
        path,
        "UPDATE ENUM_CUDA_MEMCPY_OPER SET id = 101 WHERE label = 'Host-to-Device'",
        "UPDATE ENUM_CUDA_MEMCPY_OPER SET id = 1 WHERE label = 'Device-to-Host'",
        "UPDATE ENUM_CUDA_MEMCPY_OPER SET id = 2 WHERE label = 'Device-to-Device'",
    )
    assert read_trace(path).gpu_ops["kind"].to_list() == [Kind.D2H, Kind.D2D]


@pytest.mark.parametrize("enums", [True, False])
def test_copy_directions_and_host_memory(tmp_path, enums):
    script = Script(Process(devices=("NVIDIA H200",) * 2))
    script.op("h2d", 10, 20, (0, 1), bytes=1, pageable=True)
    script.op("h2d", 20, 30, (2, 3), bytes=2)
    script.op("d2h", 30, 40, (4, 5), bytes=3, pageable=True)
    script.op("d2d", 40, 50, (6, 7), bytes=4)
    script.op("p2p", 50, 60, (8, 9), bytes=5)
    scenario = script.build()
    trace = read_nsight(scenario, tmp_path, enums=enums)
    assert truth.seen_ops(trace) == truth.gpu_ops(scenario)


def test_versioned_api_names_are_plain_and_classified(tmp_path):
    path = nsight.write(EVERYTHING_PAGEABLE.scenario(), tmp_path / "run.sqlite")
    connection = sqlite3.connect(path)
    stored = {name for (name,) in connection.execute("SELECT value FROM StringIds")}
    connection.close()
    assert {"cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020"} <= stored
    trace = read_trace(path)
    names = {trace.names[i] for i in trace.host_calls["name"]}
    assert {"cudaLaunchKernel", "cudaLaunchKernelExC", "cudaStreamSynchronize"} <= names


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_texts_may_be_stored_in_any_encoding(tmp_path, encoding):
    plain = nsight.write(EVERYTHING_PAGEABLE.scenario(), tmp_path / "run.sqlite")
    nsight.edit(plain, "UPDATE NVTX_EVENTS SET text = text || ' \u2603, seq = ' || rowid")
    other = nsight.recoded(plain, encoding)
    expected, found = read_trace(plain), read_trace(other)
    assert any("\u2603" in name for name in expected.names)
    assert found.names == expected.names
    assert found.host_ranges.equals(expected.host_ranges)
    assert found.gpu_ops.equals(expected.gpu_ops)


def names_of_ranges(trace):
    rows = [*trace.host_ranges["name"], *trace.host_operators["name"]]
    return sorted(trace.names[row] for row in rows)


@pytest.mark.parametrize(
    ("odd", "name"),
    [
        ("'a' || char(31) || 'b'", "a\x1fb"),
        ("'a' || char(0) || 'b'", "a\0b"),
        ("x'61ff62'", "a\ufffdb"),
        ("'a, b, seq = 7'", "a, b"),
        ("'a, seq = x'", "a"),
        ("''", ""),
        ("12", "12"),
    ],
)
def test_any_text_leaves_those_of_other_ranges_as_they_are(tmp_path, odd, name):
    path = nsight.write(EVERYTHING_PAGEABLE.scenario(), tmp_path / "run.sqlite")
    whole = names_of_ranges(read_trace(path))
    assert whole[-1] != whole[-2]
    nsight.edit(path, f"UPDATE NVTX_EVENTS SET text = {odd} WHERE text = '{whole[-1]}'")
    assert names_of_ranges(read_trace(path)) == sorted([*whole[:-1], name])


def test_texts_that_are_too_long_together_are_read_one_by_one(tmp_path, monkeypatch):
    path = nsight.write(EVERYTHING_PAGEABLE.scenario(), tmp_path / "run.sqlite")
    nsight.edit(path, f"UPDATE NVTX_EVENTS SET text = text || '{'x' * 500}'")
    whole = read_trace(path)
    monkeypatch.setattr(pages, "ROWS", 20)
    monkeypatch.setattr(open_export, "LONGEST_VALUE", 4_000)
    found = read_trace(path)
    assert not found.quality.warnings
    assert_same_events(found, whole)


def test_devices_are_named_by_ordinal_and_not_by_row_id(tmp_path):
    """The ids of TARGET_INFO_GPU run against the CUDA ordinals on some machines."""
    script = Script(Process(devices=("A100", "A40")))
    script.op("kernel", 10, 20, (0, 1), device=0).op("kernel", 20, 30, (2, 3), device=1)
    path = nsight.write(script.build(), tmp_path / "run.sqlite", "3.0.0")
    nsight.edit(path, "UPDATE TARGET_INFO_GPU SET id = 1 - id")
    assert read_trace(path).devices == (Device(PID, 0, "A100"), Device(PID, 1, "A40"))


def test_devices_of_a_process_go_through_its_own_ordinals(tmp_path):
    """CUDA_VISIBLE_DEVICES: device 0 of the process is GPU 1 of the machine."""
    script = Script(Process(devices=("A100", "A40"))).op("kernel", 10, 20, (0, 1), device=0)
    path = nsight.write(script.build(), tmp_path / "run.sqlite", "3.24.0")
    nsight.edit(path, "UPDATE TARGET_INFO_CUDA_DEVICE SET gpuId = 1 - gpuId")
    assert read_trace(path).devices == (Device(PID, 0, "A40"),)


def test_devices_have_the_facts_of_their_gpu_and_the_multiprocessors_of_their_slice(tmp_path):
    script = Script(Process(devices=("A100", "A100"))).op("kernel", 10, 20, (0, 1), device=1)
    path = nsight.write(script.build(), tmp_path / "run.sqlite", "3.24.14")
    for column, value in {"computeMajor": 8, "computeMinor": 0, "threadsPerWarp": 32}.items():
        nsight.edit(path, f"ALTER TABLE TARGET_INFO_GPU ADD COLUMN {column} DEFAULT {value}")
    nsight.edit(path, "UPDATE TARGET_INFO_GPU SET smCount = 108, totalMemory = 42350739456")
    whole = Device(PID, 1, "A100", "gpu", "8.0", 108, 42_350_739_456, 32)
    assert read_trace(path).devices == (whole,)
    nsight.edit(path, "UPDATE TARGET_INFO_CUDA_DEVICE SET numMultiprocessors = 42")
    assert read_trace(path).devices == (changed(whole, multiprocessors=42),)


def test_rank_and_world_size_come_from_the_captured_environment(tmp_path):
    script = Script(Process(rank=3), world_size=8).op("kernel", 10, 20, (0, 1))
    path = nsight.write(script.build(), tmp_path / "run.sqlite", ranks=True)
    secret = "PROCESS_0:ENVIRONMENT_VARIABLE"
    nsight.edit(path, f"INSERT INTO META_DATA_CAPTURE VALUES ('{secret}', 'HF_TOKEN=hf_abc')")
    trace = read_trace(path)
    assert trace.rank_of == {PID: 3}
    assert trace.metadata["world_size"] == 8
    assert "hf_abc" not in str(trace)


def test_an_excerpt_in_time_is_warned_about(tmp_path):
    path = nsight.write(EVERYTHING_PAGEABLE.scenario(), tmp_path / "run.sqlite")
    window = "('EXPORT_PARAM_TIMES_TO_EXPORT', '1s/2s')"
    nsight.edit(path, f"INSERT INTO META_DATA_EXPORT VALUES {window}")
    assert list(read_trace(path).quality.warnings) == ["filtered-export"]


def test_what_other_tools_add_is_ignored(tmp_path):
    scenario = EVERYTHING_PAGEABLE.scenario()
    path = nsight.write(scenario, tmp_path / "run.sqlite")
    nsight.edit(
        path,
        f"ALTER TABLE {KERNEL} ADD COLUMN name TEXT",
        f"ALTER TABLE {KERNEL} ADD COLUMN nvtxRange TEXT",
        f"CREATE INDEX _tool_kernel ON {KERNEL}(start)",
        'CREATE TABLE _tool_cache ("odd ""name" TEXT)',
        f"CREATE VIEW kernels AS SELECT * FROM {KERNEL}",
    )
    assert truth.seen_ops(read_trace(path)) == truth.gpu_ops(scenario)


@pytest.mark.parametrize("rows", [1, 7, 100_000])
@pytest.mark.parametrize("fraction", [False, True])
def test_how_many_rows_are_read_at_a_time_changes_nothing(tmp_path, monkeypatch, rows, fraction):
    path = nsight.write(EVERYTHING_PAGEABLE.scenario(), tmp_path / "run.sqlite")
    whole = read_trace(path)
    if fraction:  # of which the integer part counts: no row is read as the ones before it
        with sqlite3.connect(path) as db:
            db.execute(f"UPDATE {KERNEL} SET start = start + 0.5 WHERE rowid % 5 = 4")
    monkeypatch.setattr(pages, "ROWS", rows)
    assert_same_events(read_trace(path), whole)


@pytest.mark.parametrize(
    "shape",
    [
        "CREATE TABLE {0} AS SELECT 1 AS rowid, * FROM old",
        "CREATE TABLE {0} ({1}, PRIMARY KEY (start, correlationId)) WITHOUT ROWID; "
        "INSERT INTO {0} SELECT * FROM old",
    ],
    ids=["column named rowid", "without row ids"],
)
@pytest.mark.parametrize("table", [KERNEL, RUNTIME])
def test_tables_whose_rows_have_no_numbers(tmp_path, monkeypatch, shape, table):
    path = nsight.write(EVERYTHING_PAGEABLE.scenario(), tmp_path / "run.sqlite")
    whole = read_trace(path)
    with sqlite3.connect(path) as db:
        columns = ", ".join(f'"{row[1]}"' for row in db.execute(f"PRAGMA table_info({table})"))
        db.execute(f"ALTER TABLE {table} RENAME TO old")
        db.executescript(shape.format(table, columns))
    monkeypatch.setattr(pages, "ROWS", 7)
    assert_same_events(read_trace(path), whole)


@pytest.mark.parametrize("odd", ["'a, b'", "'12,13'", "''", "x'ff'", "1e300", "'1' || char(0)"])
@pytest.mark.parametrize("column", ["start", "correlationId"])
def test_texts_where_integers_belong_cost_their_row_only(tmp_path, odd, column):
    path = nsight.write(EVERYTHING_PAGEABLE.scenario(), tmp_path / "run.sqlite")
    with sqlite3.connect(path) as db:  # columns without a type keep whatever is put into them
        db.execute(f"CREATE TABLE loose AS SELECT * FROM {KERNEL}")
        db.execute(f"DROP TABLE {KERNEL}")
        db.execute(f"ALTER TABLE loose RENAME TO {KERNEL}")
    whole = read_trace(path)
    with sqlite3.connect(path) as db:
        db.execute(f"UPDATE {KERNEL} SET {column} = {odd} WHERE rowid = 4")
    trace = read_trace(path)
    lost = len(whole.gpu_ops) - len(trace.gpu_ops)
    assert (lost, trace.quality.events_lost) == ((1, 1) if column == "start" else (0, 0))
    assert int(trace.gpu_ops["linked"].sum()) == int(whole.gpu_ops["linked"].sum()) - 1


def test_reading_leaves_no_trace_on_disk(tmp_path):
    path = nsight.write(EVERYTHING_PAGEABLE.scenario(), tmp_path / "run.sqlite")
    before, changed = path.read_bytes(), path.stat().st_mtime_ns
    path.chmod(0o444)
    read_trace(path)
    assert path.read_bytes() == before
    assert path.stat().st_mtime_ns == changed
    assert [p.name for p in tmp_path.iterdir()] == ["run.sqlite"]


def test_content_decides_and_not_the_suffix(tmp_path):
    data = nsight.write(EVERYTHING_PAGEABLE.scenario(), tmp_path / "run.sqlite").read_bytes()
    for name, content in {"run.json": data, "run": gzip.compress(data), "a?b#c.db": data}.items():
        path = tmp_path / name
        path.write_bytes(content)
        assert truth.seen_ops(read_trace(path)) == truth.gpu_ops(EVERYTHING_PAGEABLE.scenario())


def test_a_capture_without_gpu_rows_says_why_in_the_files_own_words(tmp_path):
    script = Script().range("step 0", 0, 9_000).call("cudaMalloc", 10, 20)
    script.diagnose(5, 1, "Common injection library initialized successfully.")
    script.diagnose(6, 2, "Installed CUDA driver version (13.1) is not supported by this build")
    script.diagnose(7, 2, "No OpenGL events collected. Does the process use OpenGL?")
    path = nsight.write(script.build(), tmp_path / "run.sqlite", "3.16.1")
    with pytest.raises(
        EmptyTrace, match=r"run\.sqlite: .*CUDA driver version \(13\.1\)"
    ) as failure:
        read_trace(path)
    assert "OpenGL" not in str(failure.value)
    assert "initialized" not in str(failure.value)


@pytest.mark.parametrize("lazy", [True, False])
def test_a_capture_without_gpu_rows_and_without_words_says_what_to_trace(tmp_path, lazy):
    scenario = Script().range("step 0", 0, 9_000).build()
    path = nsight.write(scenario, tmp_path / "run.sqlite", lazy=lazy)
    with pytest.raises(EmptyTrace, match="--trace=cuda,nvtx"):
        read_trace(path)


def test_operators_are_named_without_their_numbers_and_only_the_outer_ones_stay(tmp_path):
    path = nsight.write(EVERYTHING_PAGEABLE.scenario(), tmp_path / "run.sqlite")
    texts = [
        ("aten::linear, seq = 7, op_id = 40", 100, 200),
        ("aten::addmm, seq = 8, op_id = 41, sizes = [[2, 3]]", 110, 190),
        ("my part, op_id = 42", 120, 180),
        ("aten::linear, sizes = [[2, 3]]", 210, 260),
        ("AddmmBackward0, seq = 8, op_id = 0", 205, 265),
    ]
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM NVTX_EVENTS")
        for text, t0, t1 in texts:
            db.execute(
                'INSERT INTO NVTX_EVENTS (start, "end", eventType, globalTid, text) '
                "VALUES (?, ?, 59, (SELECT min(globalTid) FROM ThreadNames), ?)",
                (t0, t1, text),
            )
    trace = read_trace(path)
    ranges, operators = (
        [(trace.names[r["name"]], r["t0"], r["t1"]) for r in rows.to_dicts()]
        for rows in (trace.host_ranges, trace.host_operators)
    )
    assert ranges == [("my part", 120, 180)]
    assert operators == [("aten::linear", 100, 200), ("AddmmBackward0", 205, 265)]


@pytest.mark.parametrize("column", ["end", "globalTid"])
def test_operators_of_which_less_is_known_stay(tmp_path, column):
    path = nsight.write(EVERYTHING_PAGEABLE.scenario(), tmp_path / "run.sqlite", emit_nvtx=True)
    nsight.edit(path, f'ALTER TABLE NVTX_EVENTS DROP COLUMN "{column}"')
    assert any(trace_name.startswith("aten::") for trace_name in read_trace(path).names)


RANGE = st.tuples(st.integers(0, 30), st.integers(0, 9), st.integers(1, 2), st.booleans())


@given(st.lists(RANGE, max_size=12))
def test_leaving_out_inner_operators_changes_no_time_inside_of_ranges(rows):
    """The outer ones cover what all of them cover, on each thread; what is no operator stays."""
    start, length, thread, operator = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    page = {
        "start": start,
        "end": start + length,
        "eventType": np.full(len(start), 59),
        "globalTid": thread,
        "text": operator,
    }
    keep = nsight_ranges._outermost(page, ["mine", "aten::add"])
    assert keep[operator == 0].all()

    def covered(rows):
        chosen = zip(*(page[c][rows].tolist() for c in ("globalTid", "start", "end")), strict=True)
        return {(t, instant) for t, t0, t1 in chosen for instant in range(t0, t1)}

    every = np.flatnonzero(operator == 1)
    assert covered(every[keep[every]]) == covered(every)
    columns = (page[c][every[keep[every]]].tolist() for c in ("globalTid", "start", "end"))
    kept = set(zip(*columns, strict=True))
    for t, t0, t1 in kept:
        assert not any(u == t and (a, b) != (t0, t1) and a <= t0 and t1 <= b for u, a, b in kept)
