"""Names from a second capture: real recordings of small programs, whose slow lines are known."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import textwrap
from collections import defaultdict

import pytest

import traceprobe
from tests.cli_runner import environment

pytestmark = [pytest.mark.usefixtures("pytorch"), pytest.mark.slow]

FAST = ["--warmup", "2", "--most-warmup", "2", "--calibrate", "3", "--active", "4"]
MODEL = """
import time, tests.without_compiler, torch
torch.set_num_threads(1)

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(32, 32)

    def forward(self, x):
        return torch.relu(self.fc(x))

model = torch.nn.Sequential(Block(), Block())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
PLAIN = (
    MODEL
    + """
def train_step(x):
    optimizer.zero_grad()
    loss = model(x).sum()
    time.sleep(0.02)  # slow
    loss.backward()
    optimizer.step()

for step in range(STEPS):
    train_step(torch.randn(8, 32))
"""
)
RECORDED = (
    MODEL
    + """
from traceprobe.capture import recorder

def batches():
    while True:
        batch = torch.randn(8, 32)
        time.sleep(0.02)  # slow
        yield batch

network = model
for number, x in enumerate(recorder().steps(batches())):
    loss = network(x).sum()
    loss.backward()
    if number % EVERY == EVERY - 1:
        optimizer.step()
        optimizer.zero_grad()
"""
)


class Recording:
    def __init__(self, folder, done):
        self.folder, self.said = folder, done.stderr
        with gzip.open(folder / "rank0.json.gz") as file:
            self.trace = json.load(file)
        self.sidecar = json.loads((folder / "rank0.traceprobe.json").read_text())
        self.facts = self.sidecar.get("blame")
        self.blamed = [e for e in self.trace["traceEvents"] if e.get("cat") == "blame"]

    def ms(self):
        """Time of each name, ms."""
        times = defaultdict(float)
        for event in self.blamed:
            times[event["name"]] += event["dur"] / 1e3
        return times

    def operators(self, name):
        events = self.trace["traceEvents"]
        return [e for e in events if e.get("cat") == "cpu_op" and e["name"] == name]

    @property
    def steps(self):
        return [e for e in self.trace["traceEvents"] if str(e["name"]).startswith("ProfilerStep")]


@pytest.fixture
def record(tmp_path):
    return recorder_in(tmp_path)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """With the compiler of PyTorch, as its optimizer would import it anywhere else."""
    program = PLAIN.replace("tests.without_compiler, ", "")
    return recorder_in(tmp_path_factory.mktemp("plain"))(program, STEPS=100)


def recorder_in(folder):
    def run(text, *options, **replaced):
        for old, new in replaced.items():
            text = text.replace(old, str(new))
        script = folder / "train.py"
        script.write_text(textwrap.dedent(text))
        out = folder / f"out{len(list(folder.glob('out*')))}"
        command = [sys.executable, "-m", "traceprobe", "profile", "-o", str(out), *FAST, *options]
        done = subprocess.run(
            [*command, "--", sys.executable, str(script)],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            env=environment(),
        )
        assert done.returncode == 0, done.stderr
        return Recording(out, done)

    return run


def slow_line(text):
    (number,) = (n for n, line in enumerate(text.splitlines(), 1) if line.endswith("# slow"))
    return number


def idle_ms(recording):
    """Time between operators in gaps as long as the sleep, ms."""
    spans = [
        (e["ts"], e["ts"] + e["dur"])
        for e in recording.trace["traceEvents"]
        if e.get("cat") == "cpu_op"
    ]
    total, end = 0.0, min(spans)[0]
    for t0, t1 in sorted(spans):
        total += t0 - end if t0 - end >= 20e3 else 0
        end = max(end, t1)
    return total / 1e3


def test_a_sleep_is_blamed_on_its_exact_line_with_the_time_of_the_timed_capture(plain):
    text, made = PLAIN, plain
    times, steps = made.ms(), len(made.steps)
    slow = times[f"train.py({slow_line(text)}): train_step"]
    # The sleep lies between the last operator of the forward pass and the first of the backward.
    # Where in that gap its line begins and ends, the second capture tells: with its own hiccups.
    assert slow == pytest.approx(idle_ms(made), rel=0.05)
    assert len(
        [e for e in made.blamed if e["name"].endswith(f"({slow_line(text)}): train_step")]
    ) == (steps)
    assert max(v for n, v in times.items() if n.endswith(": train_step")) == slow
    assert made.facts["named_steps"] == steps == 5
    assert made.facts["matched"] == 1.0
    assert made.facts["steps"] == 2
    names = {n for n in times if n.startswith("nn.Module: ")}
    assert names == {
        *("nn.Module: Sequential", "nn.Module: 0.Block", "nn.Module: 1.Block"),
        *("nn.Module: 0.fc.Linear", "nn.Module: 1.fc.Linear"),
    }
    assert {p.name for p in made.folder.iterdir()} == {
        *("rank0.json.gz", "rank0.traceprobe.json", "report.html", "report.json"),
    }
    assert "recording names" in made.said


def test_stretches_nest_lie_in_their_steps_and_name_no_absolute_path(plain):
    made = plain
    begin = min(e["ts"] for e in made.steps)
    end = max(e["ts"] + e["dur"] for e in made.steps)
    (thread,) = {(e["pid"], e["tid"]) for e in made.blamed}
    assert {(e["pid"], e["tid"]) for e in made.steps} == {thread}
    enclosing = []
    for event in made.blamed:
        t0, t1 = round(event["ts"] * 1e3), round(event["ts"] * 1e3) + round(event["dur"] * 1e3)
        assert begin * 1e3 - 1 <= t0 < t1 <= end * 1e3 + 1
        while enclosing and enclosing[-1] <= t0 + 1:
            enclosing.pop()
        assert not enclosing or t1 <= enclosing[-1] + 1
        enclosing.append(t1)
    assert all(re.match(r"nn\.Module: |train\.py\(\d+\): ", e["name"]) for e in made.blamed)
    assert str(made.folder.parent) not in json.dumps(made.trace["traceEvents"])


def test_every_module_encloses_its_operators(plain):
    made = plain
    calls = [e for e in made.blamed if e["name"].endswith(".Linear")]
    operators = made.operators("aten::linear")
    assert len(calls) == len(operators) == 10
    for call, operator in zip(calls, operators, strict=True):
        assert call["ts"] <= operator["ts"]
        assert call["ts"] + call["dur"] >= operator["ts"] + operator["dur"]


def test_shapes_come_from_the_second_capture(plain):
    made = plain
    for operator in made.operators("aten::addmm"):
        assert operator["args"]["Input Dims"][:3] == [[32], [8, 32], [32, 32]]
        assert operator["args"]["Input type"][:3] == ["float"] * 3
        assert "Concrete Inputs" in operator["args"]


def test_no_time_of_the_timed_capture_changes(plain, tmp_path):
    made = plain
    bare = tmp_path / "bare.json"
    events = [e for e in made.trace["traceEvents"] if e.get("cat") != "blame"]
    for event in events:
        for key in ("Input Dims", "Input type", "Concrete Inputs"):
            event.get("args", {}).pop(key, None)
    bare.write_text(json.dumps({**made.trace, "traceEvents": events}))
    named, plain = (
        traceprobe.analyze(traceprobe.load(path)) for path in (made.folder / "rank0.json.gz", bare)
    )
    assert named.ranks[0].summary == plain.ranks[0].summary
    assert named.ranks[0].iterations == plain.ranks[0].iterations
    for what in ("bound", "secondary", "confidence", "shares"):
        assert getattr(named.verdict, what) == getattr(plain.verdict, what)
    assert [(f.id, f.status, f.saving_ms_per_step) for f in named.findings] == [
        (f.id, f.status, f.saving_ms_per_step) for f in plain.findings
    ]


def test_a_loader_that_is_a_generator_is_blamed_on_its_line(record):
    text = RECORDED.replace("EVERY", "1")
    made = record(text)
    slow = [e for e in made.blamed if e["name"] == f"train.py({slow_line(text)}): batches"]
    loading = [e for e in made.trace["traceEvents"] if e["name"] == "data_loading"]
    assert len(slow) == len(loading) == len(made.steps)
    for line, load in zip(slow, loading, strict=True):
        assert load["ts"] <= line["ts"] < line["ts"] + line["dur"] <= load["ts"] + load["dur"]
    assert made.ms()[slow[0]["name"]] == pytest.approx(idle_ms(made), rel=0.05)


def test_accumulated_gradients_are_recorded_until_the_optimizer_steps(record):
    made = record(RECORDED, EVERY=4)
    assert 2 <= made.facts["steps"] <= 4
    assert any(e["name"].startswith("Optimizer.step") for e in made.trace["traceEvents"])
    update = next(n for n, t in enumerate(RECORDED.splitlines(), 1) if "optimizer.step()" in t)
    assert f"train.py({update}): <module>" in made.ms()


def test_without_an_optimizer_a_bounded_number_of_steps_is_recorded(record):
    made = record(RECORDED, EVERY=1_000_000)
    assert made.facts["steps"] == 8


def test_compiled_models_are_not_compiled_again_for_their_names(record):
    text = RECORDED.replace(
        "network = model", "network = torch.compile(model, backend='eager')"
    ).replace(
        "optimizer.zero_grad()",
        "optimizer.zero_grad()\n"
        "    print('graphs', torch._dynamo.utils.counters['stats']['unique_graphs'], "
        "file=open('graphs', 'a'))",
    )
    folder = pytest.importorskip("pathlib").Path
    made = record(text.replace("'graphs', 'a'", "__file__ + '.graphs', 'a'"), EVERY=1)
    said = folder(made.folder).parent / "train.py.graphs"
    assert set(said.read_text().split()) == {"graphs", "1"}
    assert made.facts["matched"] == 1.0
    # The call of the model, whose inside has no calls of Python.
    assert {n for n in made.ms() if n.startswith("nn.Module")} == {"nn.Module: Sequential"}


def test_a_trace_function_of_the_program_stays_and_modules_come_without_lines(record):
    text = PLAIN.replace(
        "for step in",
        "import sys\n"
        "def mine(frame, event, argument): return None\n"
        "sys.settrace(mine)\n"
        "for step in",
    ).replace("    train_step(torch", "    assert sys.gettrace() is mine\n    train_step(torch")
    made = record(text, STEPS=100)
    assert made.facts["lines"] == 0
    assert "debugger" in made.facts["reason"]
    assert set(made.ms()) >= {"nn.Module: Sequential", "nn.Module: 1.fc.Linear"}


def test_a_program_that_ends_before_the_steps_for_names_keeps_its_recording(record):
    made = record(PLAIN, STEPS=19)
    assert made.facts.keys() == {"reason"}
    assert not made.blamed
    assert len(made.steps) == 5
    assert "is complete, but has no names" in made.said
    # Which of the two depends on whether blocks were made again.
    early = r"the program ended (\d+ steps? too early for them|before the steps in which they are)"
    assert re.search(early, made.said)


def test_a_loop_that_is_left_early_runs_on_untraced(record):
    text = (
        "import sys\n"
        + RECORDED
        + "    if number == 13:\n        break\nassert sys.gettrace() is None\nprint('done')\n"
    )
    made = record(text, EVERY=1)
    assert made.facts.keys() == {"reason"}


def test_what_fails_while_names_are_recorded_ends_neither_program_nor_recording(record):
    text = PLAIN.replace(
        "def train_step",
        "class Odd(torch.nn.Linear):\n"
        "    def named_modules(self, *a, **k): raise RuntimeError('odd')\n"
        "odd = Odd(32, 32)\n"
        "def train_step",
    ).replace("model(x).sum()", "model(odd(x)).sum()")
    made = record(text, STEPS=100)
    assert f"train.py({slow_line(text)}): train_step" in made.ms()
    assert not any("Odd" in e["name"] for e in made.blamed)


def test_without_blame_nothing_is_recorded_after_the_timed_steps(record):
    made = record(PLAIN, "--no-blame", STEPS=19)
    assert not made.blamed
    assert made.facts is None
    assert "names" not in made.said


def test_two_ranks_have_names_each(record):
    text = (
        RECORDED.replace("EVERY", "1")
        .replace("from traceprobe", "torch.distributed.init_process_group('gloo')\nfrom traceprobe")
        .replace("network = model", "network = torch.nn.parallel.DistributedDataParallel(model)")
    )
    made = record(text, "--nproc-per-node", "2")
    for rank in (0, 1):
        names = names_of_rank(made, rank)
        assert {"nn.Module: DistributedDataParallel", "nn.Module: 0.fc.Linear"} <= names, made.said
        assert f"train.py({slow_line(text)}): batches" in names


def names_of_rank(made, rank):
    with gzip.open(made.folder / f"rank{rank}.json.gz") as file:
        return {e["name"] for e in json.load(file)["traceEvents"] if e.get("cat") == "blame"}


def test_a_rank_that_fails_on_its_way_out_does_not_take_the_names_of_others(record):
    text = RECORDED.replace("EVERY", "1").replace(
        "from traceprobe",
        "import os\n"
        "slow = os.environ['RANK'] == '1'\n"
        "export = torch.profiler.profile.export_chrome_trace\n"
        "def later(*args):\n"
        "    time.sleep(2 * slow)\n"
        "    return export(*args)\n"
        "torch.profiler.profile.export_chrome_trace = later\n"
        "from traceprobe",
        1,
    )
    made = record(text + "if not slow:\n    os._exit(1)\n", "--nproc-per-node", "2")
    assert f"train.py({slow_line(text)}): batches" in names_of_rank(made, 1), made.said
