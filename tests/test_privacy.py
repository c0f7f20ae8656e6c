"""What a trace holds beside the names of its work reaches no output.

A canary is put into every text of a trace that names neither an event nor a device, into cells of
every column that are no such name, and into the name of the folder. Then every output is searched.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing

import pytest

from tests.conftest import ROOT

CANARY = "kanarienvogel"
OUTPUTS = ("run.html", "run.json", "run.md")
KINETO = ("h200_unet_w1.json.gz", "profile_unet.json.gz", "cpu_convnet.json.gz")
NSIGHT = ("h200_unet_w1.sqlite.gz", "profile_wide_mlp.sqlite.gz", "h200_collectives.sqlite.gz")
NAMES = ("StringIds", "NVTX_EVENTS", "TARGET_INFO_GPU", "TARGET_INFO_SESSION_START_TIME")
"""Tables whose texts are names of work or of devices, or times."""


def plant(value, name=""):
    """The same with the canary in every text but names, and beside every key."""
    if isinstance(value, dict):
        planted = {key: plant(item, key) for key, item in value.items()}
        return {**planted, "hostname": f"{CANARY}-host", "user": f"/home/{CANARY}/x"}
    if isinstance(value, list):
        return [plant(item, name) for item in value]
    if isinstance(value, str) and name not in ("name", "ph", "cat", "bp", "s"):
        return f"{value} {CANARY}"
    return value


def in_chrome_trace(data: bytes) -> bytes:
    """Events keep what links and classifies them: only further arguments are planted."""
    trace = json.loads(gzip.decompress(data))
    head = {k: v for k, v in trace.items() if k not in ("traceEvents", "traceprobe")}
    planted = {k: v if isinstance(v, (int, float)) else plant(v, k) for k, v in head.items()}
    events = []
    for event in trace["traceEvents"]:
        arguments = event.get("args") if isinstance(event.get("args"), dict) else {}
        extra = {"Call stack": CANARY, "cwd": f"/home/{CANARY}", "Module": CANARY}
        events.append({**event, CANARY: CANARY, "args": {**arguments, **extra, CANARY: CANARY}})
    labels = {"ph": "M", "pid": 1, "tid": 1, "args": {"name": CANARY, "labels": CANARY}}
    named = ("process_name", "process_labels", "thread_name", CANARY)
    events += [{**labels, "name": n} for n in named]
    mine = {**trace.get("traceprobe", {}), "secret": CANARY, "cwd": f"/home/{CANARY}"}
    notes = {level: [f"failed on {CANARY} in /home/{CANARY}"] for level in ("ERROR", "INFO")}
    told = {"cupti_version": CANARY, "distributedInfo": {"pg_config": [{"pg_desc": CANARY}]}}
    secret = {"hostName": CANARY, "env": {"TOKEN": CANARY}, CANARY: CANARY, "traceprobe": mine}
    whole = {**planted, **notes, **told, **secret}
    return gzip.compress(json.dumps({**whole, "traceEvents": events}).encode())


def in_export(data: bytes) -> bytes:
    """Texts of all tables but names, an unused string, an environment and a table of processes."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(gzip.decompress(data))
        tables = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        for table in tables:
            columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
            if table not in NAMES and not table.startswith("ENUM_"):
                for column in columns:
                    keep = " AND name NOT LIKE 'EXPORT_%'" if "name" in columns else ""
                    database.execute(
                        f'UPDATE "{table}" SET "{column}" = "{column}" || \' /home/{CANARY}\' '
                        f"WHERE typeof(\"{column}\") = 'text'"
                        + (keep if column != "name" else " AND 0")
                    )
        database.execute("INSERT INTO StringIds VALUES (987654321, ?)", [CANARY])
        for table, columns, row in (
            ("META_DATA_CAPTURE", "name TEXT, value TEXT", ("ENV_VARS:TOKEN", CANARY)),
            ("ProcessStreams", "globalPid INTEGER, filenameId INTEGER", (1, 987654321)),
            ("PROCESSES", "globalPid INTEGER, pid INTEGER, name TEXT", (1, 1, CANARY)),
            ("SECRETS", "value TEXT", (CANARY,)),
            (f"ENUM_{CANARY}", "name TEXT", (CANARY,)),
            (f"CUPTI_ACTIVITY_KIND_{CANARY}", f"start INTEGER /* {CANARY} */", (1,)),
        ):
            database.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
            marks = ", ".join("?" * len(row))
            if len(list(database.execute(f"PRAGMA table_info({table})"))) == len(row):
                database.execute(f"INSERT INTO {table} VALUES ({marks})", row)
        for table in ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL", "TARGET_INFO_GPU"):
            database.execute(f"ALTER TABLE {table} ADD COLUMN {CANARY} TEXT DEFAULT '{CANARY}'")
        database.commit()
        return gzip.compress(database.serialize())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "redact"),
    [(name, name in (KINETO[0], NSIGHT[0])) for name in (*KINETO, *NSIGHT)],
)
def test_no_canary_in_any_output(cli, tmp_path, name, redact):
    folder = tmp_path / CANARY
    folder.mkdir()
    data = (ROOT / "sample_traces" / name).read_bytes()
    planted = in_export(data) if ".sqlite" in name else in_chrome_trace(data)
    trace = folder / name
    trace.write_bytes(planted)
    hidden = gzip.decompress(planted)
    assert hidden.count(CANARY.encode()) > 8
    options = ["--redact"] if redact else []
    outputs = [argument for output in OUTPUTS for argument in ("-o", output)]
    done = cli("analyze", trace, *outputs, *options).expect(0)
    shown = done.out.partition("next, ")[
        0
    ]  # the command that follows names the file that was given
    texts = {output: (tmp_path / output).read_text() for output in OUTPUTS} | {"terminal": shown}
    assert {output for output, text in texts.items() if CANARY in text.lower()} == set()
    assert json.loads(texts["run.json"])["verdict"]["bound"] != "inconclusive"
    listed = cli("inspect", trace).expect(0).out
    assert CANARY not in listed.lower()


@pytest.mark.slow
@pytest.mark.parametrize("name", [KINETO[0], NSIGHT[0]])
def test_no_canary_in_a_slice(cli, tmp_path, name):
    data = (ROOT / "sample_traces" / name).read_bytes()
    trace = tmp_path / name
    trace.write_bytes(in_export(data) if ".sqlite" in name else in_chrome_trace(data))
    cli("slice", trace, "--steps", "1:4", "-o", f"small.{name}").expect(0)
    assert CANARY.encode() not in gzip.decompress((tmp_path / f"small.{name}").read_bytes())
