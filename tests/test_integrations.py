"""The programs of docs/integrations.md with the real trainers: what the loggers get, and that the
training is what it would be without."""

from __future__ import annotations

import dataclasses
import json
import re
import sys

import pytest

from tests import trainers
from tests.cli_runner import spawn
from tests.conftest import ROOT
from traceprobe.integrations.settings import Settings

PAGE = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
QUIET = {
    "MLFLOW_ALLOW_FILE_STORE": "true",
    "MLFLOW_TRACKING_URI": "file:./mlruns",
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "WANDB_DATA_DIR": "wandb-data",
    "WANDB_CACHE_DIR": "wandb-cache",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
}
STEPS = {"Transformers": 20, "Lightning": 21, "Accelerate": 20}
"""After which the programs record: every 20 steps, and in one an evaluation comes in between."""


def program(trainer):
    """The program of a section."""
    section = PAGE.partition(f"\n## {trainer}\n")[2].partition("\n## ")[0]
    (code,) = re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    return code


DRIVER = """
import json
from pathlib import Path

sums = []
for code in json.loads(Path("programs.json").read_text()):
    space = {"__name__": "__main__"}
    exec(compile(code, "train.py", "exec"), space)
    model = space["trainer"].model if "trainer" in space else space["model"]
    sums.append([weights.double().sum().item() for weights in model.parameters()])
print(json.dumps(sums))
"""
WITHOUT_US = (
    (r"report_to=\[.*\]", "report_to=[]"),
    (r"callbacks=\[.*\]", "callbacks=[]"),
    (r"logger=\[.*\]", "logger=False"),
    (r"log_with=\[.*\], ", ""),
    (r"with record\(.*", "if True:"),
    (r"recording\.steps\((\w+)\)", r"\1"),
    (r"with recording\.phase\(.*", "if True:"),
    (r"if recording\.step .*", "if False:"),
    (r"step=recording\.step", "step=0"),
)
"""Changes of the programs: the same training without us and without loggers."""


def trained(trainer, folder):
    """The sums of all weights, with us and without, and what was said; in one process."""
    code = plain = program(trainer)
    for pattern, instead in WITHOUT_US:
        plain = re.sub(pattern, instead, plain)
    assert "traceprobe" in code
    assert re.findall("every=|recording", plain) == []
    (folder / "programs.json").write_text(json.dumps([code, plain]))
    (folder / "train.py").write_text(DRIVER)
    done = spawn("train.py", cwd=folder, command=(sys.executable,), env=QUIET).expect(0)
    return *json.loads(done.out.splitlines()[-1]), done.err


def check_delivery(folder, said, step):
    """The recording in its folder, and in the stores of all loggers."""
    recording = folder / "profiles" / f"step-{step}"
    assert {path.name for path in recording.iterdir()} == {
        *("rank0.json.gz", "report.html", "report.json")
    }
    report = json.loads((recording / "report.json").read_text())
    labels = [each["label"] for each in report["ranks"][0]["iterations"]]
    assert labels[0] == f"step {step + 2}"
    assert len(labels) >= 4
    (line,) = [line for line in said.splitlines() if line.startswith("traceprobe: ")]
    headline = report["verdict"]["headline"]
    assert line == f"traceprobe: step {step}: {headline} See {recording / 'report.html'}"
    check_mlflow(folder, report, step)
    check_wandb(folder, headline)
    check_tensorboard(folder, headline)


def check_mlflow(folder, report, step):
    """Of the file store."""
    (run,) = [path.parent for path in folder.glob("mlruns/*/*/meta.yaml")]
    assert (run / "tags/traceprobe/verdict").read_text() == report["verdict"]["headline"]
    kept = {path.name for path in (run / "artifacts/traceprobe" / f"step-{step}").iterdir()}
    assert kept == {"report.html", "report.json"}
    for name, share in report["verdict"]["shares"].items():
        (line,) = (run / f"metrics/traceprobe/share_{name}").read_text().splitlines()
        assert float(line.split()[1]) == share


def check_wandb(folder, headline):
    """Of the file of an offline run: text in records of its own format."""
    (run,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    content = run.read_bytes()
    for text in (headline, "traceprobe-report", "report.html", "traceprobe/share_io"):
        assert text.encode() in content, text


def check_tensorboard(folder, headline):
    """Of the event files."""
    content = b"".join(path.read_bytes() for path in folder.rglob("events.out.tfevents*"))
    for text in (headline, "traceprobe/share_io", "traceprobe/verdict"):
        assert text.encode() in content, text


@pytest.mark.slow
@pytest.mark.parametrize("trainer", STEPS)
def test_a_trainer_trains_as_without_and_its_loggers_get_the_report(trainer, tmp_path):
    trainers.need(trainer.lower())
    ours, plain, said = trained(trainer, tmp_path)
    assert ours == plain
    check_delivery(tmp_path, said, STEPS[trainer])


def test_the_page_lists_the_arguments():
    section = PAGE.partition("\n## When steps are recorded\n")[2]
    listed = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    assert listed == {field.name for field in dataclasses.fields(Settings)}
    for each in ("traceprobe/step", "share_io", "touch profiles/record", "traceprobe/verdict"):
        assert each in PAGE
