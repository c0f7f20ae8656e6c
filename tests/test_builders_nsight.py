"""The Nsight builder writes what it is told: every file is read back with sqlite3 alone."""

from __future__ import annotations

import sqlite3

import pytest

from tests.builders import faults, kineto, nsight
from tests.builders.loop import TWO_COLLECTIVES, Loop
from tests.builders.nsight_schema import SCHEMAS, tables
from tests.builders.scenario import PID, Process, Script, merge


def rows(path, query):
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def present(path):
    return {name for (name,) in rows(path, "SELECT name FROM sqlite_master")}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_schema_holds_the_rows_of_the_scenario(tmp_path, schema):
    scenario = TWO_COLLECTIVES.scenario()
    path = nsight.write(scenario, tmp_path / "run.sqlite", schema)
    kernels = rows(path, "SELECT start, end, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL")
    assert kernels == [
        (o.t0, o.t1, o.correlation) for o in scenario.ops if o.kind in ("kernel", "comm")
    ]
    copies = rows(path, "SELECT copyKind, bytes FROM CUPTI_ACTIVITY_KIND_MEMCPY LIMIT 2")
    assert copies == [(1, 1 << 20), (2, 4)]
    assert len(rows(path, "SELECT * FROM CUPTI_ACTIVITY_KIND_RUNTIME")) == len(scenario.ops)
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    facts = "META_DATA_EXPORT" if SCHEMAS.index(schema) >= 2 else "EXPORT_META_DATA"
    assert (schema,) in rows(path, f"SELECT value FROM {facts}")


def test_what_schemas_have_and_lack():
    def columns(schema, table):
        return [c.name for c in tables(schema)[f"CUPTI_ACTIVITY_KIND_{table}"]]

    assert "greenContextId" not in columns("3.4.0", "KERNEL")
    assert "greenContextId" in columns("3.7.2", "KERNEL")
    assert "tensorSizeMinusOneElements" in columns("3.25.0", "KERNEL")
    assert "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" not in tables("3.7.2")
    assert "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" in tables("3.16.1")
    assert [c.name for c in tables("3.20.3")["PROFILER_OVERHEAD"]][-1] == "returnValue"
    assert [c.name for c in tables("3.24.0")["PROFILER_OVERHEAD"]][-1] == "overheadType"
    assert tables("3.28.1")["NVTX_EVENTS"][0].sql == '"eventId" INTEGER PRIMARY KEY'
    assert "NVTXT_EVENTS" in tables("3.28.1")


def test_nsight_ranges_marks_domains_and_open_ends(tmp_path):
    script = Script().domain(2, "NCCL").range("step 0", 100, 900)
    script.range("open", 200, None).range("pair", 300, 400, form="start", end_thread=1007)
    script.range("here", 500, 500, form="mark").range("old", 600, 700, form="text_push")
    script.range("ncclAllReduce", 800, 810, domain=2).op("kernel", 1, 9, (0, 1))
    path = nsight.write(script.build(), tmp_path / "run.sqlite", "3.20.3")
    query = "SELECT eventType, start, end, text, endGlobalTid & 0xFFFFFF FROM NVTX_EVENTS"
    assert rows(path, query) == [
        (75, -350_000_000_000, None, "NCCL", None),
        (59, 100, 900, "step 0", None),
        (59, 200, None, "open", None),
        (60, 300, 400, "pair", 1007),
        (34, 500, None, "here", None),
        (70, 600, 700, "old", None),
        (59, 800, 810, "ncclAllReduce", None),
    ]
    registered = nsight.write(script.build(), tmp_path / "id.sqlite", "3.28.1", registered=True)
    joined = "SELECT value FROM NVTX_EVENTS JOIN StringIds ON id = textId WHERE eventType = 59"
    assert rows(registered, joined) == [("step 0",), ("open",), ("ncclAllReduce",)]
    assert rows(registered, "SELECT eventType FROM NVTXT_EVENTS") == [(70,)]


def test_nsight_options(tmp_path):
    script = Script(Process(rank=1), world_size=2).thread(PID, "python3")
    script.op("kernel", 10, 20, (0, 1)).operator("aten::relu", 0, 2, sequence=7)
    script.call("cudaDeviceSynchronize", 30, 40).overhead("CUPTI Buffer flush", 50, 60)
    script.overhead("Lazy Function Loading", 3, 4, driver=True).diagnose(5, 2, "No NVTX")
    scenario = script.build()
    plain = nsight.write(scenario, tmp_path / "a.sqlite", ranks=True, emit_nvtx=True)
    assert rows(plain, "SELECT text FROM NVTX_EVENTS") == [("aten::relu, seq = 7, op_id = 0",)]
    assert ("PROCESS_0:ENVIRONMENT_VARIABLE", "RANK=1") in rows(
        plain, "SELECT * FROM META_DATA_CAPTURE"
    )
    for table in ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD", "DIAGNOSTIC_EVENT"):
        assert len(rows(plain, f"SELECT * FROM {table}")) == 1
    odd = nsight.write(
        scenario,
        tmp_path / "b.sqlite",
        utc=True,
        global_pid=False,
        enums=False,
        hardware=0xFE,
        mislabelled_syncs=True,
        without=frozenset({"ThreadNames", ("NVTX_EVENTS", "textId")}),
    )
    assert not {t for t in present(odd) if t.startswith("ENUM") or t == "ThreadNames"}
    assert rows(odd, "SELECT start FROM CUPTI_ACTIVITY_KIND_KERNEL") == [(nsight.UTC_NS + 10,)]
    kernel = [r[1] for r in rows(odd, "PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")]
    assert "globalPid" not in kernel
    (thread,) = rows(odd, "SELECT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME LIMIT 1")[0]
    assert thread < 0
    assert (thread & 0xFFFFFF, thread >> 24 & 0xFFFFFF) == (PID, PID)
    assert rows(odd, "SELECT syncType FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION") == [(1,)]
    assert rows(plain, "SELECT syncType FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION") == [(4,)]


def test_lazy_exports_leave_empty_tables_out(tmp_path):
    scenario = Script().op("kernel", 10, 20, (0, 1)).build()
    lazy = nsight.write(scenario, tmp_path / "a.sqlite")
    full = nsight.write(scenario, tmp_path / "b.sqlite", lazy=False)
    assert "CUPTI_ACTIVITY_KIND_MEMCPY" not in present(lazy)
    assert "CUPTI_ACTIVITY_KIND_MEMCPY" in present(full)


def test_graph_rows_in_both_tracing_modes(tmp_path):
    script = Script().op("graph", 10, 90, (0, 5)).op("kernel", 100, 110, (95, 96), graph=True)
    path = nsight.write(script.build(), tmp_path / "run.sqlite")
    assert rows(path, "SELECT start, end FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE") == [(10, 90)]
    assert rows(path, "SELECT graphNodeId FROM CUPTI_ACTIVITY_KIND_KERNEL") == [((1 << 32) + 7,)]
    with pytest.raises(ValueError, match="graph-level"):
        kineto.dumps(script.build())


def test_merged_processes_share_correlation_ids(tmp_path):
    one, two = (Loop(forward_ns=99_000, process=Process(pid)) for pid in (1000, 2000))
    path = nsight.write(merge(one.scenario(), two.scenario()), tmp_path / "run.sqlite")
    shared = rows(
        path,
        "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL GROUP BY correlationId LIMIT 1",
    )
    assert shared == [(2,)]


def test_sqlite_faults(tmp_path):
    path = nsight.write(TWO_COLLECTIVES.scenario(), tmp_path / "run.sqlite")
    data = path.read_bytes()
    for damaged in (faults.truncated_sqlite(data), faults.overwritten_sqlite(data)):
        path.write_bytes(damaged)
        with pytest.raises(sqlite3.DatabaseError):
            rows(path, "SELECT * FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY start")
    half = nsight.edit(tmp_path / "half.sqlite", *faults.HALF_WRITTEN)
    assert present(half) == {"StringIds", "ProcessStreams"}
    path.write_bytes(data)
    nsight.edit(path, *faults.TEXT_IN_INTEGERS)
    kinds = rows(path, "SELECT typeof(start) FROM CUPTI_ACTIVITY_KIND_KERNEL LIMIT 2")
    assert kinds == [("text",), ("integer",)]
