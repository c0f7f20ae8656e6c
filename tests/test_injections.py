"""Faults that are put into training programs: where they go, and that they are blamed."""

from __future__ import annotations

import ast
import json
import subprocess
import sys

import pytest

from benchmarks.injection import faults, page, scores
from benchmarks.injection.catalog import CATALOG, PROGRAMS
from tests.conftest import ROOT

SCRIPT = ROOT / "benchmarks" / "injections.py"
MARKS = ("record_function", "nvtx", "profiler", "traceprobe")
SOURCE = '''"""A text."""
import torch

def step(model, batch):
    """What it does."""
    for part in batch:
        loss = model(
            part,
        )
        if loss > 1:
            break
        elif loss > 2:
            pass
    return loss
'''
PLACES = [
    {"file": "gan.py", "line": line, "hits": 1.0, "function": "step", "loads": loads, "tensors": []}
    for line, loads in [(7, False), (11, False), (14, False), (3, True)]
]
MACHINE = {"turns": 1e5, "flops": 1e8, "cycles": 1e6, "bytes": 1e6}
EXPLORED = {
    (name, False): {"step_ms": 30.0, "places": PLACES, "machine": MACHINE}
    for name in ("gan", "cnn-amp")
}
ROW = {"kind": "sleep", "file": "cnn/train.py", "line": 7, "function": "step"}


def test_programs_mark_nothing_and_there_are_twelve():
    texts = [path.read_text(encoding="utf-8") for path in PROGRAMS.rglob("*.py")]
    assert not [word for word in MARKS for text in texts if word in text]
    assert len({program.name for program in CATALOG}) == len(CATALOG) == 12
    assert all((PROGRAMS / program.script).is_file() for program in CATALOG)


@pytest.mark.usefixtures("pytorch")
def test_a_place_is_the_first_line_of_a_simple_statement():
    command = [
        *(sys.executable, "-c"),
        "import json, sys; from benchmarks.injection.explore import statement_starts; "
        "print(json.dumps(statement_starts(sys.stdin.read())))",
    ]
    done = subprocess.run(
        command, input=SOURCE, capture_output=True, text=True, check=True, cwd=ROOT, timeout=300
    )
    starts = {int(line): start for line, start in json.loads(done.stdout).items()}
    assert {line for line, start in starts.items() if line == start} == {7, 10, 11, 13, 14}
    assert starts[8] == 7


def test_faults_are_the_same_for_a_seed_and_each_has_a_line_of_its_own():
    made = faults.chosen(EXPLORED, 6, 3, gpu=False)
    assert made == faults.chosen(EXPLORED, 6, 3, gpu=False)
    assert made != faults.chosen(EXPLORED, 6, 4, gpu=False)
    assert len({(fault.program, fault.line) for fault in made}) == len(made) == 6
    # A program without a loader has no slow samples, and a fault of the step is in no loader.
    assert {fault.kind for fault in made if fault.program == "gan"} <= {"sleep", "busy", "matmul"}
    assert all((fault.line == 3) == (fault.kind in faults.LOADING) for fault in made)


@pytest.mark.parametrize("fault", faults.chosen(EXPLORED, 6, 3, gpu=True), ids=lambda f: f.id)
def test_a_fault_is_one_line_at_the_indentation_of_its_place(fault):
    source = SOURCE if fault.line != 3 else "import torch\n\nx = 1\n"
    text = faults.inserted(source, fault)
    ast.parse(text)
    before, after = source.splitlines(), text.splitlines()
    assert after[fault.line - 1].strip() == fault.code
    assert after[: fault.line - 1] + after[fault.line :] == before


@pytest.mark.parametrize(
    ("blamed", "line", "function"),
    [
        (["train.py(7): step"], 1, 1),
        (["train.py(9): step"], None, 1),
        (["/home/me/model.py(7): step", "train.py(1): Trainer.step"], None, 2),
        (["train.py(7)", "nothing", "train.py(6): main"], None, None),
        (["a.py(1): f"] * 3 + ["train.py(7): step"], None, None),
    ],
)
def test_the_place_of_a_fault_in_what_is_blamed(blamed, line, function):
    assert scores.rank(blamed, ROW, by="line") == line
    assert scores.rank(blamed, ROW, by="function") == function


@pytest.mark.parametrize(
    ("kind", "after", "gpus", "felt"),
    [
        ("sleep", 33.0, ["H200"], True),
        ("sleep", 30.9, ["H200"], False),
        ("item", 30.0, ["H200"], False),
        ("item", 33.0, ["H200"], True),
        ("sleep", 30.0, [], True),
        ("sleep", None, [], None),
    ],
)
def test_what_costs_nothing_is_not_counted(kind, after, gpus, felt):
    row = {"kind": kind, "step_ms": 30.0, "unprofiled_ms": after}
    assert scores.felt(row, {"gpus": gpus}) is felt


def test_the_page_is_made_of_the_scores():
    path = ROOT / "docs" / "validation" / "injections.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    assert page.page(found) == path.with_suffix(".md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.usefixtures("pytorch")
def test_the_slow_line_is_blamed(tmp_path):
    run = ["run", "--out", str(tmp_path / "out"), "--programs", "nanogpt,cnn-amp,two-tower"]
    for command in (
        [*run, "--count", "5", "--jobs", "2"],
        ["score", str(tmp_path / "out"), "--to", str(tmp_path / "scores.json")],
    ):
        subprocess.run([sys.executable, str(SCRIPT), *command], check=True, timeout=900)
    (run,) = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))["runs"]
    rows = [row for row in run["rows"] if row["felt"]]
    assert len(rows) >= 4
    assert [row["id"] for row in rows if row.get("top_rank") != 1] == []
