"""`traceprobe sweep`: rungs one after the other, failures that cost one rung, going on later."""

from __future__ import annotations

import json
import shutil
import sys

import pytest

from tests.cli_runner import LOOP, MS, spawn, write_trace
from traceprobe.capture.machine import visible_gpus as gpus
from traceprobe.capture.process import program
from traceprobe.capture.process.launch import RecordingFailed
from traceprobe.capture.recording import run_recording
from traceprobe.errors import UsageError
from traceprobe.sweep import run
from traceprobe.sweep.recording import REPORT, analyze_recording

LADDER = """
name = "short"
note = "A ladder for a test."
workload = "tiny-mlp"
shared = ["batch-size"]

[profile]
warmup = 2
calibrate = 3
active = 3

[settings]
size = "tiny"
batch-size = 8

[[rungs]]
name = "plain"
change = "nothing yet"

[[rungs]]
name = "graphs"
change = "what a CPU cannot do"
set = { cuda-graphs = true }
environment = { NCCL_P2P_DISABLE = "1" }
side = true

[[rungs]]
name = "fused"
change = "Adam in one kernel"
set = { fused = true }

[[rungs]]
name = "ranks"
change = "four ranks"
ranks = 4
"""
RUNGS = ["plain", "graphs", "fused", "ranks"]


@pytest.fixture
def ladder(tmp_path):
    path = tmp_path / "short.toml"
    path.write_text(LADDER)
    return path


class Recordings:
    """Stands for the recording of programs: what was asked for, and what becomes of it."""

    def __init__(self):
        self.requests = []
        self.fails = {}

    def __call__(self, request, folder, on_state, on_note):
        self.requests.append(request)
        on_state("starting")
        if folder.name in self.fails:
            raise self.fails[folder.name]
        (folder / "rank0.traceprobe.json").write_text("{}")
        return [write_trace(folder / "rank0.json.gz")]

    @property
    def names(self):
        """Settings and ranks of what was run, without the common ones."""
        return [(" ".join(r.program[4:]), r.processes) for r in self.requests]


@pytest.fixture
def recorded(monkeypatch):
    recordings = Recordings()
    monkeypatch.setattr(run_recording, "run_recording", recordings)
    monkeypatch.setattr(program, "torch_interpreter", lambda: sys.executable)
    monkeypatch.setattr(gpus, "visible_gpus", lambda: 0)
    return recordings


@pytest.fixture
def analysed(monkeypatch, tmp_path_factory):
    """The recordings are all alike: one analysis does for all of them."""
    folder = tmp_path_factory.mktemp("analysed")
    report = analyze_recording([write_trace(folder / "rank0.json.gz")], folder)

    def copied(traces, target):
        for name in REPORT:
            shutil.copy(folder / name, target)
        return report

    monkeypatch.setattr(run, "analyze_recording", copied)


def result(folder, name="sweep.json"):
    return json.loads((folder / name).read_text())


def states(folder):
    return {rung["name"]: rung["state"] for rung in result(folder)["rungs"]}


def test_every_rung_is_recorded_in_a_folder_of_its_own(cli, ladder, recorded, tmp_path):
    done = cli("sweep", ladder).expect(0)
    out = tmp_path / "traceprobe-short"
    files = {"sweep.json", "ladder.html", "ladder.json"}
    assert {path.name for path in out.iterdir()} == {*files, *RUNGS}
    for name in RUNGS:
        kept = {path.name for path in (out / name).iterdir()}
        beside = {"compare.html", "compare.json"} if name == "graphs" else set()
        traces = {"rank0.json.gz", "rank0.traceprobe.json"}
        assert kept == {*traces, "report.html", "report.json", *beside}
    assert recorded.names == [
        ("", None),
        ("--cuda-graphs", None),
        ("--fused", None),
        ("--fused", 4),
    ]
    assert [r.environment for r in recorded.requests] == [{}, {"NCCL_P2P_DISABLE": "1"}, {}, {}]
    assert [r.program[3] for r in recorded.requests] == ["--batch-size=8"] * 3 + ["--batch-size=2"]
    plan = recorded.requests[0].plan
    assert (plan.warmup, plan.calibrate, plan.active, plan.backend) == (2, 3, 3, "torch")
    assert "A ladder for a test." in done.err
    assert "rung fused (3 of 4): starting" in done.err
    assert "short: no measurable change after 2 changes" in done.out


def test_the_ladder_has_the_changes_of_its_rungs_and_side_rungs_stand_beside_it(
    cli, ladder, recorded, tmp_path
):
    done = cli("sweep", ladder, "-o", "out").expect(0)
    made = result(tmp_path / "out", "ladder.json")
    assert (made["kind"], made["name"], made["missing"]) == ("ladder", "short", [])
    assert [(rung["run"]["label"], rung["change"]) for rung in made["rungs"]] == [
        ("plain", "nothing yet"),
        ("fused", "Adam in one kernel"),
        ("ranks", "four ranks"),
    ]
    beside = result(tmp_path / "out" / "graphs", "compare.json")
    assert (beside["base"]["label"], beside["new"]["label"]) == ("plain", "graphs")
    assert f"side rung graphs: {beside['headline']}" in done.err


@pytest.mark.usefixtures("analysed")
def test_the_change_of_a_rung_that_was_not_measured_is_part_of_the_next(
    cli, ladder, recorded, tmp_path
):
    recorded.fails["fused"] = RecordingFailed("out of luck")
    cli("sweep", ladder, "-o", "out").expect(1)
    made = result(tmp_path / "out", "ladder.json")
    assert [rung["change"] for rung in made["rungs"]] == [
        "nothing yet",
        "Adam in one kernel; four ranks",
    ]
    assert made["missing"] == [
        {"change": "Adam in one kernel", "label": "fused", "reason": "out of luck"}
    ]


@pytest.mark.usefixtures("analysed")
def test_a_ladder_of_which_nothing_was_measured_is_not_written(cli, ladder, recorded, tmp_path):
    recorded.fails["plain"] = RecordingFailed("out of luck")
    done = cli("sweep", ladder, "-o", "out", "--rungs", "plain", "-q").expect(1)
    assert done.out == ""
    assert done.err == "traceprobe: rung plain failed: out of luck\n"
    assert not (tmp_path / "out" / "ladder.json").exists()


def test_the_result_holds_what_was_run_and_what_it_took(cli, ladder, recorded, tmp_path):
    cli("sweep", ladder, "-o", "out").expect(0)
    made = result(tmp_path / "out")
    assert (made["kind"], made["ladder"], made["workload"]) == ("sweep", "short", "tiny-mlp")
    graphs = made["rungs"][1]
    assert graphs["arguments"] == ["--size=tiny", "--batch-size=8", "--cuda-graphs"]
    assert (graphs["side"], graphs["base"], graphs["ranks"]) == (True, "plain", 1)
    assert graphs["reason"] is None
    assert graphs["run"]["label"] == "graphs"
    step = LOOP.data_wait_ns + LOOP.h2d_ns + LOOP.forward_ns + LOOP.backward_ns + LOOP.optimizer_ns
    assert graphs["run"]["step_ms"] == pytest.approx(step / MS, rel=0.05)


@pytest.mark.usefixtures("analysed")
def test_a_rung_that_fails_does_not_end_the_others(cli, ladder, recorded, tmp_path):
    kind = "the program ended with status 2"
    recorded.fails["graphs"] = RecordingFailed(f"{kind}; no GPU\n    here", kind)
    done = cli("sweep", ladder, "-o", "out").expect(1)
    assert states(tmp_path / "out") == dict.fromkeys(RUNGS, "measured") | {"graphs": "failed"}
    assert f"traceprobe: rung graphs failed: {kind}; no GPU" in done.err
    assert done.err.splitlines()[-1] == "failed: graphs; the messages above say why"


@pytest.mark.usefixtures("analysed")
def test_what_failed_programs_say_and_the_variables_of_rungs_are_in_no_record(
    cli, ladder, recorded, tmp_path
):
    ladder.write_text(LADDER.replace('NCCL_P2P_DISABLE = "1"', 'NCCL_IB_HCA = "canary-token"'))
    recorded.fails["graphs"] = RecordingFailed("ended badly; canary-said", "ended badly")
    recorded.fails["fused"] = OSError(28, "No space left on device", "/home/canary-user/rank0")
    recorded.fails["ranks"] = UsageError("canary-tool: nsys export failed")
    folder = ("--data-folder", tmp_path / "canary-data")
    done = cli("sweep", ladder, "-o", "out", *folder, f"--data-folder={folder[1]}").expect(1)
    assert "canary-said" in done.err
    assert [rung["reason"] for rung in result(tmp_path / "out")["rungs"]] == [
        None,
        "ended badly",
        "No space left on device",
        "it was not recorded",
    ]
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert {"sweep.json", "ladder.json", "ladder.html"} <= {path.name for path in written}
    assert [path for path in written if b"canary" in path.read_bytes()] == []
    assert all(str(folder[1]) in request.program for request in recorded.requests)


def test_a_rung_with_too_few_steps_to_compare_has_failed(cli, ladder, recorded, monkeypatch):
    short = LOOP.__class__(**{**LOOP.__dict__, "steps": 2})
    monkeypatch.setattr(
        run_recording,
        "run_recording",
        lambda request, folder, *_: [write_trace(folder / "a.json.gz", short)],
    )
    done = cli("sweep", ladder, "--rungs", "plain", "-o", "out").expect(1)
    assert "rung plain failed: plain: has 2 complete steps" in done.err


@pytest.mark.usefixtures("analysed")
def test_rungs_that_need_more_gpus_are_skipped(cli, ladder, recorded, tmp_path, monkeypatch):
    monkeypatch.setattr(gpus, "visible_gpus", lambda: 2)
    done = cli("sweep", ladder, "-o", "out").expect(0)
    assert states(tmp_path / "out")["ranks"] == "skipped"
    assert len(recorded.requests) == 3
    assert "skipped: needs 4 GPUs; 2 visible" in done.err
    assert result(tmp_path / "out", "ladder.json")["missing"][0]["label"] == "ranks"
    cli("sweep", ladder, "-o", "two", "--nproc-per-node", "2").expect(0)
    assert states(tmp_path / "two")["ranks"] == "measured"
    assert recorded.requests[-1].processes == 2


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("1:3", ["graphs", "fused"]),
        (":1", ["plain"]),
        ("2:", ["fused", "ranks"]),
        ("fused,plain", ["plain", "fused"]),
    ],
)
@pytest.mark.usefixtures("analysed")
def test_some_rungs_keep_the_settings_of_those_left_out(
    cli, ladder, recorded, tmp_path, wanted, names
):
    cli("sweep", ladder, "-o", "out", "--rungs", wanted).expect(0)
    assert list(states(tmp_path / "out")) == names
    if "ranks" in names:
        assert recorded.names[-1] == ("--fused", 4)


@pytest.mark.usefixtures("analysed")
def test_settings_that_follow_hold_in_every_rung(cli, ladder, recorded, tmp_path):
    cli("sweep", ladder, "-o", "out", "--backend", "torch", "--workers", "1").expect(0)
    assert all(request.program[-2:] == ["--workers", "1"] for request in recorded.requests)
    assert result(tmp_path / "out")["rungs"][0]["arguments"][-2:] == ["--workers", "1"]


@pytest.mark.usefixtures("analysed")
def test_resuming_runs_what_failed_or_is_missing(cli, ladder, recorded, tmp_path):
    recorded.fails["fused"] = RecordingFailed("out of luck")
    cli("sweep", ladder, "-o", "out", "--rungs", "0:3").expect(1)
    recorded.fails.clear()
    recorded.requests.clear()
    cli("sweep", ladder, "-o", "out", "--resume", "--rungs", "2:").expect(0)
    assert recorded.names == [("--fused", None), ("--fused", 4)]
    assert states(tmp_path / "out") == dict.fromkeys(RUNGS, "measured")
    recorded.requests.clear()
    cli("sweep", ladder, "-o", "out", "--resume").expect(0)
    assert recorded.requests == []


@pytest.mark.usefixtures("analysed")
def test_resuming_runs_again_what_is_run_in_another_way_or_gone(cli, ladder, recorded, tmp_path):
    cli("sweep", ladder, "-o", "out").expect(0)
    recorded.requests.clear()
    ladder.write_text(LADDER.replace('"1" }', '"2" }'))
    (tmp_path / "out" / "plain" / "report.json").unlink()
    cli("sweep", ladder, "-o", "out", "--resume").expect(0)
    assert recorded.names == [("", None), ("--cuda-graphs", None)]
    recorded.requests.clear()
    cli("sweep", ladder, "-o", "out", "--resume").expect(0)
    assert recorded.requests == []
    ladder.write_text(LADDER.replace("active = 3", "active = 4"))
    cli("sweep", ladder, "-o", "out", "--resume").expect(0)
    assert len(recorded.requests) == 4


@pytest.mark.usefixtures("analysed")
def test_a_rung_that_fails_anew_leaves_no_old_report(cli, ladder, recorded, tmp_path):
    cli("sweep", ladder, "-o", "out").expect(0)
    for mine in ("mine.txt", "mine.json.gz", "rank7.json.gz"):
        (tmp_path / "out" / "plain" / mine).write_text("mine")
    recorded.fails["plain"] = RecordingFailed("out of luck")
    cli("sweep", ladder, "-o", "out", "--force").expect(1)
    left = {path.name for path in (tmp_path / "out" / "plain").iterdir()}
    assert left == {"mine.txt", "mine.json.gz", "rank7.json.gz"}


@pytest.mark.usefixtures("analysed")
def test_an_interrupted_rung_keeps_its_old_result(cli, ladder, recorded, tmp_path):
    cli("sweep", ladder, "-o", "out", "--rungs", "plain").expect(0)
    recorded.fails["plain"] = KeyboardInterrupt()
    cli("sweep", ladder, "-o", "out", "--rungs", "plain", "--force").expect(130)
    assert (tmp_path / "out" / "plain" / "report.json").exists()


@pytest.mark.usefixtures("analysed")
def test_an_interrupt_keeps_what_is_done(cli, ladder, recorded, tmp_path):
    recorded.fails["fused"] = KeyboardInterrupt()
    done = cli("sweep", ladder, "-o", "out").expect(130)
    assert "go on with --resume" in done.err
    assert states(tmp_path / "out") == {"plain": "measured", "graphs": "measured"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such"], "no-such: there is no ladder of that name"),
        (["short.toml", "--resume", "--force"], "give one of them"),
        (["short.toml", "--rungs", "fuse"], "there is no rung 'fuse'; there are plain, graphs"),
        (["short.toml", "--rungs", "4:"], "there are 4 rungs, counted from 0"),
        (["short.toml", "--nproc-per-node", "3"], "batch-size: 8 cannot be shared by 3 ranks"),
        (["short.toml", "-o", "full"], "full: is not empty"),
        (["short.toml", "-o", "short.toml"], "is not a folder"),
        (["short.toml", "-o", "torn", "--resume"], "is not a file that traceprobe sweep wrote"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(
    cli, ladder, recorded, tmp_path, arguments, message
):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "sweep.json").write_text("{")
    done = cli("sweep", *arguments).expect(2)
    assert message in done.err
    assert recorded.requests == []


@pytest.mark.slow
@pytest.mark.usefixtures("pytorch")
def test_a_sweep_on_the_cpu(ladder, tmp_path):
    arguments = ("sweep", ladder, "--rungs", "1:3", "-o", "out")
    there = {"CUDA_VISIBLE_DEVICES": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = spawn(*arguments, cwd=tmp_path, env=there).expect(1)
    made = {rung["name"]: rung for rung in result(tmp_path / "out")["rungs"]}
    assert made["graphs"]["state"] == "failed"
    assert made["graphs"]["reason"] == "the program ended with status 2"
    assert "--cuda-graphs needs a CUDA GPU" in done.err
    run = made["fused"]["run"]
    assert run["basis"] == "unprofiled"
    assert run["samples_per_step"] == 8
    assert run["settings"]["fused"] is True
    assert list((tmp_path / "cache" / "traceprobe").glob("rows*"))
    assert (tmp_path / "out" / "fused" / "rank0.json.gz").is_file()
    assert list((tmp_path / "out" / "graphs").iterdir()) == []
