"""`traceprobe bench` from the outside: real programs, ablated in processes of their own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap

import pytest

from tests.cli_runner import environment, interruptible
from tests.processes import survivors, wait_until
from traceprobe.records.ablation import Ablation

pytestmark = pytest.mark.usefixtures("pytorch")

FAST = ["--trials", "2", "--seconds", "0.05", "--warmup", "2"]
RECORDED = """
import tests.without_compiler, torch
from traceprobe.capture import recorder

torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
record = recorder()
batches = [{"x": torch.randn(8, 64), "name": "text"} for _ in range(5)]
for batch in record.steps(batches):
    with record.phase("forward"):
        loss = model(batch["x"]).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("after the loop", flush=True)
AFTER
"""
PLAIN = """
import time
import torch
from torch.utils.data import DataLoader

class Data:
    def __len__(self):
        return 40

    def __getitem__(self, index):
        time.sleep(0.00125)
        return torch.randn(4)

if __name__ == "__main__":
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Data(), 4)
    steps = 0
    try:
        while steps < 10_000:
            for batch in loader:
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()
                steps += 1
    finally:
        pass
"""


@pytest.fixture
def bench(tmp_path):
    """Runs in a folder of its own, which holds what is left behind."""
    folder = tmp_path / "here"
    folder.mkdir()

    def run(*arguments, **options):
        return subprocess.run(
            command(*arguments),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            **{"env": environment(), **options},
        )

    run.folder = folder
    return run


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(text))
        return [sys.executable, str(path)]

    return write


def command(*arguments):
    return [sys.executable, "-m", "traceprobe", "bench", *map(str, arguments)]


def names(ablation):
    return [variant.name for variant in ablation.variants]


def left(run):
    return sorted(path.name for path in run.folder.iterdir())


@pytest.mark.slow
def test_a_workload(bench):
    done = bench("--workload", "unet", "--size", "tiny", *FAST)
    assert done.returncode == 0, done.stderr
    assert left(bench) == ["traceprobe-unet-bench.json"]
    made = Ablation.from_json((bench.folder / "traceprobe-unet-bench.json").read_bytes())
    assert names(made)[:3] == ["io", "synthetic-host", "full"]
    assert {len(v.trial_ms) for v in made.variants} == {2}
    assert all(v.samples_per_second is not None for v in made.variants)
    assert made.workload["name"] == "unet"
    assert (made.ranks, made.gpu_busy_ms) == (1, None)
    assert made.oracle.shares["overhead"] is None
    assert sum(s.value for s in made.oracle.shares.values() if s) == pytest.approx(1)
    assert "by ablation" in done.stdout
    assert done.stderr.splitlines()[-2:] == [
        "wrote traceprobe-unet-bench.json",
        "all of it: traceprobe render traceprobe-unet-bench.json -v",
    ]


@pytest.mark.slow
def test_two_ranks_are_measured_without_communication_too(bench):
    arguments = ("--workload", "wide-mlp", "--size", "tiny", "--nproc-per-node", "2")
    done = bench(*arguments, *FAST, "-o", "-")
    assert done.returncode == 0, done.stderr
    made = Ablation.from_json(done.stdout)
    parts = ["io", "synthetic-host", "full", "full-no-comm", "synthetic-no-comm"]
    assert names(made)[:5] == parts
    assert made.ranks == 2
    assert "synthetic-device" in made.absent
    assert made.oracle.shares["communication"] is not None
    assert made.workload["samples_per_step"] == 16
    assert left(bench) == []


@pytest.mark.slow
def test_a_script_with_the_recorder_goes_on_after_its_loop(bench, script):
    mark = bench.folder.parent / "after"
    after = f"open({str(mark)!r}, 'w').close()"
    done = bench("-o", "bench.json", "-q", *FAST, "--", *script(RECORDED.replace("AFTER", after)))
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("", "")
    assert mark.exists()
    made = json.loads((bench.folder / "bench.json").read_text())
    assert made["workload"] == {"name": "train", "samples_per_step": 8}
    assert [v["name"] for v in made["variants"]][:3] == ["io", "synthetic-host", "full"]


@pytest.mark.slow
def test_a_script_without_the_recorder_is_measured_and_ended(bench, script):
    done = bench("-o", "bench.json", *FAST, "--", *script(PLAIN))
    assert done.returncode == 0, done.stderr
    made = Ablation.from_json((bench.folder / "bench.json").read_bytes())
    assert {"io", "synthetic-host", "full", "full-fused"} <= set(names(made))
    assert made.workload == {"name": "train", "samples_per_step": 4}
    assert made.oracle.shares["io"].low > 0.5  # it sleeps 5 ms for each of its batches
    assert left(bench) == ["bench.json"]


@pytest.mark.slow
def test_a_script_that_catches_the_end_finds_everything_restored(bench, script):
    mark = bench.folder.parent / "restored"
    caught = f"""\
    except SystemExit:
        from traceprobe.capture.loader.batch_feed import feed
        assert feed.source is None
        assert not any(group["fused"] for group in optimizer.param_groups)
        assert [len(list(loader)) for _ in range(3)] == [10, 10, 10]
        open({str(mark)!r}, "w").close()
    """
    done = bench(
        "-o",
        "bench.json",
        *FAST,
        "--",
        *script(PLAIN.replace("    finally:\n        pass\n", caught)),
    )
    assert done.returncode == 0, done.stderr
    assert mark.exists()


@pytest.mark.slow
def test_a_script_that_ends_too_early_is_told_how_many_steps_it_lacks(bench, script):
    done = bench("--trials", "5", "--seconds", "1", "--", *script(PLAIN.replace("10_000", "90")))
    assert done.returncode == 2
    assert "the program ended after 90 steps, and its trials need about " in done.stderr
    assert "--trials" in done.stderr
    assert left(bench) == []


@pytest.mark.slow
def test_a_program_that_makes_no_trial_is_refused(bench, script):
    done = bench(*FAST, "--", *script("pass"))
    assert done.returncode == 2
    assert "ended before its trials did" in done.stderr
    assert left(bench) == []


@pytest.mark.slow
def test_a_script_that_fails_leaves_its_last_lines_and_no_file(bench, script):
    done = bench(*FAST, "--", *script("raise ValueError('no such volume')"))
    assert done.returncode == 2
    assert "ValueError: no such volume" in done.stderr
    assert left(bench) == []


def test_an_existing_output_is_refused_before_anything_runs(bench, script):
    (bench.folder / "mine.json").write_text("mine")
    program = script("open('ran', 'w').close(); raise SystemExit(3)")
    done = bench("-o", "mine.json", *FAST, "--", *program)
    assert done.returncode == 2
    assert "--force" in done.stderr
    assert left(bench) == ["mine.json"]
    done = bench("-o", "mine.json", "--force", *FAST, "--", *program)
    assert "ended with status 3" in done.stderr
    assert left(bench) == ["mine.json", "ran"]
    assert (bench.folder / "mine.json").read_text() == "mine"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to run"),
        (["-w", "no-such"], "--workload no-such: there is none of that name"),
        (["-o", "no/such/folder.json", "--", "true"], "there is no folder no/such"),
        (["--nproc-per-node", "2", "--", "bash", "-c", "0"], "starts Python scripts"),
        (["--trials", "0", "--", "true"], "--trials"),
    ],
)
def test_a_request_that_cannot_work_is_refused(bench, arguments, message):
    done = bench(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert left(bench) == []


@pytest.mark.slow
def test_an_interrupt_ends_every_process_and_leaves_no_file(bench, script):
    program = script("import time; time.sleep(60)")
    child = subprocess.Popen(
        command(*FAST, "--", *program),
        cwd=bench.folder,
        stderr=subprocess.PIPE,
        preexec_fn=interruptible,
    )
    wait_until(lambda: survivors(program[1]))
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130, said
    assert said.endswith(b"traceprobe: interrupted\n")
    assert left(bench) == []
    assert not survivors(program[1])
