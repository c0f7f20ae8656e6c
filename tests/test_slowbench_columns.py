"""Recordings that are kept column by column come back as they were."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from benchmarks.slowbench.columns import pack, unpack

EVENTS = [
    {"ph": "X", "cat": "kernel", "name": "k", "ts": 1234567.125, "dur": 3, "args": {"stream": 7}},
    {"ph": "X", "cat": "kernel", "name": "k", "ts": 1234569.5, "dur": 2.001, "args": {"stream": 7}},
    {"ph": "X", "cat": "kernel", "name": "k", "ts": 0.1 + 0.2, "dur": -1, "args": {"stream": "s"}},
    {"ph": "X", "cat": "cpu_op", "name": "\u00e4", "ts": 1e300, "dur": True, "args": {}},
    {"ph": "X", "cat": "cpu_op", "name": None, "ts": 5, "dur": False, "args": {}},
    {"ph": "i", "name": "no category", "ts": 2**70},
    {"name": "args first", "args": {"grid": [1, 2, 3], "deep": {"a": 1}}, "ph": "X"},
]


def test_a_chrome_trace_comes_back_but_for_the_order_of_unlike_events(tmp_path):
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    trace = {"schemaVersion": 1, "traceEvents": EVENTS, "distributedInfo": {"rank": 0}}
    before.write_text(json.dumps(trace))
    unpack(pack(before), after)
    found = json.loads(after.read_text())
    # repr tells 3 from 3.0 and True from 1, and has the order of fields.
    assert sorted(map(repr, found.pop("traceEvents"))) == sorted(map(repr, EVENTS))
    assert found == {name: value for name, value in trace.items() if name != "traceEvents"}


@pytest.mark.parametrize("rows", [0, 1, 40])
def test_an_export_comes_back_with_its_tables_views_and_indices(tmp_path, rows):
    before, after = tmp_path / "before.sqlite", tmp_path / "after.sqlite"
    with closing(sqlite3.connect(before)) as database, database:
        database.execute("CREATE TABLE K (start INTEGER, name TEXT, part REAL, blob BLOB, any)")
        database.execute("CREATE INDEX at ON K (start)")
        database.execute("CREATE VIEW late AS SELECT * FROM K WHERE start > 3")
        database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL)")
        database.executemany(
            "INSERT INTO K VALUES (?, ?, ?, ?, ?)",
            [
                (n * 2**40, "x", n / 7, b"\x00" if n % 2 else None, "1" if n else 1.5)
                for n in range(rows)
            ],
        )
        database.execute("INSERT INTO StringIds VALUES (-5, 'five')")
    unpack(pack(before), after)
    with closing(sqlite3.connect(before)) as one, closing(sqlite3.connect(after)) as other:
        assert sorted(one.iterdump()) == sorted(other.iterdump())
        kinds = "SELECT typeof(start), typeof(part), typeof(blob), typeof(any) FROM K"
        assert one.execute(kinds).fetchall() == other.execute(kinds).fetchall()
