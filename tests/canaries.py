"""A word that stands for all that is private, planted into traces: a canary."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing

CANARY = "kanarienvogel"
SECRET = "Kanarienvogel"
"""The canary in names, whose case must not matter."""
KINETO_SAMPLES = ("h200_unet_w1.json.gz", "profile_unet.json.gz", "cpu_convnet.json.gz")
NSIGHT_SAMPLES = (
    "h200_unet_w1.sqlite.gz",
    "profile_wide_mlp.sqlite.gz",
    "h200_collectives.sqlite.gz",
)
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


def canary_in_chrome_trace(data: bytes) -> bytes:
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


def canary_in_export(data: bytes) -> bytes:
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


def canary_in_names(data: bytes, nsys: bool) -> bytes:
    """The canary in every name as well: of ranges, kernels, threads, modules, devices."""

    def planted(text):
        return f"{text} {SECRET}" if text else text

    if not nsys:
        trace = json.loads(gzip.decompress(data))
        for event in trace["traceEvents"]:
            if event["ph"] == "M":
                event["args"] = {k: planted(str(v)) for k, v in event.get("args", {}).items()}
            else:
                event["name"] = planted(event["name"])
        frame = {"ph": "X", "cat": "python_function", "pid": 1, "tid": 1, "ts": 5, "dur": 1}
        names = (f"/home/{SECRET}/{SECRET}.py(7): run", f"nn.Module: {SECRET}_0")
        trace["traceEvents"] += [frame | {"name": name} for name in names]
        return gzip.compress(json.dumps(trace).encode())
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(gzip.decompress(data))
        database.create_function("planted", 1, planted)
        database.execute("UPDATE StringIds SET value = planted(value)")
        database.execute("UPDATE NVTX_EVENTS SET text = planted(text)")
        database.execute("UPDATE TARGET_INFO_GPU SET name = planted(name)")
        blob = SECRET.encode()
        database.execute("CREATE TABLE IF NOT EXISTS ThreadNames (globalTid INT, nameId INT)")
        columns = [row[1] for row in database.execute("PRAGMA table_info(NVTX_EVENTS)")]
        if "binaryData" in columns:
            database.execute(
                "UPDATE NVTX_EVENTS SET binaryData = ? WHERE text NOT GLOB 'nccl*'", [blob]
            )
        database.commit()
        return gzip.compress(database.serialize())
