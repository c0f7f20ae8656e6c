"""Packed tables and pictures: what is written is read, and what is damaged is refused."""

from __future__ import annotations

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import traceprobe
from tests.analyses import SAMPLES, report_of, trace_of
from tests.builders import kineto
from tests.builders.loop import Loop
from tests.builders.scenario import Process, Script
from traceprobe.pipeline import build_picture
from traceprobe.pipeline.build_picture import MAX_NAME
from traceprobe.records.packed import Table

MS = 1_000_000
NUMBERS = st.lists(st.tuples(*3 * [st.integers(0, 2**63 - 1)]), max_size=50)


def table_of(rows):
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return dict(zip(("start", "name", "bytes"), columns, strict=True))


@given(rows=NUMBERS)
def test_a_packed_table_is_read_as_it_was(rows):
    columns = table_of(rows)
    written = msgspec.json.encode(Table.of(columns))
    found = msgspec.json.decode(written, type=Table).columns()
    assert set(found) == set(columns)
    for name, values in columns.items():
        np.testing.assert_array_equal(found[name], values)


def test_a_negative_number_is_refused():
    with pytest.raises(ValueError, match="column start"):
        Table.of({"start": np.array([1, -1])})


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 4},
        {"rows": 2},
        {"rows": -1},
        {"rows": 10**12},
        {"widths": {"start": 9}},
        {"widths": {"start": 0}},
        {"data": b"no zlib"},
    ],
)
def test_a_damaged_table_cannot_be_read(change):
    table = Table.of({"start": np.arange(3)})
    with pytest.raises(ValueError, match="packed table"):
        msgspec.structs.replace(table, **change).columns()


def test_a_table_that_unpacks_to_more_than_it_says_is_cut_short():
    """A small file may hold a stream that fills the memory."""
    bomb = Table.of({"start": np.zeros(2_000_000, dtype=np.int64)})
    with pytest.raises(ValueError, match="another size"):
        msgspec.structs.replace(bomb, rows=1).columns()


def built(folder, name="trace", **loop):
    sizes = {"forward_ns": 4 * MS, "backward_ns": 8 * MS, "optimizer_ns": MS}
    return kineto.write(Loop(**{**sizes, **loop}).scenario(), folder / f"{name}.json")


def of(rank):
    return Process(pid=1_000 + rank, rank=rank)


def analyzed(*paths):
    return traceprobe.analyze([traceprobe.load(path) for path in paths])


def windows(report, rank=0):
    return {window.why: window for window in report.ranks[rank].picture.windows}


def totals(picture, window):
    parts = window.parts.columns()
    return {
        name: int(parts["duration"][parts["class"] == n].sum())
        for n, name in enumerate(picture.classes)
    }


@pytest.mark.parametrize("file", SAMPLES, ids=lambda file: file.name)
def test_the_parts_of_a_window_are_the_partition_of_its_iteration(file):
    report = report_of(file)
    for rank in report.ranks:
        assert [*rank.picture.problems()] == []
        for window in rank.picture.windows:
            iteration = rank.iterations[window.iteration]
            found = totals(rank.picture, window)
            assert found == {name: iteration.partition_ns[name] or 0 for name in found}


@pytest.mark.parametrize("file", SAMPLES, ids=lambda file: file.name)
def test_a_window_holds_every_operation_that_runs_in_it(file):
    trace, report = trace_of(file), report_of(file)
    for rank in report.ranks:
        zero = int(report.inputs[0].origin_ns)
        ops = trace.gpu_ops.filter(pid=rank.pid, device=rank.device.index)
        for window in rank.picture.windows:
            low = zero + window.start_ns
            high = low + window.duration_ns
            inside = ops.filter((pl.col("t0") < high) & (pl.col("t1") > low))
            columns = window.ops.columns()
            names = [rank.picture.names[n] for n in columns["name"].tolist()]
            starts = (columns["start"].cumsum() + low).tolist()
            wanted = zip(
                inside["t0"].clip(lower_bound=low).to_list(),
                (trace.names[n][:MAX_NAME] for n in inside["name"].to_list()),
                strict=True,
            )
            assert sorted(zip(starts, names, strict=True)) == sorted(wanted)
            assert (
                columns["duration"].sum()
                == (inside["t1"].clip(upper_bound=high) - inside["t0"].clip(lower_bound=low)).sum()
            )


def test_a_capture_without_iterations_is_one_window(tmp_path):
    script = Script()
    script.op("kernel", 1_000, 2_000, (500, 600))
    script.op("kernel", 5_000, 6_000, (4_500, 4_600))
    report = analyzed(kineto.write(script.build(), tmp_path / "trace.json"))
    window = windows(report)["capture"]
    assert (window.iteration, window.ops.rows) == (None, 2)
    assert window.ops.columns()["launch"].tolist() == [501, 501]


def test_ranks_show_the_same_iteration_on_one_clock(tmp_path):
    """The collectives that ranks share end at once, however far their clocks are apart."""
    loop = {"steps": 8, "comm_ns": 9 * MS, "comm_overlap_ns": MS, "world_size": 2}
    files = [
        built(tmp_path, f"rank{rank}", process=of(rank), start_ns=(rank + 1) * 10**9, **loop)
        for rank in range(2)
    ]
    report = analyzed(*files)
    ends = []
    for number, rank in enumerate(report.ranks):
        window = windows(report, number)["typical"]
        columns = window.ops.columns()
        start = rank.picture.clock_ns + window.start_ns
        end = (start + columns["start"].cumsum() + columns["duration"]).tolist()
        shared = {n: at for n, at in zip(columns["shared"].tolist(), end, strict=True) if n}
        ends.append(shared)
        assert rank.iterations[window.iteration].label == (
            report.ranks[0].iterations[windows(report)["typical"].iteration].label
        )
    assert ends[0]
    assert ends[0] == ends[1]


def test_a_window_with_a_damaged_time_stamp_is_not_shown(tmp_path):
    script = Script()
    script.op("kernel", 1_000, 2_000, (500, 600))
    script.op("kernel", 10**17, 10**17 + 1_000, (4_500, 4_600))
    (rank,) = analyzed(kineto.write(script.build(), tmp_path / "trace.json")).ranks
    assert not rank.picture


def test_ranks_that_share_nothing_have_no_common_clock(tmp_path):
    files = [built(tmp_path, f"rank{rank}", process=of(rank), steps=8) for rank in range(2)]
    assert [rank.picture.clock_ns for rank in analyzed(*files).ranks] == [0, None]


def test_of_too_many_rows_of_the_host_the_longest_stay(tmp_path, monkeypatch):
    whole = windows(analyzed(built(tmp_path, steps=8)))["typical"]
    monkeypatch.setattr(build_picture, "MOST_HOST_ROWS", whole.host.rows - 2)
    less = windows(analyzed(tmp_path / "trace.json"))["typical"]
    assert (less.host.rows, less.left_out) == (whole.host.rows - 2, 2)
    kept = sorted(whole.host.columns()["duration"].tolist())[2:]
    assert sorted(less.host.columns()["duration"].tolist()) == kept


@pytest.mark.parametrize(
    ("steps", "shown"),
    [(2, ["slowest", "fastest"]), (3, ["typical", "slowest"])],
)
def test_nothing_is_typical_that_is_the_fastest(tmp_path, steps, shown):
    report = analyzed(built(tmp_path, steps=steps))
    used = sum(iteration.used for iteration in report.ranks[0].iterations)
    assert (used, [window.why for window in report.ranks[0].picture.windows]) == (steps, shown)
