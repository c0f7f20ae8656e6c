"""Sizes and groups of collectives from the dumps of PyTorch's flight recorder."""

from __future__ import annotations

import polars as pl
import pytest
from msgspec.structs import replace

import traceprobe
from tests.builders import kineto, nsight
from tests.builders.scenario import merge
from tests.flight_records import Run
from tests.recorded_collectives import MS, SIZES, recorded
from traceprobe.ingest.nccl.flight_recorder import find_dumps, rank_in_name, read_flight_record
from traceprobe.ingest.nccl.noted_calls import noted_calls
from traceprobe.model.codes import UNKNOWN, Kind, Operation
from traceprobe.options import Options
from traceprobe.pipeline.nccl_records import with_nccl_records
from traceprobe.records.report import Report


def by_rank(folder):
    return {rank_in_name(path.name): [path] for path in find_dumps(folder)}


def export(scenario, path, **options):
    nsight.write(scenario, path, **options)
    return traceprobe.load(path)


def collectives(trace):
    rows = trace.gpu_ops.filter(pl.col("kind") == int(Kind.COMM))
    return rows.sort("pid", "launch_t0")


def joined(trace, folder):
    """(bytes in the order of launches, the records, the warning)."""
    filled, found = with_nccl_records(trace, by_rank(folder))
    warning = filled.quality.warnings.get("nccl-records", "")
    return collectives(filled)["bytes"].to_list(), found, warning


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_an_export_gets_the_sizes_and_groups_of_its_collectives(tmp_path, form):
    run = recorded()
    trace = export(run.scenarios[1], tmp_path / "rank1.sqlite")
    assert set(collectives(trace)["bytes"]) == {UNKNOWN}
    filled, (found,) = with_nccl_records(trace, by_rank(run.dumps(tmp_path / "d", form=form)))
    rows = collectives(filled)
    assert rows["bytes"].to_list() == [4 * elements for elements in run.truth[1]]
    assert set(rows["group_size"]) == {2}
    assert rows["group"].n_unique() == 1
    assert UNKNOWN not in rows["group"]
    assert (found.rank, found.kernels, found.covered, found.joined) == (1, 40, 40, 40)
    assert found.score > 0.9 > 0.5 > found.rival
    assert "nccl-records" not in filled.quality.warnings
    assert filled.rank_of == {1001: 1}


def test_processes_of_one_export_are_told_apart_by_their_rhythm(tmp_path):
    run = recorded()
    trace = export(merge(*run.scenarios), tmp_path / "both.sqlite")
    assert trace.rank_of == {}
    filled, found = with_nccl_records(trace, by_rank(run.dumps(tmp_path / "d")))
    assert filled.rank_of == {1000: 0, 1001: 1}
    assert [record.rank for record in found] == [0, 1]
    assert collectives(filled)["bytes"].to_list() == [4 * n for part in run.truth for n in part]


def test_the_dump_of_another_rank_is_refused(tmp_path):
    run = recorded()
    folder = run.dumps(tmp_path / "d")
    (folder / "nccl_trace_rank_0.json").rename(folder / "nccl_trace_rank_1.json")
    sizes, found, warning = joined(export(run.scenarios[1], tmp_path / "rank1.sqlite"), folder)
    assert set(sizes) == {UNKNOWN}
    assert not found
    assert "do not come in the rhythm of rank 1" in warning


@pytest.mark.parametrize("keep", [slice(20, None), slice(None, 30)])
def test_a_recorder_that_has_a_part_fills_that_part(tmp_path, keep):
    run = recorded()
    folder = run.dumps(tmp_path / "d", keep=keep)
    sizes, (found,), warning = joined(export(run.scenarios[0], tmp_path / "rank0.sqlite"), folder)
    whole = [4 * elements for elements in run.truth[0]]
    assert sizes[keep] == whole[keep]
    assert sizes.count(UNKNOWN) == 40 - len(whole[keep])
    assert (found.kernels, found.covered, found.joined) == (40, len(whole[keep]), found.covered)
    assert not warning


@pytest.mark.parametrize(
    "clock",
    [
        {},
        {"ahead_ns": 300 * MS},
        {"ahead_ns": -300 * MS, "drift": 5e-5},
    ],
)
def test_a_capture_in_the_middle_of_a_run_finds_its_place(tmp_path, clock):
    run = recorded(before=20, after=15)
    folder = run.dumps(tmp_path / "d", **clock)
    sizes, (found,), _ = joined(export(run.scenarios[0], tmp_path / "rank0.sqlite"), folder)
    assert sizes == [4 * elements for elements in run.truth[0]]
    assert (found.calls, found.joined) == (180, 40)


def test_without_a_clock_of_the_day_the_rhythm_is_enough(tmp_path):
    run = recorded(before=20, after=15)
    folder = run.dumps(tmp_path / "d", ahead_ns=3_600_000 * MS)
    path = tmp_path / "rank0.sqlite"
    nsight.write(run.scenarios[0], path, without=frozenset({"TARGET_INFO_SESSION_START_TIME"}))
    sizes, _, _ = joined(traceprobe.load(path), folder)
    assert sizes == [4 * elements for elements in run.truth[0]]


def test_lost_kernels_cost_themselves_alone(tmp_path):
    run = recorded(lost={5, 6, 21})
    sizes, (found,), _ = joined(
        export(run.scenarios[0], tmp_path / "rank0.sqlite"), run.dumps(tmp_path / "d")
    )
    assert sizes == [4 * elements for elements in run.truth[0]]
    assert (found.kernels, found.joined) == (37, 37)


def test_a_loop_like_a_clock_is_not_guessed(tmp_path):
    """Steps all alike, and clocks that may differ by more than a step: any of them would do."""
    run = recorded(before=20, after=20, jitter_ns=0)
    sizes, found, warning = joined(
        export(run.scenarios[0], tmp_path / "rank0.sqlite"), run.dumps(tmp_path / "d")
    )
    assert set(sizes) == {UNKNOWN}
    assert not found
    assert "in several ways" in warning
    assert "profile more steps" in warning


@pytest.mark.parametrize(
    ("about", "says"),
    [
        ({"ahead_ns": 60_000 * MS}, "are after those of rank 0 in the trace, by 59."),
        ({"ahead_ns": -60_000 * MS}, "are before those of rank 0 in the trace, by 59."),
        ({"dtype": "Half"}, "notes other collectives than rank 0 ran"),
        ({"operation": "broadcast"}, "notes other collectives than rank 0 ran"),
        ({"keep": slice(3)}, "nccl_trace_rank_0.json 3 calls of NCCL"),
        ({"keep": slice(-12, None)}, "rank_0.json"),
    ],
)
def test_what_does_not_belong_together_is_refused_with_a_reason(tmp_path, about, says):
    run = recorded(after=3 * ("keep" in about and about["keep"].start is not None))
    folder = run.dumps(tmp_path / "d", **about)
    sizes, found, warning = joined(export(run.scenarios[0], tmp_path / "rank0.sqlite"), folder)
    assert set(sizes) == {UNKNOWN}
    assert not found
    assert says in warning
    assert warning.startswith("NCCL's records were not joined: ")


def test_a_missing_and_a_damaged_dump_cost_their_ranks(tmp_path):
    run = recorded()
    folder = run.dumps(tmp_path / "d")
    trace = export(run.scenarios[1], tmp_path / "rank1.sqlite")
    one = folder / "nccl_trace_rank_1.json"
    one.write_bytes(one.read_bytes()[:-40])
    _, found, warning = joined(trace, folder)
    assert not found
    assert "is no complete JSON" in warning
    assert "there is no dump" not in warning
    trace = export(run.scenarios[1], tmp_path / "rank1.sqlite")
    filled, found = with_nccl_records(trace, {1: [tmp_path / "gone" / "nccl_trace_rank_1"]})
    warning = filled.quality.warnings["nccl-records"]
    assert not found
    assert "nccl_trace_rank_1: No such file" in warning
    assert str(tmp_path) not in warning
    one.unlink()
    _, found, warning = joined(export(run.scenarios[1], tmp_path / "rank1.sqlite"), folder)
    assert not found
    assert "there is no dump of rank 1" in warning


def test_sizes_that_the_trace_has_check_the_join(tmp_path):
    run = recorded()
    path = tmp_path / "rank0.sqlite"
    trace = export(run.scenarios[0], path)
    folder = run.dumps(tmp_path / "d")
    known = pl.when(pl.col("kind") == int(Kind.COMM)).then(12_345).otherwise(pl.col("bytes"))
    trace = replace(trace, gpu_ops=trace.gpu_ops.with_columns(bytes=known))
    sizes, found, warning = joined(trace, folder)
    assert set(sizes) == {12_345}
    assert not found
    assert "has other sizes than the trace for 40 of 40 collectives of rank 0" in warning


def test_a_trace_of_pytorch_that_notes_no_sizes_is_filled_too(tmp_path):
    run = recorded()
    path = tmp_path / "rank0.json"
    kineto.write(run.scenarios[0].shifted(nsight.UTC_NS - kineto.EPOCH_NS), path)
    sizes, (found,), _ = joined(traceprobe.load(path), run.dumps(tmp_path / "d"))
    assert sizes == [4 * elements for elements in run.truth[0]]
    assert found.joined == 40


def test_what_is_launched_as_one_is_one_call():
    run = Run(2, {"1": [0]})
    run.issue(0, "reduce_scatter_base", size=[30])
    run.issue(0, "send 0->1", size=[7])
    run.issue(0, "send 0->1", size=[100])
    run.issue(0, "recv 0<-1", size=[50], same_launch=True)
    run.launch(0)
    run.issue(0, "all_gather", size=[10], output=[20], dtype="BFloat16")
    run.issue(0, "all_reduce", size=[5])
    run.issue(0, "all_reduce", size=[6], same_launch=True)
    run.launch(0)
    run.issue(0, "all_reduce", group="1")
    run.issue(0, "all_reduce", size=[0])
    run.issue(0, "all_reduce_barrier", size=[1])
    calls = read(run, 0)
    assert calls["operation"].to_list() == [
        *(Operation.REDUCE_SCATTER, Operation.SEND_RECV, Operation.SEND_RECV),
        *(Operation.ALL_GATHER, Operation.ALL_REDUCE, Operation.ALL_REDUCE),
    ]
    assert calls["bytes"].to_list() == [120, 28, 400, 40, 44, 4]
    assert calls["several"].to_list() == [False, True, True, False, True, False]
    assert calls["dtype"].to_list() == [*["Float"] * 3, "BFloat16", *["Float"] * 2]
    assert set(calls["group_size"]) == {2}


def test_a_batch_ends_its_messages_and_nothing_before_it(tmp_path):
    run = Run(2)
    run.issue(0, "all_reduce", state="started")
    run.issue(0, "send 0->1", state="scheduled")
    run.issue(0, "recv 0<-1", state="scheduled", same_launch=True)
    run.launch(0)
    record = read_flight_record(run.write(tmp_path)[0])
    assert [entry.done for entry in record.entries] == [False, True, True, True]


def test_what_is_launched_as_one_stays_in_the_order_of_issue(tmp_path):
    run = Run(2, {"1": [0, 1]})
    run.issue(0, "send 0->1", state="scheduled")
    run.issue(0, "all_reduce", group="1", state="started")
    run.issue(0, "recv 0<-1", state="scheduled", same_launch=True)
    run.launch(0)
    record = read_flight_record(run.write(tmp_path)[0])
    assert [entry.number for entry in record.entries] == [0, 1, 2, 3]
    assert [entry.done for entry in record.entries] == [True, False, True, True]


def read(run, rank):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = run.write(Path(folder), form="json")[rank]
        return noted_calls(read_flight_record(path))


def test_the_report_of_an_export_has_bus_bandwidths(cli):
    run = recorded()
    bare = traceprobe.analyze(export(merge(*run.scenarios), cli.folder / "both.sqlite"))
    assert {c.busbw_gbps for r in bare.ranks for c in r.summary.collectives} == {None}
    run.dumps(cli.folder / "dumps")
    outputs = ("-o", "r.json", "-o", "r.html")
    done = cli("analyze", "both.sqlite", "--nccl-records", "dumps", *outputs).expect(0)
    assert "joined 80 of 80 kernels of NCCL, 2 dumps\n" in done.err
    report = Report.from_json((cli.folder / "r.json").read_bytes())
    found = [c for r in report.ranks for c in r.summary.collectives]
    assert {c.bytes for c in found} == {4 * size for size in SIZES}
    assert all(c.busbw_gbps > 0 and c.group_size == 2 for c in found)
    assert [r.joined for r in report.quality.nccl_records] == [40, 40]
    assert "80 of 80 kernels of NCCL, 2 dumps" in (cli.folder / "r.html").read_text()


@pytest.mark.slow
def test_ranks_are_read_by_several_processes(cli):
    run = recorded()
    for rank, scenario in enumerate(run.scenarios):
        nsight.write(scenario, cli.folder / f"rank{rank}.sqlite")
    run.dumps(cli.folder / "dumps")
    cli(
        *("analyze", "rank0.sqlite", "rank1.sqlite", "--nccl-records", "dumps"),
        *("--jobs", "2", "-o", "r.json"),
    ).expect(0)
    report = Report.from_json((cli.folder / "r.json").read_bytes())
    assert [r.joined for r in report.quality.nccl_records] == [40, 40]


def test_options_of_the_library_name_dumps_by_rank(tmp_path):
    run = recorded()
    trace = export(run.scenarios[0], tmp_path / "rank0.sqlite")
    options = Options(nccl_records=by_rank(run.dumps(tmp_path / "d")))
    report = traceprobe.analyze(trace, options)
    assert report.quality.nccl_records[0].joined == 40


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("notes_0.json", b'{"a": 1}', "is no dump of PyTorch's flight recorder"),
        ("nccl_trace_rank_0", b"", "is no dump of PyTorch's flight recorder"),
        ("dump.json", b'{"version": "2.10", "pg_config": {}, "entries": []}', "no rank is in"),
    ],
)
def test_what_is_no_dump_ends_with_one_line(cli, name, content, says):
    nsight.write(recorded().scenarios[0], cli.folder / "rank0.sqlite")
    (cli.folder / name).write_bytes(content)
    done = cli("analyze", "rank0.sqlite", "--nccl-records", name, "-o", "r.json").expect(2)
    assert says in done.err
    assert done.err.count("\n") == 1
    assert not (cli.folder / "r.json").exists()
