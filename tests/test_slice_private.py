"""What a slice holds beside the names of kernels and ranges: known fields, in known words."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

import traceprobe
from tests.builders import kineto, nsight
from tests.builders.loop import Loop
from tests.memory_records import make_record
from traceprobe.anonymise.anonymise_trace import anonymise_trace
from traceprobe.errors import UsageError
from traceprobe.slicing.public_values import is_public_thread, public_record
from traceprobe.slicing.slice_trace import slice_trace

CANARY = "CNRY"
DIAGNOSED = ((0, 2, "to be replaced"),)
LOOP = Loop(steps=6, forward_ns=400_000, backward_ns=600_000, optimizer_ns=100_000)
RECORD = {
    "unprofiled_step_ms": 1.5,
    "hardware": {"cpu_count": 8, "gpus": [{"name": "NVIDIA H200"}], "serial": f"{CANARY}1"},
    "flags": {"cudnn_allow_tf32": True, "matmul_precision": f"{CANARY}2", f"{CANARY}3": 1},
    "libraries": {"torch": "2.11.0+cu130", "python": f"3.12 {CANARY}4"},
    "workload": {
        "name": f"/home/{CANARY}5/train.py",
        "batch_size": 64,
        "settings": {"precision": "bf16", "data": f"/data/{CANARY}6"},
        f"{CANARY}7": 3,
    },
    "rank": 0,
    "hostname": f"{CANARY}8",
    "memory": make_record(),
}


def copies(source, folder):
    """A slice and an anonymised copy, by what made them."""
    names = {"slice": folder / f"slice-{source.name}", "copy": folder / f"copy-{source.name}"}
    slice_trace(source, names["slice"], (1, 5))
    anonymise_trace(source, names["copy"])
    return names


def raw(path):
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def in_json(folder):
    """A trace with a canary in every place beside the names of work."""
    path = kineto.write(LOOP.scenario(), folder / "trace.json")
    trace = json.loads(path.read_text())
    number = iter(range(100, 100_000))

    def canary():
        return f"{CANARY}{next(number)}"

    times = sorted(event["ts"] for event in trace["traceEvents"] if event["ph"] == "X")
    middle = times[len(times) // 2]
    for event in trace["traceEvents"]:
        event[canary()] = canary()
        event["host"] = canary()
        event["bp"] = canary()
        arguments = event.setdefault("args", {})
        if event["ph"] == "M":
            arguments["name"] = f"{arguments.get('name')} {canary()}"
        arguments |= {key: canary() for key in ("dtype", "Process Group Name", "kind", canary())}
        arguments["Process Group Ranks"] = [canary()]
        arguments["Input Dims"] = [[canary()]]
    for name in ("thread_name", "process_name", "process_labels", canary()):
        meta = {"ph": "M", "pid": 1, "tid": 2, "args": {"name": canary(), "labels": canary()}}
        trace["traceEvents"].append(meta | {"name": name})
    for category, name in (
        ("python_function", f"/home/{canary()}/train.py(3): step"),
        ("python_function", f"/home/{canary()}\n/{canary()}.d/train.py(3): step"),
        ("python_function", f"<built-in method of x at /home/{canary()}>"),
        ("Python", f"C:\\{canary()} {canary()}\\"),
        (canary(), canary()),
        ("Trace", canary()),
        ("cpu_instant_event", canary()),
        (["cpu_op"], canary()),
    ):
        frame = {"ph": "X", "cat": category, "name": name, "pid": canary(), "tid": canary()}
        trace["traceEvents"].append(frame | {"ts": middle, "dur": 1, "id": canary(), "args": {}})
    group = [{"pg_name": canary(), "pg_desc": canary(), canary(): 1}]
    trace |= {
        "distributedInfo": {"rank": 0, "world_size": 1, "backend": canary(), "pg_config": group},
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132, canary(): canary()}],
        "displayTimeUnit": canary(),
        "cupti_version": canary(),
        "with_stack": canary(),
        "traceprobe": RECORD,
        **{key: [canary()] for key in ("INFO", "WARNING", "ERROR", "metadata", canary())},
    }
    path.write_text(json.dumps(trace))
    return path


def in_database(folder):
    """An export with a canary in every text beside the names of work, and in the schema."""
    path = nsight.write(replace(LOOP.scenario(), diagnostics=DIAGNOSED), folder / "run.sqlite")
    with closing(sqlite3.connect(path)) as db:
        number = iter(range(100, 100_000))
        tables = [n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for _, column, kind, *_ in db.execute(f'PRAGMA table_info("{table}")').fetchall():
                keep = table == "StringIds" or (table, column) in {
                    ("NVTX_EVENTS", "text"),
                    ("TARGET_INFO_GPU", "name"),
                    ("META_DATA_EXPORT", "name"),
                }
                if kind == "TEXT" and not keep:
                    db.execute(f'UPDATE "{table}" SET "{column}" = \'{CANARY}{next(number)}\'')
            db.execute(f'ALTER TABLE "{table}" ADD COLUMN {CANARY}{next(number)} TEXT')
        for table, column in (
            ("KERNEL", "gridX"),
            ("KERNEL", "contextId"),
            ("RUNTIME", "returnValue"),
        ):
            table = f"CUPTI_ACTIVITY_KIND_{table}"
            db.execute(f"UPDATE {table} SET {column} = '{CANARY}{next(number)}'")
            db.execute(f"UPDATE {table} SET {column} = CAST({column} AS BLOB) WHERE rowid % 2")
        for table in ("TARGET_INFO_SESSION_START_TIME", "ANALYSIS_DETAILS"):
            db.execute(f"DROP TABLE IF EXISTS {table}")
            columns = "utcEpochNs, utcTime, systemClockNs, globalVid, duration, startTime, path"
            db.execute(f"CREATE TABLE {table} ({columns})")
            values = ", ".join(f"'{CANARY}{next(number)}'" for _ in columns.split(","))
            db.execute(f"INSERT INTO {table} VALUES ({values})")
        db.execute("DROP TABLE IF EXISTS ENUM_CUDA_MEM_KIND")
        db.execute("CREATE TABLE ENUM_CUDA_MEM_KIND (id, name, label)")
        db.execute(
            f"INSERT INTO ENUM_CUDA_MEM_KIND VALUES (1, '{CANARY}', '{CANARY}'), "
            f"(2, '', '{CANARY}'), ('{CANARY}', 'Device', 'Device')"
        )
        db.execute(f"CREATE TABLE ENUM_{CANARY} (id INTEGER, name TEXT, label TEXT)")
        db.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_{CANARY} (start INTEGER /* {CANARY} */)")
        db.execute("INSERT INTO StringIds(id, value) VALUES (77777, ?)", [f"{CANARY}-thread"])
        db.execute("INSERT INTO ThreadNames(nameId, globalTid) SELECT 77777, globalTid FROM "
                   "CUPTI_ACTIVITY_KIND_RUNTIME LIMIT 1")  # fmt: skip
        columns = "start, end, eventType, text, globalTid, jsonText, binaryData"
        tid = "(SELECT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME LIMIT 1)"
        for kind, text in ((39, f"{CANARY}-thread"), (59, "ordinary")):
            values = f"(SELECT start FROM NVTX_EVENTS LIMIT 1), NULL, {kind}, '{text}', {tid}"
            db.execute(
                f"INSERT INTO NVTX_EVENTS({columns}) VALUES ({values}, ?, ?)",
                [json.dumps({CANARY: CANARY}), f"{CANARY}".encode()],
            )
        db.execute("CREATE TABLE traceprobe (rank INTEGER, json TEXT)")
        db.execute("INSERT INTO traceprobe VALUES (0, ?)", [json.dumps(RECORD)])
        note = f"No NVTX events collected. Does the process use NVTX? {CANARY}.org /home/{CANARY}"
        db.execute("UPDATE DIAGNOSTIC_EVENT SET text = ?", [note])
        db.commit()
    return path


def in_utf16(folder):
    """The same export with its texts in another encoding."""
    return nsight.recoded(in_database(folder), "UTF-16le")


@pytest.mark.parametrize("make", [in_json, in_database, in_utf16])
def test_nothing_but_names_of_work_is_in_a_slice_or_a_copy(tmp_path, make):
    source = make(tmp_path)
    encoding = "UTF-16le" if make is in_utf16 else "UTF-8"
    assert raw(source).count(CANARY.encode(encoding)) > 20
    whole = traceprobe.analyze(traceprobe.load(source))
    for made, path in copies(source, tmp_path).items():
        for stored in ("UTF-8", encoding):
            assert CANARY.encode(stored) not in raw(path), made
        report = traceprobe.analyze(traceprobe.load(path))
        assert report.verdict.bound == whole.verdict.bound
        assert report.ranks[0].device.name == whole.ranks[0].device.name
        assert report.quality.observer_effect.unprofiled_step_ms == 1.5


@pytest.mark.parametrize("make", [in_json, in_database])
def test_a_slice_of_a_recording_has_its_memory(tmp_path, make):
    source = make(tmp_path)
    whole = traceprobe.analyze(traceprobe.load(source))
    assert whole.memory.measured is not None
    for path in copies(source, tmp_path).values():
        memory = traceprobe.analyze(traceprobe.load(path)).memory
        assert memory.measured.parts == whole.memory.measured.parts
        assert memory.measured.peak_bytes == whole.memory.measured.peak_bytes
        assert memory.device_bytes == whole.memory.device_bytes
    sliced = traceprobe.analyze(traceprobe.load(tmp_path / f"slice-{source.name}"))
    assert sliced.memory == whole.memory


def test_a_diagnosis_of_nsight_stays_by_its_known_words(tmp_path):
    slice_trace(in_database(tmp_path), tmp_path / "cut.sqlite", (1, 5))
    with closing(sqlite3.connect(tmp_path / "cut.sqlite")) as db:
        texts = [t for (t,) in db.execute("SELECT text FROM DIAGNOSTIC_EVENT")]
    assert "No NVTX events collected. Does the process use NVTX? …" in texts


def test_a_record_keeps_what_the_analysis_reads():
    kept = public_record(RECORD)
    assert kept["hardware"] == {"cpu_count": 8, "gpus": [{"name": "NVIDIA H200"}], "serial": None}
    assert kept["flags"] == {"cudnn_allow_tf32": True, "matmul_precision": None}
    assert kept["libraries"] == {"torch": "2.11.0+cu130", "python": None}
    assert kept["workload"] == {
        "name": None,
        "batch_size": 64,
        "settings": {"precision": "bf16", "data": None},
    }
    assert "hostname" not in kept


@pytest.mark.parametrize("damage", [7, "text", None, {"measured": 5}, {"optimizer": "x" * 999}])
def test_a_memory_that_makes_no_sense_is_left_out(damage):
    assert public_record({"memory": damage, "rank": 3}) == {"rank": 3}


@pytest.mark.parametrize(
    "name",
    [
        *("pt_autograd_0", "thread 506 (pt_autograd_0)", "pt_data_worker", "python3", "stream 7 "),
        *("thread 452 (python3.12)", "pt_nccl_watchdg", "CUPTI worker thread", "MainThread"),
    ],
)
def test_threads_of_libraries_keep_their_names(name):
    assert is_public_thread(name)


@pytest.mark.parametrize("name", ["alice", "pt_autograd_0 of alice", "stream of alice", "", "pt_x"])
def test_threads_of_programs_do_not(name):
    assert not is_public_thread(name)


def test_a_text_that_is_no_utf8_does_not_stop_a_slice(tmp_path):
    path = nsight.write(replace(LOOP.scenario(), diagnostics=DIAGNOSED), tmp_path / "run.sqlite")
    nsight.edit(
        path,
        "UPDATE DIAGNOSTIC_EVENT SET text = CAST(x'4e6fff' AS TEXT)",
    )
    slice_trace(path, tmp_path / "cut.sqlite", (1, 5))
    assert traceprobe.load(tmp_path / "cut.sqlite").names


ODD = ("x", [1], {"a": 1}, 1e300, -(2**70), True, None)


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_odd_values_cost_what_they_describe_and_neither_slice_nor_copy(tmp_path, odd):
    """In every field and argument, of one event of each kind; operators without a place, too."""
    path = kineto.write(replace(LOOP, steps=20).scenario(), tmp_path / "trace.json")
    trace = json.loads(path.read_text())
    for category in {str(event.get("cat")) for event in trace["traceEvents"]}:
        mine = [e for e in trace["traceEvents"] if str(e.get("cat")) == category]
        fields = ["ph", "cat", "name", "ts", "dur", "id"]
        fields += ["args", "pid", "tid"] if category == "cpu_op" else []
        for event, field in zip(mine[3:], fields, strict=False):
            event[field] = odd
        for event, field in zip(mine[20:], ("correlation", "External id", "stream"), strict=False):
            event["args"] = {**event.get("args", {}), field: odd}
    trace["traceEvents"].append({"ph": "M", "pid": 1, "tid": 1, "name": odd, "args": odd})
    group = dict.fromkeys(("rank", "world_size", "backend", "nccl_version", "pg_config"), odd)
    facts = dict.fromkeys(("baseTimeNanoseconds", "displayTimeUnit", "cupti_version"), odd)
    path.write_text(json.dumps({**trace, **facts, "distributedInfo": group}))
    anonymise_trace(path, tmp_path / "copy.json")
    assert json.loads((tmp_path / "copy.json").read_text())["traceEvents"]
    if odd in ([1], {"a": 1}, True):
        slice_trace(path, tmp_path / "slice.json", (1, 5))
        assert json.loads((tmp_path / "slice.json").read_text())["traceEvents"]
    else:  # a kernel with another number belongs to a process of which nothing else is known
        with pytest.raises(UsageError, match="process 0 has no step marker"):
            slice_trace(path, tmp_path / "slice.json", (1, 5))
