"""Writes a scenario as an Nsight Systems SQLite export of a given schema version."""

from __future__ import annotations

import gzip as gz_module
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.builders.nsight_schema import ENUM, LABELS, PRODUCTS, Column, tables, version
from tests.builders.scenario import Call, Op, Range, Scenario

Row = dict[str, Any]

UTC_NS = 1_795_219_808_747_955_856
"""When the capture started; `utc=True` adds it to every time, as --ts-normalize does."""

_VERSIONED_APIS = {
    "cudaLaunchKernel": "_v7000",
    "cudaLaunchKernelExC": "_v11060",
    "cudaMemcpyAsync": "_v3020",
    "cudaMemsetAsync": "_v3020",
    "cudaGraphLaunch": "_v10000",
    "cudaStreamSynchronize": "_v3020",
    "cudaDeviceSynchronize": "_v3020",
}
_COPY_CODES = {"h2d": 1, "d2h": 2, "d2d": 8, "p2p": 10}
_FORM_CODES = {"push": 59, "start": 60, "mark": 34, "text_push": 70, "text_start": 71}
_SYNC_CODES = {"StreamWait": 2, "Event": 1, "Stream": 3, "Device": 4}
_GPU_TABLES = {"memset": "MEMSET", "graph": "GRAPH_TRACE"} | dict.fromkeys(_COPY_CODES, "MEMCPY")
_NONE = 0xFFFFFFFF
_LEAD_NS = 350_000_000_000  # domains are created long before the capture starts


@dataclass(frozen=True)
class Options:
    """How a file deviates from a plain export.

    Args:
        utc: times are UTC epoch nanoseconds.
        global_pid: without it GPU rows carry no process, as in rewritten files.
        enums: the ENUM_* label tables.
        registered: NVTX texts through StringIds (`textId`), as NCCL and DALI do.
        lazy: leave out empty tables, the exporter's default.
        without: tables, or (table, column) pairs, to leave out.
        emit_nvtx: operators as NVTX ranges with sequence numbers in their texts.
        ranks: write each process's environment with its RANK.
        hardware: bits 63..56 of every global id; 0xFE makes them negative.
        event_trace: records of events have rows, as with `--cuda-event-trace=true`.
        mislabelled_syncs: the wrong `syncType` codes of captures from 2020 to 2023.
    """

    utc: bool = False
    global_pid: bool = True
    enums: bool = True
    registered: bool = False
    lazy: bool = True
    without: frozenset[str | tuple[str, str]] = frozenset()
    emit_nvtx: bool = False
    ranks: bool = False
    hardware: int = 0
    mislabelled_syncs: bool = False
    event_trace: bool = True


def write(
    scenario: Scenario, path: Path, schema: str = "3.24.0", *, gz: bool = False, **options: Any
) -> Path:
    """Write an export; `options` are the fields of `Options`."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "export.sqlite"
        connection = sqlite3.connect(plain)
        connection.executescript("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY")
        try:
            _Export(scenario, schema, Options(**options)).fill(connection)
            connection.commit()
        finally:
            connection.close()
        data = plain.read_bytes()
    path.write_bytes(gz_module.compress(data, mtime=0) if gz else data)
    return path


def recoded(path: Path, encoding: str) -> Path:
    """The same export beside it, with its texts in another encoding."""
    target = path.with_name(f"{encoding}-{path.name}")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(target)) as copy:
        copy.execute(f"PRAGMA encoding = '{encoding}'")
        copy.executescript("\n".join(source.iterdump()))
    return target


def edit(path: Path, *statements: str) -> Path:
    """Run SQL on an export: for what no option says."""
    connection = sqlite3.connect(path)
    try:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    finally:
        connection.close()
    return path


def add_counters(path: Path, samples: dict[str, list[tuple[int, int]]], *, gpu: int = 0) -> Path:
    """Add sampled counters of a GPU to an export: name in the file to (time, value)."""
    type_id = 0x0001_0001_0000_0000 | gpu  # as nsys 2025.3 writes it
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "CREATE TABLE IF NOT EXISTS GPU_METRICS "
            "(timestamp INTEGER, typeId INTEGER NOT NULL, metricId INTEGER NOT NULL, value INTEGER)"
        )
        db.execute(
            "CREATE TABLE IF NOT EXISTS TARGET_INFO_GPU_METRICS (typeId INTEGER NOT NULL, "
            "sourceId INTEGER NOT NULL, typeName TEXT, metricId INTEGER NOT NULL, metricName TEXT)"
        )
        for number, (name, rows) in enumerate(samples.items()):
            about = (type_id, 1, "", number, name)
            db.execute("INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, ?, ?, ?, ?)", about)
            db.executemany(
                "INSERT INTO GPU_METRICS (timestamp, typeId, metricId, value) VALUES (?, ?, ?, ?)",
                [(t, type_id, number, value) for t, value in rows],
            )
    return path


def global_id(pid: int, tid: int = 0, *, hardware: int = 0) -> int:
    """The signed serialised id of a process or thread (VM 1)."""
    number = hardware << 56 | 1 << 48 | pid << 24 | tid
    return number - (1 << 64) if number >= 1 << 63 else number


@dataclass
class _Export:
    scenario: Scenario
    schema: str
    options: Options
    rows: dict[str, list[Row]] = field(default_factory=dict)
    strings: dict[str, int] = field(default_factory=dict)

    def fill(self, connection: sqlite3.Connection) -> None:
        """Create the tables of the schema and insert every row."""
        self._gpu()
        self._host()
        self._nvtx()
        self._machine()
        self.rows["StringIds"] = [{"id": n, "value": text} for text, n in self.strings.items()]
        for table, columns in tables(self.schema).items():
            rows = self.rows.get(table, [])
            if table not in self.options.without and (rows or not self.options.lazy):
                kept = [c for c in columns if self._kept(table, c.name)]
                _insert(connection, table, kept, rows)
        for table, labels in LABELS.items() if self.options.enums else ():
            rows = [{"id": int(code), "name": n, "label": text} for code, n, text in labels]
            _insert(connection, table, list(ENUM), rows)

    def _kept(self, table: str, column: str) -> bool:
        if column == "globalPid" and table.startswith("CUPTI") and not self.options.global_pid:
            return False
        return (table, column) not in self.options.without

    def add(self, table: str, **values: Any) -> None:
        self.rows.setdefault(table, []).append(values)

    def text(self, value: str) -> int:
        return self.strings.setdefault(value, len(self.strings))

    def at(self, t: int) -> int:
        return t + (UTC_NS if self.options.utc else 0)

    def gid(self, pid: int, tid: int = 0) -> int:
        return global_id(pid, tid, hardware=self.options.hardware)

    def _gpu(self) -> None:
        for op in self.scenario.ops:
            row = {
                "start": self.at(op.t0),
                "end": self.at(op.t1),
                "deviceId": op.device,
                "contextId": 1,
                "greenContextId": 0,
                "streamId": op.stream,
                "correlationId": op.correlation,
                "globalPid": self.gid(op.pid),
            }
            table = _GPU_TABLES.get(op.kind, "KERNEL")
            self.add(f"CUPTI_ACTIVITY_KIND_{table}", **row, **self._details(op))

    def _details(self, op: Op) -> Row:
        node = {"graphNodeId": (1 << 32) + op.stream if op.graph else None}
        if op.kind in _COPY_CODES:
            host = 0 if op.pageable else 1
            source, target = {"h2d": (host, 2), "d2h": (2, host)}.get(op.kind, (2, 2))
            copy = {"bytes": op.bytes or 0, "copyKind": _COPY_CODES[op.kind], "copyCount": 1}
            return node | copy | {"srcKind": source, "dstKind": target}
        if op.kind == "memset":
            return node | {"value": 0, "bytes": op.bytes or 0, "memKind": 2}
        if op.kind == "graph":
            return {"graphId": 4, "graphExecId": 5}
        short = self.text(op.label.split("(")[0].split("<")[0].split("::")[-1])
        names = {"demangledName": self.text(op.label), "shortName": short, "launchType": 1}
        shape = {"registersPerThread": 32, "gridX": op.blocks or 132, "gridY": 1, "gridZ": 1}
        block = {"blockX": 128, "blockY": 1, "blockZ": 1, "graphId": 4 if op.graph else None}
        return node | names | shape | block

    def _host(self) -> None:
        for call in self.scenario.host_calls():
            driver = call.api.startswith("cu") and not call.api.startswith("cuda")
            name = call.api + _VERSIONED_APIS.get(call.api, "")
            times = {"start": self.at(call.t0), "end": self.at(call.t1)}
            if call.noted is None or call.noted.call:
                self.add(
                    "CUPTI_ACTIVITY_KIND_RUNTIME",
                    **times,
                    eventClass=int(driver),
                    globalTid=self.gid(call.pid, call.thread),
                    correlationId=call.correlation,
                    nameId=self.text(name),
                )
            if call.noted is not None:
                self._note(call, times)
            elif code := _sync_code(call.api):
                wrong = self.options.mislabelled_syncs
                self.add(
                    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
                    **times,
                    contextId=1,
                    streamId=7 if code in (2, 3) else _NONE,
                    correlationId=call.correlation,
                    globalPid=self.gid(call.pid),
                    syncType={2: 3, 1: 2, 4: 1}.get(code, code) if wrong else code,
                    eventId=8 if code in (1, 2) else _NONE,
                    eventSyncId=0,
                )
        for row in self.scenario.overheads:
            self.add(
                "CUPTI_ACTIVITY_KIND_OVERHEAD" if row.driver else "PROFILER_OVERHEAD",
                start=self.at(row.t0),
                end=self.at(row.t1),
                globalTid=self.gid(row.pid, row.thread),
                nameId=self.text(row.name),
                eventClass=103,
                overheadType=7 if row.driver else 4,
            )

    def _note(self, call: Call, times: Row) -> None:
        """What Nsight notes of an event call; with event trace, records too."""
        noted, code = call.noted, _sync_code(call.api)
        assert noted is not None
        ids = {"streamId": noted.stream, "eventId": noted.event}
        row: Row = {key: _NONE if value is None else value for key, value in ids.items()}
        row |= {"contextId": 1, "deviceId": noted.device, "correlationId": call.correlation}
        row |= {"globalPid": self.gid(call.pid), "eventSyncId": noted.serial or 0}
        if code:
            wrong = {2: 3, 1: 2, 4: 1} if self.options.mislabelled_syncs else {}
            row |= times | {"syncType": wrong.get(code, code)}
            self.add("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", **row)
        elif self.options.event_trace:
            self.add("CUPTI_ACTIVITY_KIND_CUDA_EVENT", **row, timestamp=0)

    def _nvtx(self) -> None:
        for (pid, number), name in self.scenario.domains.items():
            self._event(Range(name, pid, -_LEAD_NS, None, pid, domain=number), 75)
        for row in self.scenario.ranges:
            self._event(row, _FORM_CODES[row.form])
        for index, op in enumerate(self.scenario.operators if self.options.emit_nvtx else ()):
            sequence = "" if op.sequence is None else f", seq = {op.sequence}"
            text = f"{op.name}{sequence}, op_id = {index}"
            self._event(Range(text, op.thread, op.t0, op.t1, op.pid), 59)

    def _event(self, row: Range, code: int) -> None:
        text_id = self.text(row.name) if self.options.registered and code != 75 else None
        end = None if code in (34, 75) or row.t1 is None else self.at(row.t1)
        ends_on = None if row.end_thread is None else self.gid(row.pid, row.end_thread)
        separate = code in (70, 71) and version(self.schema) >= (3, 28, 0)
        self.add(
            "NVTXT_EVENTS" if separate else "NVTX_EVENTS",
            start=self.at(row.t0),
            end=end,
            eventType=code,
            domainId=row.domain,
            rangeId=len(self.rows.get("NVTX_EVENTS", ())) if code == 60 else None,
            text=row.name if text_id is None else None,
            textId=text_id,
            globalTid=self.gid(row.pid, row.thread),
            endGlobalTid=ends_on,
        )

    def _machine(self) -> None:
        env = {"globalVid": 1 << 48, "devStateName": "Local (CLI)", "nameEnum": 170}
        product = PRODUCTS[self.schema]
        folder = f"/opt/nvidia/nsight-systems/{product.rsplit('.', 1)[0]}/target-linux-x64"
        self.add("TARGET_INFO_SYSTEM_ENV", **env, name="TargetInstallDir", value=folder)
        self.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=UTC_NS, utcTime="2026-11-21T00:10:08")
        end = self.scenario.end()
        details = {"duration": end, "startTime": 10_297_194_831, "stopTime": 10_297_194_831 + end}
        self.add("ANALYSIS_DETAILS", globalVid=1 << 48, **details)
        for name, value in self._export_facts(product):
            self.add("META_DATA_EXPORT", name=name, value=value)
            self.add("EXPORT_META_DATA", name=name, value=value)
        self.add("META_DATA_CAPTURE", name="CAPTURE_EVENT_TYPE", value="Cuda")
        for index, process in enumerate(self.scenario.processes):
            self._process(index)
            if self.options.ranks and process.rank is not None:
                world = self.scenario.world_size or 1
                for fact in (f"RANK={process.rank}", f"WORLD_SIZE={world}"):
                    name = f"PROCESS_{index}:ENVIRONMENT_VARIABLE"
                    self.add("META_DATA_CAPTURE", name=name, value=fact)
        for (pid, thread), name in self.scenario.thread_names.items():
            self.add(
                "ThreadNames", nameId=self.text(name), priority=20, globalTid=self.gid(pid, thread)
            )
        for t, severity, text in self.scenario.diagnostics:
            self.add(
                "DIAGNOSTIC_EVENT",
                timestamp=self.at(t),
                timestampType=2,
                source=3,
                severity=severity,
                text=text,
                globalPid=self.gid(self.scenario.processes[0].pid),
            )

    def _process(self, index: int) -> None:
        process = self.scenario.processes[index]
        self.add("PROCESSES", globalPid=self.gid(process.pid), pid=process.pid, name=process.name)
        known = {row["id"] for row in self.rows.get("TARGET_INFO_GPU", [])}
        for device, name in enumerate(process.devices):
            ids = {"hwId": 0, "vmId": 1, "processId": process.pid, "deviceId": device}
            if device not in known:
                uuid = f"00000000-0000-0000-0000-{device:012d}"
                self.add(
                    "TARGET_INFO_GPU",
                    vmId=1 << 48,
                    id=device,
                    name=name,
                    uuid=uuid,
                    cuDevice=device,
                )
            self.add("TARGET_INFO_CUDA_DEVICE", gpuId=device, cudaId=device, pid=process.pid)
            self.add("TARGET_INFO_CUDA_CONTEXT_INFO", nullStreamId=7, contextId=1, **ids)
            self.add("TARGET_INFO_CUDA_NULL_STREAM", streamId=7, contextId=1, **ids)

    def _export_facts(self, product: str) -> list[tuple[str, str]]:
        facts = [
            ("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems"),
            ("EXPORT_PRODUCT_VERSION", product),
            ("EXPORT_SCHEMA_VERSION", self.schema),
        ]
        if version(self.schema) >= (3, 1, 0):
            normalised = str(self.options.utc).lower()
            facts.append(("EXPORT_PARAM_TIME_NORMALIZE", normalised))
        return facts


def _sync_code(api: str) -> int | None:
    if not api.endswith(("Synchronize", "WaitEvent", "EventQuery")):
        return None
    return next((code for part, code in _SYNC_CODES.items() if part in api), None)


def _insert(
    connection: sqlite3.Connection, table: str, columns: list[Column], rows: list[Row]
) -> None:
    connection.execute(f'CREATE TABLE "{table}" ({", ".join(c.sql for c in columns)})')
    marks = ", ".join("?" for _ in columns)
    values = [
        [row[c.name] if row.get(c.name) is not None else c.default for c in columns] for row in rows
    ]
    connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', values)
