"""Inputs that fuzzing found, made small; and that fuzzing itself still finds."""

from __future__ import annotations

import gzip
import json
import sqlite3
from random import Random

import polars as pl
import pytest

import traceprobe
from tests.builders import kineto, nsight
from tests.builders.loop import EVERYTHING_PAGEABLE
from tests.builders.nsight_schema import KERNEL, MEMCPY
from tests.fuzzing import __main__ as command
from tests.fuzzing import harness
from tests.report_rules import problems
from traceprobe.ingest.nsight import open_export as ingest_nsight
from traceprobe.model.events import rows_of
from traceprobe.model.quality import Quality

MOST = (1 << 63) - 1


def outcome(path):
    """As the fuzzing has it: the word of a report that keeps its contract, or of a clean error."""
    return harness.attempt(path, seed=0)


def changed(tmp_path, change):
    """A Chrome trace of which the decoded content has been changed."""
    path = kineto.write(EVERYTHING_PAGEABLE.scenario(), tmp_path / "a.json")
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content).replace('"HUGE"', "1e999"))
    return path


def test_a_gzip_header_that_ends_at_an_unknown_method(tmp_path):
    path = tmp_path / "a.json.gz"
    path.write_bytes(b"\x1f\x8b\x09\0")
    with pytest.raises(traceprobe.DamagedInput, match="gzip stream is broken"):
        traceprobe.load(path)


def test_a_truth_value_is_no_base_of_a_clock(tmp_path):
    path = changed(tmp_path, lambda content: content.update(baseTimeNanoseconds=True))
    assert traceprobe.load(path).origin.base_ns == 0
    assert outcome(path) == "report"


@pytest.mark.parametrize("name", ["unprofiled_step_ms", "unprofiled_data_wait_ms"])
def test_a_calibration_beyond_all_numbers_is_none(tmp_path, name):
    path = changed(tmp_path, lambda content: content.update(traceprobe={name: "HUGE"}))
    assert outcome(path) == "report"
    assert traceprobe.analyze(traceprobe.load(path)).quality.observer_effect is None


def test_a_process_id_of_64_bits_beside_short_ones(tmp_path):
    def change(content):
        events = [e for e in content["traceEvents"] if e.get("cat") == "cuda_runtime"]
        content["traceEvents"].append(
            {**events[0], "cat": "cpu_op", "name": "aten::add", "pid": -(1 << 63)}
        )

    assert outcome(changed(tmp_path, change)) == "report"


def test_work_that_takes_no_time_is_nothing_to_account_for(tmp_path):
    def change(content):
        for event in content["traceEvents"]:
            if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
                event.update(ts=1_000.0, dur=0)

    path = changed(tmp_path, change)
    with pytest.raises(traceprobe.EmptyTrace, match="no duration"):
        traceprobe.analyze(traceprobe.load(path))


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE NVTX_EVENTS SET start = 'soon'",
        f"UPDATE {KERNEL} SET end = 9223372036854775000 WHERE rowid % 2",
        f"UPDATE {KERNEL} SET start = -9223372036854775000 WHERE rowid % 2",
        f"UPDATE {MEMCPY} SET start = start - 9e17",
        f"UPDATE {MEMCPY} SET bytes = 9e18",
        "UPDATE NVTX_EVENTS SET text = 'ncclAllReduce', globalTid = 9223372036854775807",
        "UPDATE NVTX_EVENTS SET text = 'ncclAllReduce', start = 'soon'",
    ],
)
def test_exports_whose_values_no_machine_has(tmp_path, damage):
    path = nsight.write(EVERYTHING_PAGEABLE.scenario(), tmp_path / "a.sqlite")
    nsight.edit(
        path,
        "UPDATE StringIds SET value = 'ncclDevKernel_AllReduce' WHERE id IN "
        f"(SELECT demangledName FROM {KERNEL} WHERE rowid = 2)",
        damage,
    )
    assert outcome(path) == "report"
    assert not problems(traceprobe.analyze(traceprobe.load(path)).to_json())


def test_ranges_of_nccl_that_are_damaged_leave_no_payload_without_an_owner(tmp_path, samples):
    path = tmp_path / "a.sqlite"
    path.write_bytes(gzip.decompress((samples / "h200_collectives.sqlite.gz").read_bytes()))
    nsight.edit(path, "UPDATE NVTX_EVENTS SET start = 9e99 WHERE rowid % 5 = 0")
    assert outcome(path) == "report"


@pytest.mark.parametrize("values", [[0, 7, MOST], [MOST, 7, 0]])
def test_rows_of_the_largest_number_there_is(values):
    rows = pl.DataFrame({"device": values})
    assert rows_of(rows, "device", MOST)["device"].to_list() == [MOST]


def test_what_sqlite_quotes_of_a_file_cannot_steer_the_terminal():
    quoted = sqlite3.DatabaseError('malformed database schema (a) - unrecognized token: "\x1b[2J"')
    message = str(ingest_nsight._damaged("a.sqlite", quoted, Quality()))
    assert "malformed database schema" in message
    assert "unrecognized token" in message
    assert "\x1b" not in message


def test_an_input_is_made_again_from_its_number(tmp_path):
    files = harness.thinned(harness.bases()[:3], tmp_path)
    assert [harness.make(files, n) for n in range(9)] == [harness.make(files, n) for n in range(9)]
    assert len({harness.made(files, Random(n))[1] for n in range(40)}) > 30


def test_an_input_that_fails_is_told_and_kept(tmp_path, monkeypatch, capsys):
    """The command is no check if it cannot fail: here it works on one failure among successes."""
    failed = harness.Outcome(7, "crash", 0.5, 1 << 20, "Traceback\nValueError: no")
    done = [harness.Outcome(6, "report", 0.1, 1 << 20), failed]
    monkeypatch.setattr(command, "run", lambda *arguments: done)
    assert command.main(["--keep", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert "ValueError: no" in told.err
    assert "seeds 7" in told.err
    assert "2 inputs" in told.out
    assert "crashes 1, hangs 0" in told.out


def test_what_is_raised_in_analysis_is_a_crash_and_what_breaks_the_contract_too(
    tmp_path, monkeypatch
):
    path = kineto.write(EVERYTHING_PAGEABLE.scenario(), tmp_path / "a.json")
    assert outcome(path) == "report"
    monkeypatch.setattr(harness, "problems", lambda *text, **options: ["wrong"])
    with pytest.raises(AssertionError, match="wrong"):
        outcome(path)
