"""What NCCL's NVTX ranges say of a kernel, with and without payloads in the export.

The layout of blobs is that of a real export of Nsight Systems 2025.3 (`h200_collectives`).
"""

from __future__ import annotations

import json
import sqlite3
import struct
from contextlib import closing

import pytest

import traceprobe
from tests.builders import nsight
from tests.builders.scenario import PID, Script
from traceprobe.model.codes import UNKNOWN, Kind, Operation

COMMUNICATOR = 0x9B22DCFA5E81C4FF
OTHER_COMMUNICATOR = 0x70B42777A89D01C0
MESSAGE, INIT = 16777220, 16777227
ENTRIES = [
    (MESSAGE, 0, 18, "NCCL communicator ID", None),
    (MESSAGE, 1, 22, "Message size [bytes]", 8),
    (INIT, 0, 18, "NCCL communicator ID", None),
    (INIT, 1, 5, "No. of ranks", 8),
    (INIT, 2, 5, "Rank", 12),
]
SCHEMA_COLUMNS = (
    "domainId, schemaId, idx, flags, type, name, description, arrayOrUnionDetail, offset"
)
COLUMNS = (
    "start, end, eventType, globalTid, domainId, text, textId, binaryData, jsonText, jsonTextId"
)
KERNEL = "ncclDevKernel_{}(ncclDevKernelArgsStorage<4096ul>)"


def blob(schema, body):
    """One payload behind its header."""
    return struct.pack("<4Q", 1, schema, len(body), 32) + body


def message(size, communicator=COMMUNICATOR):
    return blob(MESSAGE, struct.pack("<QQ", communicator, size))


def init(ranks, communicator=COMMUNICATOR):
    return blob(INIT, struct.pack("<Qii", communicator, ranks, 0))


def as_json(binary):
    schema = struct.unpack_from("<Q", binary, 8)[0]
    if schema == INIT:
        communicator, ranks, number = struct.unpack_from("<Qii", binary, 32)
        fields = {"No. of ranks": ranks, "Rank": number}
    else:
        communicator, size = struct.unpack_from("<QQ", binary, 32)
        fields = {"Message size [bytes]": size}
    return json.dumps({"NCCL communicator ID": communicator, **fields})


def write(folder, kernels, calls, *, form="blob", pids=(PID,), registered=True, world=None):
    """An export; kernels are (operation, launch), calls (name, start, end, payload or None)."""
    script = Script()
    for i, (name, launch) in enumerate(kernels):
        at = 100_000 + 1_000 * i
        script.op("comm", at, at + 500, (launch, launch + 2), name=KERNEL.format(name))
    path = nsight.write(script.build(), folder / "run.sqlite")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES ({SCHEMA_COLUMNS})")
        db.execute(f"CREATE TABLE NVTX_EVENTS ({COLUMNS})")
        db.executemany(
            "INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (1, ?, ?, NULL, ?, ?, NULL, NULL, ?)",
            ENTRIES,
        )
        for pid in pids:
            for number, (name, start, end, payload) in enumerate(calls):
                text_id = 9_000 + number
                if registered:
                    db.execute("INSERT OR IGNORE INTO StringIds VALUES (?, ?)", (text_id, name))
                db.execute(
                    "INSERT INTO NVTX_EVENTS (start, end, eventType, globalTid, domainId, text, "
                    "textId, binaryData, jsonText) VALUES (?, ?, 59, ?, 1, ?, ?, ?, ?)",
                    (
                        *(start, end, nsight.global_id(pid, pid)),
                        *((None, text_id) if registered else (name, None)),
                        payload if form == "blob" else None,
                        as_json(payload) if form == "json" and payload else None,
                    ),
                )
        if world is not None:
            sidecar = json.dumps({"workload": {"ranks": world}})
            db.execute("CREATE TABLE traceprobe (rank INTEGER, json TEXT)")
            db.execute("INSERT INTO traceprobe VALUES (0, ?)", (sidecar,))
    return path


def read(folder, kernels, calls, **options):
    """(operation, bytes, ranks) of every collective, in the order of their launches."""
    trace = traceprobe.load(write(folder, kernels, calls, **options))
    ops = trace.gpu_ops.filter(trace.gpu_ops["kind"] == int(Kind.COMM)).sort("t0")
    rows = ops.select("operation", "bytes", "group_size").rows()
    return [(Operation(o).name, size, ranks) for o, size, ranks in rows]


@pytest.mark.parametrize("registered", [True, False])
@pytest.mark.parametrize("form", ["blob", "json"])
def test_a_kernel_gets_the_message_of_the_call_that_launched_it(tmp_path, form, registered):
    calls = [("ncclAllReduce", 100, 200, message(4_000)), ("ncclReduce", 300, 400, message(8))]
    kernels = [("AllReduce_Sum_f32", 150), ("Reduce_Sum_f32", 350), ("AllReduce_Sum_f32", 450)]
    assert read(tmp_path, kernels, calls, form=form, registered=registered) == [
        ("ALL_REDUCE", 4_000, UNKNOWN),
        ("REDUCE", 8, UNKNOWN),
        ("ALL_REDUCE", UNKNOWN, UNKNOWN),  # outside of every call
    ]


def test_without_payloads_the_calls_still_name_the_operation(tmp_path):
    calls = [("ncclAlltoAll", 100, 200, None)]
    assert read(tmp_path, [("SendRecv", 150)], calls) == [("ALL_TO_ALL", UNKNOWN, UNKNOWN)]


def test_communicators_tell_groups_apart(tmp_path):
    calls = [
        ("ncclAllReduce", 100, 200, message(8)),
        ("ncclAllReduce", 300, 400, message(8, OTHER_COMMUNICATOR)),
        ("ncclAllReduce", 500, 600, message(8)),
    ]
    kernels = [("AllReduce", t) for t in (150, 350, 550)]
    trace = traceprobe.load(write(tmp_path, kernels, calls))
    first, second, third = trace.gpu_ops.sort("t0")["group"].to_list()
    assert first == third == COMMUNICATOR & (2**63 - 1)
    assert second == OTHER_COMMUNICATOR


def test_a_group_of_calls_is_launched_at_its_end_as_one_message(tmp_path):
    calls = [
        ("ncclGroupStart", 100, 101, None),
        ("ncclAllReduce", 110, 120, message(1_000)),
        ("ncclGroupStart", 121, 122, None),  # nested: only the outer end launches
        ("ncclAllReduce", 125, 130, message(24)),
        ("ncclGroupEnd", 131, 135, None),
        ("ncclGroupEnd", 140, 200, None),
    ]
    assert read(tmp_path, [("AllReduce", 150)], calls) == [("ALL_REDUCE", 1_024, UNKNOWN)]


def test_of_sends_and_receives_in_a_group_the_sends_count(tmp_path):
    sends = [("ncclSend", 110 + i, 111 + i, message(100)) for i in range(3)]
    receives = [("ncclRecv", 120 + i, 121 + i, message(7)) for i in range(3)]
    group = [
        ("ncclGroupStart", 100, 101, None),
        *sends,
        *receives,
        ("ncclGroupEnd", 140, 200, None),
    ]
    alone = [("ncclRecv", 300, 400, message(9))]
    kernels = [("SendRecv", 150), ("SendRecv", 350)]
    assert read(tmp_path, kernels, group + alone) == [
        ("SEND_RECV", 300, UNKNOWN),
        ("SEND_RECV", 9, UNKNOWN),
    ]


def test_a_message_of_several_kernels_or_operations_is_no_ones(tmp_path):
    calls = [
        ("ncclAllReduce", 100, 200, message(1_000)),
        ("ncclGroupStart", 300, 301, None),
        ("ncclAllReduce", 310, 320, message(8)),
        ("ncclBroadcast", 325, 330, message(8)),
        ("ncclGroupEnd", 340, 400, None),
    ]
    kernels = [("AllReduce", 120), ("AllReduce", 160), ("Broadcast", 350)]
    assert read(tmp_path, kernels, calls) == [
        ("ALL_REDUCE", UNKNOWN, UNKNOWN),
        ("ALL_REDUCE", UNKNOWN, UNKNOWN),
        ("BROADCAST", UNKNOWN, UNKNOWN),
    ]


def test_a_capture_may_begin_inside_a_group(tmp_path):
    calls = [
        ("ncclAllReduce", 10, 20, message(5)),
        ("ncclGroupEnd", 30, 50, None),
        ("ncclAllReduce", 100, 200, message(6)),
        ("ncclGroupStart", 300, 301, None),
        ("ncclAllReduce", 310, 320, message(7)),
        ("ncclGroupEnd", 330, 400, None),
    ]
    kernels = [("AllReduce", 40), ("AllReduce", 150), ("AllReduce", 350)]
    sizes = [size for _, size, _ in read(tmp_path, kernels, calls)]
    assert sizes == [UNKNOWN, 6, 7]


GATHERS = [
    ("ncclAllGather", 100, 200, message(1_000)),
    ("ncclReduceScatter", 300, 400, message(1_000)),
    ("ncclAllReduce", 500, 600, message(1_000)),
]
GATHERED = [("AllGather", 150), ("ReduceScatter", 350), ("AllReduce", 550)]


def test_one_ranks_part_is_no_message_while_the_ranks_are_unknown(tmp_path):
    assert read(tmp_path, GATHERED, GATHERS) == [
        ("ALL_GATHER", UNKNOWN, UNKNOWN),
        ("REDUCE_SCATTER", UNKNOWN, UNKNOWN),
        ("ALL_REDUCE", 1_000, UNKNOWN),
    ]


WHOLE = [("ALL_GATHER", 8_000, 8), ("REDUCE_SCATTER", 8_000, 8), ("ALL_REDUCE", 1_000, 8)]


@pytest.mark.parametrize("form", ["blob", "json"])
def test_the_call_that_makes_a_communicator_knows_its_ranks(tmp_path, form):
    calls = [("ncclCommInitRankConfig", -900, -800, init(8)), *GATHERS]
    assert read(tmp_path, GATHERED, calls, form=form) == WHOLE


def test_a_communicator_that_all_ranks_use_has_that_many(tmp_path):
    pids = tuple(range(PID, PID + 8))
    assert read(tmp_path, GATHERED, GATHERS, pids=pids, world=8) == WHOLE
    (tmp_path / "part").mkdir()
    assert {n for *_, n in read(tmp_path / "part", GATHERED, GATHERS, world=8)} == {UNKNOWN}


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"short",
        message(8)[:31],
        message(8)[:40],
        struct.pack("<4Q", 1, MESSAGE, 2**63 + 5, 32) + bytes(16),
        struct.pack("<4Q", 1, MESSAGE, 16, 2**63 + 5) + bytes(16),
        struct.pack("<4Q", 1, 1, 16, 32) + bytes(16),
    ],
    ids=["empty", "short", "no payload", "cut", "size", "offset", "unknown schema"],
)
def test_a_broken_blob_costs_only_its_own_message(tmp_path, broken):
    calls = [("ncclAllReduce", 100, 200, broken), ("ncclAllReduce", 300, 400, message(6))]
    kernels = [("AllReduce", 150), ("AllReduce", 350)]
    assert [size for _, size, _ in read(tmp_path, kernels, calls)] == [UNKNOWN, 6]


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"Message size [bytes]": "8"}', "null"])
def test_broken_json_costs_only_its_own_message(tmp_path, text):
    calls = [("ncclAllReduce", 100, 200, None), ("ncclAllReduce", 300, 400, message(6))]
    path = write(tmp_path, [("AllReduce", 150), ("AllReduce", 350)], calls, form="json")
    nsight.edit(path, f"UPDATE NVTX_EVENTS SET jsonText = '{text}' WHERE start = 100")
    assert traceprobe.load(path).gpu_ops.sort("t0")["bytes"].to_list() == [UNKNOWN, 6]


@pytest.mark.parametrize("offset", [-8, -1_000_000, -(1 << 63), (1 << 63) - 1])
def test_a_field_outside_of_its_payload_is_unknown(tmp_path, offset):
    path = write(tmp_path, [("AllReduce", 150)], [("ncclAllReduce", 100, 200, message(6))])
    nsight.edit(path, f"UPDATE NVTX_PAYLOAD_SCHEMA_ENTRIES SET offset = {offset}")
    assert traceprobe.load(path).gpu_ops["bytes"].to_list() == [UNKNOWN]


def test_two_layouts_of_one_schema_number_give_nothing(tmp_path):
    """Domains are numbered per process, so two libraries may use the same numbers."""
    path = write(tmp_path, [("AllReduce", 150)], [("ncclAllReduce", 100, 200, message(6))])
    nsight.edit(
        path,
        "INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES "
        f"(1, {MESSAGE}, 1, NULL, 22, 'Message size [bytes]', NULL, NULL, 16)",
    )
    assert traceprobe.load(path).gpu_ops["bytes"].to_list() == [UNKNOWN]


def test_ranges_of_other_threads_and_other_names_say_nothing(tmp_path):
    calls = [("nccl:all_reduce, op_id = 3", 100, 200, message(6))]
    assert read(tmp_path, [("AllReduce", 150)], calls) == [("ALL_REDUCE", UNKNOWN, UNKNOWN)]
    (tmp_path / "thread").mkdir()
    calls = [("ncclAllReduce", 100, 200, message(6))]
    path = write(tmp_path / "thread", [("AllReduce", 150)], calls)
    nsight.edit(path, "UPDATE NVTX_EVENTS SET globalTid = globalTid + 1")
    assert traceprobe.load(path).gpu_ops["bytes"].to_list() == [UNKNOWN]


def warnings(folder, kernels, calls, **options):
    return traceprobe.load(write(folder, kernels, calls, **options)).quality.warnings


FIVE = [("ncclAllReduce", 100 * i, 100 * i + 60, None) for i in range(1, 6)]


def kernels_of(calls):
    return [("AllReduce_Sum_f32", start + 20) for _, start, _, _ in calls]


def test_a_process_whose_calls_have_no_kernels_lost_records(tmp_path):
    said = warnings(tmp_path, kernels_of(FIVE), FIVE, pids=(PID, PID + 1))
    assert said["calls-unrecorded"].startswith("5 calls of NCCL have no kernel")
    assert f"process {PID + 1} " in said["calls-unrecorded"]


def test_all_processes_that_lost_records_are_named(tmp_path):
    said = warnings(tmp_path, kernels_of(FIVE), FIVE, pids=(PID, PID + 1, PID + 2))
    assert said["calls-unrecorded"].startswith("10 calls of NCCL have no kernel")
    assert f"processes {PID + 1}, {PID + 2} did" in said["calls-unrecorded"]


@pytest.mark.parametrize("pids", [(PID,), (PID, PID + 1)])
def test_without_a_process_that_has_all_kernels_nothing_is_said_to_be_lost(tmp_path, pids):
    """A communicator of one rank launches nothing, and calls of a graph run at its replays."""
    assert "calls-unrecorded" not in warnings(tmp_path, kernels_of(FIVE)[::2], FIVE, pids=pids)


def test_calls_outside_of_the_capture_need_no_kernels(tmp_path):
    later = [("ncclAllReduce", 1_000_000 + i, 1_000_001 + i, None) for i in range(9)]
    said = warnings(tmp_path, kernels_of(FIVE), FIVE + later)
    assert "calls-unrecorded" not in said
