"""`traceprobe profile` from the outside: real programs, real recordings, real failures."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import textwrap

import pytest

import traceprobe
from tests.cli_runner import environment, interruptible
from tests.processes import survivors, wait_until

pytestmark = pytest.mark.usefixtures("pytorch")

FAST = ["--warmup", "2", "--most-warmup", "2", "--calibrate", "3", "--active", "4"]
NAMES = {"rank0.json.gz", "rank0.traceprobe.json", "report.html", "report.json"}
PLAIN = """
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(640, 32), torch.randint(0, 4, (640,)))
for epoch in range(EPOCHS):
    print("epoch", epoch)
    for x, y in DataLoader(data, batch_size=16):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
print("trained to the end")
"""
RECORDED = """
import os, tests.without_compiler, torch
from traceprobe.capture import recorder

torch.set_num_threads(1)
if "RANK" in os.environ:
    torch.distributed.init_process_group("gloo")
model = torch.nn.Linear(256, 256)
if "RANK" in os.environ:
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
record = recorder()
for number, x in enumerate(record.steps([torch.randn(8, 256)] * 4)):
    with record.phase("forward"):
        loss = model(x).square().mean()
    with record.phase("backward"):
        loss.backward()
    with record.phase("optimizer"):
        optimizer.step()
        optimizer.zero_grad()
    AFTER
"""
UPDATING_IN_BACKWARD = """
import torch

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

def update(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()

for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(update)
for step in range(1_000):
    model(torch.randn(16, 32)).square().mean().backward()
"""

LOADING = """
import time, torch
from torch.utils.data import DataLoader

begin = torch.profiler.profile.__enter__

def slowly(profiler):
    time.sleep(0.5)  # on a GPU it takes longer by itself
    return begin(profiler)

torch.profiler.profile.__enter__ = slowly

class Pictures:
    def __len__(self):
        return 40_000
    def __getitem__(self, number):
        time.sleep(0.005)
        return torch.ones(64)

torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for x in DataLoader(Pictures(), 8, num_workers=2, prefetch_factor=4):
    model(x).sum().backward()
    optimizer.step()
"""


def command(*arguments):
    return [sys.executable, "-m", "traceprobe", "profile", *map(str, arguments)]


def run(*arguments, **options):
    options = {"env": environment(), **options}
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=240, check=False, **options
    )


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(text))
        return [sys.executable, str(path)]

    return write


def report(folder):
    return traceprobe.analyze([traceprobe.load(p) for p in sorted(folder.glob("rank*.json.gz"))])


def test_a_script_that_knows_nothing_of_it_is_recorded(tmp_path, script):
    out = tmp_path / "out"
    done = run("-v", "-o", out, *FAST, "--", *script(PLAIN.replace("EPOCHS", "100")))
    assert done.returncode == 0, done.stderr
    assert "\n    | epoch 0\n" in done.stderr
    assert "epoch 0" not in done.stdout
    assert "trained to the end" not in done.stdout + done.stderr
    assert {p.name for p in out.iterdir()} == NAMES
    said = "".join(done.stdout.replace("\\", "").split())  # the path is longer than a line
    assert f"traceprobeslice{out / 'rank0.json.gz'}--steps" in said
    made = traceprobe.analyze(traceprobe.load(out / "rank0.json.gz"))
    (rank,) = made.ranks
    assert rank.summary.iterations_used >= 3
    assert {"forward", "backward", "optimizer"} <= {k for k, v in rank.summary.busy_ns.items() if v}
    assert made.quality.observer_effect is not None
    assert json.loads((out / "report.json").read_text())["verdict"] is not None


@pytest.mark.slow
def test_a_recording_shows_the_loader_that_prefetched_while_the_profiler_started(tmp_path, script):
    out = tmp_path / "out"
    done = run("-o", out, *FAST, "--", *script(LOADING))
    assert done.returncode == 0, done.stderr
    made = report(out)
    waited = sum(i.partition_ns["idle_data_wait"] for i in made.ranks[0].iterations if i.used)
    # Two workers make a batch in 40 ms each; the first of four may have been begun before.
    assert waited >= 40e6
    sidecar = json.loads((out / "rank0.traceprobe.json").read_text())
    assert sidecar["unprofiled_data_wait_ms"] > 0
    assert made.verdict.bound == "io"


@pytest.mark.slow
def test_a_script_that_updates_inside_its_backward_pass_is_recorded(tmp_path, script):
    out = tmp_path / "out"
    done = run("-o", out, *FAST, "--", *script(UPDATING_IN_BACKWARD))
    assert done.returncode == 0, done.stderr
    assert "Leaked" not in done.stderr  # as PyTorch says of a profiler that ends inside of a pass
    assert {p.name for p in out.iterdir()} == NAMES
    (rank,) = report(out).ranks
    assert rank.summary.iterations_used >= 3
    assert all(rank.summary.busy_ns[phase] for phase in ("forward", "backward"))
    events = json.loads(gzip.decompress((out / "rank0.json.gz").read_bytes()))["traceEvents"]
    begun = sorted(e["ts"] for e in events if e["name"].startswith("ProfilerStep#"))
    forward = [e["ts"] for e in events if e["name"] == "aten::linear"]
    made = [sum(a <= ts < b for ts in forward) for a, b in itertools.pairwise(begun)]
    assert len(made) >= 4
    assert set(made) == {2}


@pytest.mark.slow
def test_a_script_with_the_recorder_is_recorded_in_its_own_words(tmp_path, script):
    out = tmp_path / "out"
    done = run("-o", out, *FAST, "--", *script(RECORDED.replace("AFTER", "pass")))
    assert done.returncode == 0, done.stderr
    (rank,) = report(out).ranks
    assert rank.step_marker.kind == "range"
    # On a crowded computer the first may be left out as a warm-up, and another as long.
    odd = re.compile("warm-up|^long")
    assert sum(i.used or bool(odd.search(i.skip_reason)) for i in rank.iterations) == 4
    assert rank.summary.attributed_share > 0.9
    sidecar = json.loads((out / "rank0.traceprobe.json").read_text())
    assert sidecar["unprofiled_step_ms"] > 0
    assert sidecar["unprofiled_data_wait_ms"] is not None


@pytest.mark.slow
def test_an_ablation_comes_first_and_into_the_report(tmp_path, script):
    out = tmp_path / "out"
    done = run("-o", out, *FAST, "--ablate", "--", *script(RECORDED.replace("AFTER", "pass")))
    assert done.returncode == 0, done.stderr
    assert {p.name for p in out.iterdir()} == {*NAMES, "bench.json"}
    made = json.loads((out / "report.json").read_text())
    assert made["ablation"] == json.loads((out / "bench.json").read_text())
    assert {len(v["trial_ms"]) for v in made["ablation"]["variants"]} == {3}
    assert made["verdict"]["bound"]
    assert "Checked by ablation" in (out / "report.html").read_text()
    assert "by ablation: " in done.stdout
    assert done.stderr.index("round 3 of 3") < done.stderr.index("calibrating")


@pytest.mark.slow
def test_a_script_that_is_too_short_to_be_ablated_is_not_recorded_either(tmp_path, script):
    out = tmp_path / "out"
    done = run("-o", out, *FAST, "--ablate", "--", *script(PLAIN.replace("EPOCHS", "2")))
    assert done.returncode == 2
    assert "let it train for longer" in done.stderr
    assert not out.exists()


@pytest.mark.slow
def test_two_ranks_give_two_traces_and_one_report_with_communication(tmp_path, script):
    out = tmp_path / "out"
    program = script(RECORDED.replace("AFTER", "pass"))
    done = run("-o", out, *FAST, "--nproc-per-node", "2", "--", *program)
    assert done.returncode == 0, done.stderr
    made = report(out)
    assert [r.rank for r in made.ranks] == [0, 1]
    assert made.run.world_size == 2
    assert all(r.summary.communication.total_ns > 0 for r in made.ranks)


@pytest.mark.slow
def test_a_program_that_fails_leaves_its_last_lines_and_nothing_else(tmp_path, script):
    out = tmp_path / "out"
    done = run("-o", out, *FAST, "--", *script("raise ValueError('no such volume')"))
    assert done.returncode == 2
    assert "ValueError: no such volume" in done.stderr
    assert not out.exists()


@pytest.mark.slow
def test_a_program_that_ends_too_early_says_how_many_steps_are_needed(tmp_path, script):
    out = tmp_path / "out"
    done = run("-o", out, *FAST, "--active", "5000", "--", *script(PLAIN.replace("EPOCHS", "1")))
    assert done.returncode == 2
    # One update to find the loop, warm-up, 3 unprofiled and 4 around them, and the profiled ones
    needed = 1 + 2 + 3 + 4 + 2 + 5001
    assert f"after 40 steps, and a recording of it needs {needed}" in done.stderr
    assert "--active 8)" in done.stderr
    assert not out.exists()


@pytest.mark.slow
def test_a_killed_rank_ends_the_run_with_a_message_and_no_orphans(tmp_path, script):
    out = tmp_path / "out"
    dying = "if number == 3 and os.environ['RANK'] == '1': os.kill(os.getpid(), 9)"
    program = script(RECORDED.replace("AFTER", dying))
    done = run("-o", out, *FAST, "--nproc-per-node", "2", "--", *program)
    assert done.returncode == 2
    assert "rank 1" in done.stderr
    assert not re.search("^Traceback", done.stderr, re.MULTILINE)
    assert not out.exists()
    assert not survivors(program[1])


@pytest.mark.slow
def test_an_interrupt_ends_every_process_and_leaves_no_file(tmp_path, script):
    out = tmp_path / "out"
    program = script(RECORDED.replace("AFTER", "import time; time.sleep(0.5)"))
    child = subprocess.Popen(
        command("-o", out, *FAST, "--", *program),
        env=environment(),
        stderr=subprocess.PIPE,
        preexec_fn=interruptible,
    )
    wait_until(lambda: survivors(program[1]))
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130, said
    assert b"Traceback" not in said
    assert not out.exists()
    assert not survivors(program[1])


@pytest.mark.slow
def test_if_traceprobe_itself_is_killed_the_program_dies_too(tmp_path, script):
    program = script(RECORDED.replace("AFTER", "import time; time.sleep(0.5)"))
    child = subprocess.Popen(
        command("-o", tmp_path / "out", *FAST, "--", *program), env=environment()
    )
    wait_until(lambda: survivors(program[1]))
    child.kill()
    child.wait()
    wait_until(lambda: not survivors(program[1]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to run"),
        (["-w", "no-such"], "--workload no-such: there is none of that name"),
        (["--backend", "nsys", "--", sys.executable, "-c", "0"], "use --backend torch"),
        (["--nproc-per-node", "2", "--", "bash", "-c", "0"], "starts Python scripts"),
    ],
)
def test_a_request_that_cannot_work_is_refused_before_anything_runs(tmp_path, arguments, message):
    done = run("-o", tmp_path / "out", *arguments, env={**os.environ, "PATH": "/nonexistent"})
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_script_without_its_interpreter_is_told_how_it_is_started(tmp_path):
    script = tmp_path / "my train.py"
    script.write_text("pass")
    done = run("-o", tmp_path / "out", "--", script, "--epochs", "1")
    assert done.returncode == 2
    assert f"traceprobe profile -- python '{script}' --epochs 1`" in done.stderr
    assert not (tmp_path / "out").exists()


def test_outputs_are_not_overwritten_without_being_told(tmp_path, script):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    done = run("-o", out, *FAST, "--", *script("pass"))
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert (out / "mine.txt").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path, script):
    (tmp_path / "file").write_text("")
    done = run("-o", tmp_path / "file" / "out", *FAST, "--", *script("pass"))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
