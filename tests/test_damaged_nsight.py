"""Nsight exports with damaged pages, unfinished writes, odd views: the good part is kept."""

from __future__ import annotations

import gzip
import shutil
import sqlite3

import pytest

from tests.builders import nsight, truth
from tests.builders.loop import EVERYTHING_PAGEABLE, Loop
from tests.builders.nsight_pages import MANY, PAGE, leaf_pages, overwrite_pages, write_many_kernels
from tests.builders.nsight_schema import KERNEL, RUNTIME
from tests.builders.scenario import Process, Script, colliding_ranks, merge
from tests.builders.truth import assert_same_events
from tests.written_traces import read_nsight
from traceprobe.errors import DamagedInput
from traceprobe.ingest.nsight import damaged_pages as nsight_pages
from traceprobe.ingest.nsight import open_export as reader
from traceprobe.ingest.read_trace import read_trace


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_many_kernels(tmp_path_factory.mktemp("whole") / "run.sqlite")


@pytest.mark.parametrize("which", [0, 1, -2, -1], ids=["first", "second", "last but one", "last"])
def test_one_damaged_page_costs_its_rows_only(whole, tmp_path, which):
    pages = leaf_pages(whole, KERNEL)
    assert len(pages) > 10
    path = tmp_path / "run.sqlite"
    shutil.copy(whole, path)
    trace = read_trace(overwrite_pages(path, pages[which]))
    lost = MANY - len(trace.gpu_ops)
    assert 0 < lost < 3 * MANY / len(pages)
    assert list(trace.quality.warnings) == ["damaged-tables"]
    assert KERNEL in trace.quality.warnings["damaged-tables"]
    assert "nsys export" in trace.quality.warnings["damaged-tables"]
    if which != -1:  # behind the last page no row says how many there were
        assert trace.quality.damage == {"damaged-tables": lost}
    assert len(trace.host_calls) == MANY
    assert trace.gpu_ops["linked"].all()
    assert set(trace.gpu_ops["t1"] - trace.gpu_ops["t0"]) == {5_000}


def test_damage_in_many_places_keeps_what_lies_between(whole, tmp_path):
    path = tmp_path / "run.sqlite"
    shutil.copy(whole, path)
    pages = leaf_pages(whole, KERNEL)
    calls = leaf_pages(whole, RUNTIME)
    trace = read_trace(overwrite_pages(path, *pages[1:-1:3], *calls[2:-1:2]))
    assert MANY / 2 < len(trace.gpu_ops) < MANY
    assert MANY / 3 < len(trace.host_calls) < MANY
    missing = 2 * MANY - len(trace.gpu_ops) - len(trace.host_calls)
    assert trace.quality.damage == {"damaged-tables": missing}


def test_a_damaged_root_costs_the_table(whole, tmp_path):
    path = tmp_path / "run.sqlite"
    shutil.copy(whole, path)
    with sqlite3.connect(path) as db:
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (root,) = db.execute(query, (RUNTIME,)).fetchone()
    db.close()
    trace = read_trace(overwrite_pages(path, root))
    assert len(trace.gpu_ops) == MANY
    assert trace.host_calls.is_empty()
    assert "damaged-tables" in trace.quality.warnings


def test_a_value_on_a_damaged_page_costs_the_value_only(tmp_path):
    """A long text lies on pages of its own."""
    script = Script().op("kernel", 10, 20, (1, 2)).op("kernel", 30, 40, (25, 26))
    for k in range(5):
        script.range(f"step {k} " + "x" * 20_000, k * 100, k * 100 + 50)
    path = nsight.write(script.build(), tmp_path / "run.sqlite")
    data = path.read_bytes()
    pages = [
        n for n in range(1, len(data) // PAGE + 1) if b"x" * 4000 in data[(n - 1) * PAGE :][:PAGE]
    ]
    assert len(pages) > 10
    # The chain of pages of the third text ends in nothing.
    with path.open("r+b") as file:
        file.seek((pages[len(pages) // 2] - 1) * PAGE)
        file.write(b"\xff" * 4)
    trace = read_trace(path)
    assert len(trace.host_ranges) == 5
    names = [trace.names[i] for i in trace.host_ranges["name"]]
    assert sum(name.startswith("step") for name in names) == 4
    assert "NVTX_EVENTS" in trace.quality.warnings["damaged-tables"]


def test_a_damaged_table_in_another_encoding_is_read_like_any(tmp_path):
    whole = nsight.write(Loop(steps=60, forward_ns=90_000).scenario(), tmp_path / "run.sqlite")
    path = nsight.recoded(whole, "UTF-16le")
    overwrite_pages(path, leaf_pages(path, "NVTX_EVENTS")[1])
    found = read_trace(path)
    assert found.quality.warnings["damaged-tables"]
    ranges = set(found.host_ranges["name"].unique())
    expected = read_trace(whole)
    known = {expected.names[i] for i in expected.host_ranges["name"].unique()}
    assert {found.names[i] for i in ranges} <= known


def test_texts_with_damaged_pages_leave_the_others_named(whole, tmp_path):
    path = tmp_path / "run.sqlite"
    script = Script()
    for k in range(3_000):
        at = 1_000 + k * 100
        script.op("kernel", at, at + 50, name=f"kernel_number_{k}_with_a_name")
    nsight.write(script.build(), path)
    pages = leaf_pages(path, "StringIds")
    assert len(pages) > 10
    trace = read_trace(overwrite_pages(path, pages[3]))
    assert len(trace.gpu_ops) == 3_000
    names = [trace.names[i] for i in trace.gpu_ops["name"]]
    assert 0 < names.count("unknown") < 3 * 3_000 / len(pages)


def test_pages_that_lead_back_to_themselves_come_to_an_end(whole, tmp_path):
    path = tmp_path / "run.sqlite"
    shutil.copy(whole, path)
    pages = leaf_pages(whole, KERNEL)
    with path.open("r+b") as file:  # one page twice, in the place of another
        file.seek((pages[2] - 1) * PAGE)
        page = file.read(PAGE)
        file.seek((pages[6] - 1) * PAGE)
        file.write(page)
    trace = read_trace(path)
    assert MANY / 2 < len(trace.gpu_ops) <= MANY
    assert trace.gpu_ops["correlation"].is_sorted()


@pytest.mark.parametrize(
    ("fraction", "gz"), [(0.5, False), (0.8, False), (0.95, False), (0.8, True), (0.95, True)]
)
def test_an_export_that_was_cut_keeps_its_first_pages(whole, tmp_path, fraction, gz):
    data = whole.read_bytes()
    path = tmp_path / "run.sqlite"
    if gz:
        packed = gzip.compress(data)
        data = packed[: int(len(packed) * fraction)]
    else:
        data = data[: int(len(data) * fraction)]
    path.write_bytes(data)
    trace = read_trace(path)
    assert 0 < len(trace.gpu_ops) <= MANY
    whole_tables = len(trace.gpu_ops) + len(trace.host_calls) == 2 * MANY
    assert whole_tables == (fraction > 0.9 and not gz)
    assert ("damaged-tables" in trace.quality.warnings) is not whole_tables
    assert "missing-pages" in trace.quality.warnings
    assert ("truncated-file" in trace.quality.warnings) is gz


def test_nothing_is_left_of_the_copies(whole, tmp_path, monkeypatch):
    made = []
    original = nsight_pages.copy_readable_rows
    monkeypatch.setattr(
        "traceprobe.ingest.nsight.tables.copy_readable_rows",
        lambda *a, **k: made.append(original(*a, **k)) or made[-1],
    )
    path = tmp_path / "run.sqlite"
    shutil.copy(whole, path)
    read_trace(overwrite_pages(path, leaf_pages(whole, KERNEL)[1]))
    assert len(made) == 1
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        made[0][0].execute("SELECT 1")


def writing(path, mode):
    """A connection that is in the middle of adding rows."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(f"PRAGMA journal_mode = {mode}")
    db.execute("PRAGMA wal_autocheckpoint = 0")
    db.execute("BEGIN EXCLUSIVE")
    db.execute("INSERT INTO StringIds VALUES (99999, 'later')")
    return db


def test_changes_that_were_never_merged_are_said(tmp_path):
    path = nsight.write(EVERYTHING_PAGEABLE.scenario(), tmp_path / "run.sqlite")
    db = writing(path, "WAL")
    db.execute("COMMIT")
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("run.sqlite", "run.sqlite-wal"):
        shutil.copy(tmp_path / name, copy / name)
    db.close()
    trace = read_trace(copy / "run.sqlite")
    assert truth.seen_ops(trace) == truth.gpu_ops(EVERYTHING_PAGEABLE.scenario())
    assert list(trace.quality.warnings) == ["unfinished-write"]
    assert "run.sqlite-wal" in trace.quality.warnings["unfinished-write"]
    assert str(tmp_path) not in trace.quality.warnings["unfinished-write"]
    (copy / "run.sqlite-wal").write_bytes(b"")
    assert read_trace(copy / "run.sqlite").quality.warnings == {}


def test_an_export_whose_tables_are_all_in_the_journal_says_so(tmp_path):
    path = tmp_path / "run.sqlite"
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("run.sqlite", "run.sqlite-wal"):
        shutil.copy(tmp_path / name, copy / name)
    db.close()
    with pytest.raises(DamagedInput, match=r"run\.sqlite-wal lies beside the export"):
        read_trace(copy / "run.sqlite")


def test_a_locked_file_is_read(tmp_path):
    path = nsight.write(EVERYTHING_PAGEABLE.scenario(), tmp_path / "run.sqlite")
    db = writing(path, "DELETE")
    try:
        trace = read_trace(path)
        assert truth.seen_ops(trace) == truth.gpu_ops(EVERYTHING_PAGEABLE.scenario())
    finally:
        db.execute("ROLLBACK")
        db.close()


MADE_UP = {
    "a view": "CREATE VIEW {0} AS SELECT * FROM old",
    "a broken view": "CREATE VIEW {0} AS SELECT * FROM gone",
    "a view without an end": "CREATE VIEW {0} AS WITH RECURSIVE c(start) AS (SELECT 1 UNION ALL "
    "SELECT start + 1 FROM c) SELECT start, start AS end FROM c",
    "a view that multiplies rows": "CREATE VIEW {0} AS SELECT a.* FROM old a, old b, old c, old d",
    "a view with functions": "CREATE VIEW {0} AS SELECT length(randomblob(1e9)) AS start, 2 AS end",
    "a view with an extension": "CREATE VIEW {0} AS SELECT load_extension('x') AS start, 2 AS end",
    "a view that writes": "CREATE VIEW {0} AS SELECT writefile('x', 'y') AS start, 2 AS end",
    "a view that joins texts": "CREATE VIEW {0} AS SELECT rowid AS start, "
    "(SELECT group_concat(a.rowid) FROM old a, old b) AS value FROM old",
    "a virtual table": "CREATE VIRTUAL TABLE {0} USING fts5(start, end, value, id)",
    "generated columns": "CREATE TABLE {0} (start, end, id, one TEXT, "
    "value TEXT AS (one || one || one || one))",
    "stored generated columns": "CREATE TABLE {0} (start, end, id, value TEXT AS (id) STORED)",
}


@pytest.mark.parametrize("table", [RUNTIME, "StringIds"])
@pytest.mark.parametrize("made_up", MADE_UP.values(), ids=MADE_UP)
def test_what_is_made_up_is_a_missing_table(tmp_path, monkeypatch, made_up, table):
    path = nsight.write(EVERYTHING_PAGEABLE.scenario(), tmp_path / "run.sqlite")
    nsight.edit(path, f"ALTER TABLE {table} RENAME TO old", made_up.format(table))
    monkeypatch.chdir(tmp_path)
    trace = read_trace(path)
    assert len(trace.gpu_ops) == len(EVERYTHING_PAGEABLE.scenario().ops)
    assert trace.quality.damage["no-real-tables"] == 1
    assert f"{table}: not read" in trace.quality.warnings["no-real-tables"]
    assert trace.host_calls.is_empty() == (table == RUNTIME)
    assert ("gemm" not in " ".join(trace.names)) or table == RUNTIME
    assert [p.name for p in tmp_path.iterdir()] == ["run.sqlite"]


def test_without_real_tables_of_gpu_work_the_reason_is_said(tmp_path):
    path = nsight.write(Script().op("kernel", 10, 20).build(), tmp_path / "run.sqlite")
    nsight.edit(
        path, f"ALTER TABLE {KERNEL} RENAME TO o", f"CREATE VIEW {KERNEL} AS SELECT * FROM o"
    )
    with pytest.raises(DamagedInput, match=f"{KERNEL}: not read, since only real tables are"):
        read_trace(path)


def test_an_entry_of_the_schema_that_calls_itself_a_table_is_none(tmp_path):
    """The schema is a table of texts, and whoever writes a file writes those, too."""
    path = nsight.write(EVERYTHING_PAGEABLE.scenario(), tmp_path / "run.sqlite")
    nsight.edit(path, "ALTER TABLE StringIds RENAME TO old")
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute(
            "INSERT INTO sqlite_master VALUES ('table', 'StringIds', 'StringIds', 0, "
            "'CREATE VIEW StringIds AS SELECT id, value FROM old')"
        )
    db.close()
    trace = read_trace(path)
    assert "StringIds: not read" in trace.quality.warnings["no-real-tables"]


def test_a_query_that_takes_far_too_many_steps_is_given_up(tmp_path, monkeypatch):
    """As over pages that lead to each other: a damaged tree may have any number of rows."""
    path = nsight.write(Loop(steps=40, forward_ns=90_000).scenario(), tmp_path / "run.sqlite")
    monkeypatch.setattr(reader, "BASE_STEPS", 5_000)
    monkeypatch.setattr(reader, "_STEPS_A_ROUND", 1_000)
    monkeypatch.setattr(reader, "STEPS_A_BYTE", 0)
    with pytest.raises(DamagedInput, match="far longer than the size of the file explains"):
        read_trace(path)


@pytest.mark.parametrize("table", ["StringIds", "NVTX_EVENTS", "META_DATA_EXPORT"])
def test_more_text_than_the_file_explains_is_refused(tmp_path, monkeypatch, table):
    """Rows of a file that was made by hand may all have the same pages for their texts."""
    script = Script().op("kernel", 10, 20, (1, 2)).range("step 0", 5, 30)
    path = nsight.write(script.build(), tmp_path / "run.sqlite")
    with sqlite3.connect(path) as db:
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        texts = {"value": "'x'", "text": "'x'", "eventType": "59", "name": "'x'", "id": "{0}"}
        row = ", ".join(texts.get(column, "1") for column in columns)
        for k in range(5):
            db.execute(
                f"INSERT INTO {table} VALUES ({row})".format(9_000 + k).replace(
                    "'x'", f"'{'x' * 10_000}'"
                )
            )
    db.close()
    assert read_trace(path).gpu_ops.height == 1
    monkeypatch.setattr(reader, "TEXT_A_BYTE", 0)
    monkeypatch.setattr(reader, "BASE_TEXT", 45_000)
    with pytest.raises(DamagedInput, match="many times more text than the file"):
        read_trace(path)


def test_a_value_may_be_16_megabytes_long_where_python_can_say_so(tmp_path):
    path = nsight.write(EVERYTHING_PAGEABLE.scenario(), tmp_path / "run.sqlite")
    db = reader._connect(path, reader._Steps(path))
    if hasattr(db, "setlimit"):  # Python 3.11
        assert db.getlimit(sqlite3.SQLITE_LIMIT_LENGTH) == reader.LONGEST_VALUE
    assert db.execute("SELECT count(*) FROM StringIds").fetchone()[0] > 0
    db.close()


def test_a_schema_of_many_tables_is_no_riddle(tmp_path):
    path = nsight.write(EVERYTHING_PAGEABLE.scenario(), tmp_path / "run.sqlite")
    whole = read_trace(path)
    with sqlite3.connect(path) as db:
        db.execute("BEGIN")
        for k in range(500):
            db.execute(f"CREATE TABLE other{k} (a CHECK (length(a) > 2), b)")
            db.execute(f"CREATE INDEX index{k} ON other{k} (a || b)")
    db.close()
    assert_same_events(read_trace(path), whole)


def test_triggers_do_nothing(tmp_path):
    path = nsight.write(EVERYTHING_PAGEABLE.scenario(), tmp_path / "run.sqlite")
    plain = read_trace(path)
    nsight.edit(
        path,
        f"CREATE TRIGGER a AFTER INSERT ON {KERNEL} BEGIN DELETE FROM StringIds; END",
        f"CREATE TRIGGER b AFTER UPDATE ON {KERNEL} BEGIN SELECT randomblob(1e9); END",
    )
    before = path.read_bytes()
    assert_same_events(read_trace(path), plain)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO StringIds VALUES (1, 'x')",
        "ATTACH 'other.sqlite' AS other",
        "PRAGMA writable_schema = ON",
        "PRAGMA query_only = OFF",
        "SELECT load_extension('x')",
        "SELECT randomblob(9)",
        "CREATE TEMP TABLE x (y)",
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT * FROM c",
    ],
)
@pytest.mark.parametrize("short", [False, True])
def test_a_connection_can_do_nothing_but_read(tmp_path, monkeypatch, statement, short):
    monkeypatch.chdir(tmp_path)
    path = nsight.write(EVERYTHING_PAGEABLE.scenario(), tmp_path / "run.sqlite")
    db = reader._connect(path, reader._Steps(path), short=short)
    assert db.execute("SELECT count(*) FROM StringIds").fetchone()[0] > 0
    with pytest.raises(sqlite3.DatabaseError):
        db.execute(statement)
    db.close()
    assert [p.name for p in tmp_path.iterdir()] == ["run.sqlite"]


def test_processes_that_share_a_gpu_are_said(tmp_path):
    path = nsight.write(colliding_ranks(), tmp_path / "run.sqlite", "3.24.0")
    nsight.edit(path, "UPDATE TARGET_INFO_CUDA_DEVICE SET gpuId = 0")
    trace = read_trace(path)
    assert "shared-gpu" in trace.quality.warnings
    nsight.edit(path, "UPDATE TARGET_INFO_CUDA_DEVICE SET gpuId = pid")
    assert "shared-gpu" not in read_trace(path).quality.warnings


def test_a_process_that_only_sees_a_gpu_does_not_share_it(tmp_path):
    one = Script(Process(1000, devices=("A", "B"))).op("kernel", 10, 20, (1, 2), device=0)
    two = Script(Process(2000, devices=("A", "B"))).op("kernel", 10, 20, (1, 2), device=1)
    trace = read_nsight(merge(one.build(), two.build()), tmp_path, "3.24.0")
    assert "shared-gpu" not in trace.quality.warnings
