"""Sizes and groups of collectives from the logs of NCCL Inspector."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

import traceprobe
from tests.builders import kineto, nsight
from tests.builders.scenario import merge
from tests.inspector_logs import HASH, Log
from tests.recorded_collectives import SIZES, recorded
from traceprobe.ingest.nccl.flight_recorder import find_dumps
from traceprobe.ingest.nccl.inspected_calls import communicators_of_log, inspected_calls
from traceprobe.ingest.nccl.inspector_log import find_logs, is_log, rank_in_log, read_log
from traceprobe.model.codes import UNKNOWN, Kind, Operation
from traceprobe.pipeline.nccl_records import with_nccl_records
from traceprobe.records.report import Report


def export(scenario, path):
    nsight.write(scenario, path)
    return traceprobe.load(path)


def collectives(trace):
    rows = trace.gpu_ops.filter(pl.col("kind") == int(Kind.COMM))
    return rows.sort("pid", "launch_t0")


def joined(trace, paths):
    """(bytes in the order of launches, the records, the warning)."""
    filled, found = with_nccl_records(trace, paths)
    warning = filled.quality.warnings.get("nccl-records", "")
    return collectives(filled)["bytes"].to_list(), found, warning


def whole(run, rank=0):
    return [4 * elements for elements in run.truth[rank]]


@pytest.mark.parametrize(
    ("version", "packed"), [("v4.0", False), ("v4.0", True), ("v4.2", False), ("v4.3", False)]
)
def test_an_export_gets_the_sizes_and_groups_of_its_collectives(tmp_path, version, packed):
    run = recorded()
    trace = export(run.scenarios[1], tmp_path / "rank1.sqlite")
    log = run.log(1, version=version).write(tmp_path / "logs", packed=packed)
    assert (is_log(log), rank_in_log(log)) == (True, 1)
    filled, (found,) = with_nccl_records(trace, {1: [log]})
    rows = collectives(filled)
    assert rows["bytes"].to_list() == whole(run, 1)
    assert set(rows["group_size"]) == {2}
    assert set(rows["group"]) == {HASH >> 8}
    assert (found.source, found.rank, found.covered, found.joined) == ("inspector", 1, 40, 40)
    assert found.score > 0.9 > 0.5 > found.rival
    assert not filled.quality.warnings.get("nccl-records")


def test_a_capture_in_the_middle_of_a_run_finds_its_place(tmp_path):
    run = recorded(before=20, after=15)
    trace = export(run.scenarios[0], tmp_path / "rank0.sqlite")
    log = run.log(0, ahead_us=300_000).write(tmp_path / "logs")
    sizes, (found,), _ = joined(trace, {0: [log]})
    assert sizes == whole(run)
    assert (found.calls, found.joined) == (180, 40)


def test_a_trace_of_pytorch_that_notes_no_sizes_is_filled_too(tmp_path):
    run = recorded()
    path = tmp_path / "rank0.json"
    kineto.write(run.scenarios[0].shifted(nsight.UTC_NS - kineto.EPOCH_NS), path)
    sizes, _, _ = joined(traceprobe.load(path), {0: [run.log(0).write(tmp_path / "logs")]})
    assert sizes == whole(run)


def test_small_messages_are_not_noted_and_the_others_are_joined(tmp_path):
    run = recorded()
    trace = export(run.scenarios[0], tmp_path / "rank0.sqlite")
    log = run.log(0, smallest=4 * 7_000_000).write(tmp_path / "logs")
    sizes, (found,), warning = joined(trace, {0: [log]})
    assert sizes == [size if size >= 28_000_000 else UNKNOWN for size in whole(run)]
    assert (found.kernels, found.joined) == (40, 30)
    assert not warning


def test_dumps_come_first_and_a_log_fills_what_they_lost(tmp_path):
    run = recorded()
    trace = export(merge(*run.scenarios), tmp_path / "both.sqlite")
    dumps = find_dumps(run.dumps(tmp_path / "d", keep=slice(20, None)))
    logs = [run.log(rank).write(tmp_path / "logs") for rank in range(2)]
    sizes, found, warning = joined(trace, {n: [dumps[n], logs[n]] for n in range(2)})
    assert sizes == whole(run, 0) + whole(run, 1)
    assert [(r.source, r.rank, r.joined, r.compared, r.equal) for r in found] == [
        *(("flight_recorder", rank, 20, 0, 0) for rank in range(2)),
        *(("inspector", rank, 40, 20, 20) for rank in range(2)),
    ]
    assert not warning


def test_of_logs_with_one_rank_the_one_of_the_process_is_taken(tmp_path):
    """In groups that are a part of the run several processes have rank 0."""
    run = recorded()
    trace = export(run.scenarios[0], tmp_path / "rank0.sqlite")
    logs = [run.log(rank).write(tmp_path / "logs") for rank in (1, 0)]
    sizes, (found,), _ = joined(trace, {0: logs})
    assert sizes == whole(run)
    assert found.dump == "gpu-node-01-pid4000.log"


def test_damaged_lines_cost_themselves_alone(tmp_path):
    run = recorded()
    trace = export(run.scenarios[0], tmp_path / "rank0.sqlite")
    path = run.log(0).write(tmp_path / "logs")
    lines = path.read_bytes().splitlines()
    lines[3] = lines[3][:200]
    lines[7] = lines[7].replace(b'"coll_msg_size_bytes":', b'"coll_msg_size_bytes":"much",')
    lines[9] = b"\xff\xfe{" + b"[" * 5_000
    path.write_bytes(b"\n".join(lines)[:-30])
    sizes, (found,), _ = joined(trace, {0: [path]})
    lost = {3, 7, 9, 39}
    assert sizes == [UNKNOWN if n in lost else size for n, size in enumerate(whole(run))]
    assert (found.damaged, found.joined) == (4, 36)


def test_a_cut_stream_gives_what_it_has(tmp_path):
    run = recorded()
    path = run.log(0).write(tmp_path / "logs", packed=True)
    path.write_bytes(path.read_bytes()[:-200])
    log = read_log(path)
    assert 20 < len(log.operations) < 40
    assert log.damaged <= 1


@pytest.mark.parametrize(
    ("about", "says"),
    [
        ({"ahead_us": 60_000_000}, "are after those of rank 0 in the trace, by 59."),
        ({"timed": False}, "does not say when its operations began; write it with NCCL_INSPECTOR"),
        ({"keep": slice(3)}, "gpu-node-01-pid4000.log 3 calls of NCCL"),
    ],
)
def test_what_does_not_belong_together_is_refused_with_a_reason(tmp_path, about, says):
    run = recorded()
    trace = export(run.scenarios[0], tmp_path / "rank0.sqlite")
    sizes, found, warning = joined(trace, {0: [run.log(0, **about).write(tmp_path / "logs")]})
    assert set(sizes) == {UNKNOWN}
    assert not found
    assert says in warning


def test_the_log_of_another_rank_is_refused(tmp_path):
    run = recorded()
    trace = export(run.scenarios[1], tmp_path / "rank1.sqlite")
    sizes, found, warning = joined(trace, {1: [run.log(0).write(tmp_path / "logs")]})
    assert set(sizes) == {UNKNOWN}
    assert not found
    assert "do not come in the rhythm of rank 1" in warning


@pytest.mark.parametrize(("communicator", "fits"), [(HASH, True), (HASH + (1 << 40), False)])
def test_names_of_communicators_that_nvtx_has_must_agree(tmp_path, communicator, fits):
    run = recorded()
    trace = export(run.scenarios[0], tmp_path / "rank0.sqlite")
    own = pl.when(pl.col("kind") == int(Kind.COMM)).then(HASH).otherwise(pl.col("group"))
    trace = replace(trace, gpu_ops=trace.gpu_ops.with_columns(group=own))
    log = run.log(0, communicator=communicator).write(tmp_path / "logs")
    sizes, _, warning = joined(trace, {0: [log]})
    assert sizes == (whole(run) if fits else [UNKNOWN] * 40)
    assert ("notes other collectives than rank 0 ran" in warning) != fits


def test_a_hash_is_known_by_its_first_digits_and_without_its_sign():
    top = 0xF123_4567_89AB_CDEF
    groups = np.array([top & (1 << 63) - 1, HASH, 0x12, UNKNOWN, 77])
    numbers = np.array([top >> 8, HASH >> 8, 0x12])
    assert communicators_of_log(groups, numbers).tolist() == [*numbers, UNKNOWN, -2]


def test_what_the_plugin_hears_of_at_once_is_one_kernel(tmp_path):
    log = Log(rank=0, ranks=4)
    log.note("AllGather", 10_000, 100)
    log.note("ReduceScatter", 20_000, 200)
    log.note("Send", 30_000, 300, lasts_us=9)
    log.note("Recv", 99_000, 301, lasts_us=9)
    log.note("Send", 40_000, 302, lasts_us=9)
    log.note("AllReduce", 50_000, 300, of=(0xBEEF, 1, 2))
    log.note("AllReduce", 50_000, 400, lasts_us=3)
    log.note("AllReduce", 60_000, 403)
    log.note("AllReduce", 70_000, 500)
    log.note("Broadcast", 70_000, 501)
    log.note("AllReduce", (1 << 64) - 9_000, 600)
    log.note("AllGatherV", 9_000, 700)
    log.note("AllReduce", 9_000, 800, of=(0xABCD, 0, 1))
    calls = inspected_calls(read_log(log.write(tmp_path)))
    found = calls.select("created_ns", "operation", "bytes", "group_size").rows()
    assert found == [
        (100_000, Operation.ALL_GATHER, 40_000, 4),
        (200_000, Operation.REDUCE_SCATTER, 80_000, 4),
        (300_000, Operation.SEND_RECV, 70_000, 4),
        (300_000, Operation.ALL_REDUCE, 50_000, 2),
        (400_000, Operation.ALL_REDUCE, 110_000, 4),
        (500_000, Operation.OTHER, UNKNOWN, 4),
        (600_000, Operation.ALL_REDUCE, UNKNOWN, 4),
        (700_000, Operation.ALL_GATHER, UNKNOWN, 4),
    ]


def test_the_report_of_an_export_has_bus_bandwidths(cli):
    run = recorded()
    nsight.write(merge(*run.scenarios), cli.folder / "both.sqlite")
    for rank in range(2):
        run.log(rank).write(cli.folder / "logs", packed=bool(rank))
    run.dumps(cli.folder / "logs")
    outputs = ("-o", "r.json", "-o", "r.html")
    done = cli("analyze", "both.sqlite", "--nccl-records", "logs", *outputs).expect(0)
    said = (
        "joined 80 of 80 kernels of NCCL, 2 dumps; 80 of 80 kernels of NCCL, 2 logs; "
        "of 80 sizes that were known, 80 are equal\n"
    )
    assert said in done.err
    report = Report.from_json((cli.folder / "r.json").read_bytes())
    found = [c for r in report.ranks for c in r.summary.collectives]
    assert {c.bytes for c in found} == {4 * size for size in SIZES}
    assert all(c.busbw_gbps > 0 and c.group_size == 2 for c in found)
    assert "2 logs" in (cli.folder / "r.html").read_text()


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("analyze", "host-pid1.log"), "is a log of NCCL Inspector; name it with `analyze TRACE"),
        (("inspect", "host-pid1.log"), "is a log of NCCL Inspector; name it with `analyze TRACE"),
        (("hang", "host-pid1.log"), "notes collectives that ended and not the one that hangs"),
        (("hang", "."), "notes collectives that ended and not the one that hangs"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_log_elsewhere_is_called_what_it_is(cli, command, says, packed):
    recorded().log(0).write(cli.folder, packed=packed, name="host-pid1.log")
    done = cli(*command).expect(2)
    assert says in done.err
    assert done.err.count("\n") == 1


def test_a_log_of_another_version_ends_with_one_line(cli):
    run = recorded()
    nsight.write(run.scenarios[0], cli.folder / "rank0.sqlite")
    run.log(0, version="v5.0").write(cli.folder / "logs")
    done = cli("analyze", "rank0.sqlite", "--nccl-records", "logs", "-o", "r.json").expect(2)
    assert "has version 'v5.0', traceprobe reads v4.x" in done.err
    assert done.err.count("\n") == 1
    assert [path.name for path in find_logs(cli.folder / "logs")] == ["gpu-node-01-pid4000.log"]
