"""The action for GitHub: its scripts run in bash as on a runner; no input is a command."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.cli_runner import LOOP, environment, write_trace
from tests.conftest import ROOT

FILE = ROOT / ".github/actions/traceprobe/action.yml"
PAGE = (ROOT / "docs/github-actions.md").read_text(encoding="utf-8")
BASH = shutil.which("bash")
SHELL = [BASH or "bash", "--noprofile", "--norc", "-eo", "pipefail"]
"""What GitHub makes of `shell: bash`."""
HOSTILE = (
    "$(touch pwned)`touch pwned`.json",
    "\"; touch pwned; '; touch pwned; \\.json",
    "-rf ${IFS} a=b *.json",
    "${{ github.token }} && touch pwned.json",
)

TRAINING = """
import tests.without_compiler, torch

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, WIDTH), torch.nn.Linear(WIDTH, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(1_000):
    optimizer.zero_grad()
    model(torch.randn(256, 64)).square().mean().backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def action():
    yaml = pytest.importorskip("yaml", reason="pyyaml is not installed")
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))


def values_of(expression, inputs, steps):
    """The value of an `${{ … }}` of the environment of a step."""
    (name,) = re.findall(r"^\$\{\{ ([\w.-]+) \}\}$", expression)
    kind, _, rest = name.partition(".")
    if kind == "inputs":
        return inputs[rest]
    if kind == "steps":
        step, _, output = rest.partition(".outputs.")
        return steps.get(step, {}).get(output, "")
    return {"github.event.pull_request.number": "7"}[name]


class Runner:
    """A folder of a job, the files that GitHub gives it, and traceprobe where the action has it."""

    def __init__(self, action, folder):
        self.action, self.folder = action, folder
        self.work = folder / "work"
        self.work.mkdir()
        for name in ("summary", "output"):
            (folder / name).touch()
        home = folder / "temp" / "traceprobe"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
        (site,) = home.glob("lib/python*/site-packages")
        paths = [str(ROOT), sysconfig.get_path("purelib")]
        (site / "found.pth").write_text("\n".join(paths), encoding="utf-8")
        program = home / "bin" / "traceprobe"
        program.write_text(f'#!/bin/sh\nexec {home}/bin/python -I -m traceprobe "$@"\n')
        program.chmod(0o755)
        tools = folder / "tools"
        tools.mkdir()
        (tools / "gh").write_text('#!/bin/sh\nfor a; do printf "%s\\0" "$a"; done > ../gh\n')
        (tools / "gh").chmod(0o755)
        self.environment = environment(
            PATH=f"{tools}{os.pathsep}{os.environ['PATH']}",
            RUNNER_TEMP=str(folder / "temp"),
            GITHUB_ACTION_PATH=str(FILE.parent),
            GITHUB_STEP_SUMMARY=str(folder / "summary"),
            GITHUB_OUTPUT=str(folder / "output"),
            GITHUB_REPOSITORY="o/r",
        )

    def run(self, *names, made=None, **given):
        """Run the steps of these names; exit codes by name, outputs by id of the step.

        `made` is what steps before have put out.
        """
        known = {name.replace("-", "_"): name for name in self.action["inputs"]}
        defaults = {k: v.get("default", "") for k, v in self.action["inputs"].items()}
        inputs = defaults | {known[k]: v for k, v in given.items()} | {"token": "secret"}
        codes, outputs = {}, dict(made or {})
        for step in self.action["runs"]["steps"]:
            if step["name"] not in names:
                continue
            (self.folder / "output").write_text("")
            own = {k: values_of(v, inputs, outputs) for k, v in step.get("env", {}).items()}
            script = self.folder / "script.sh"
            script.write_text(step["run"], encoding="utf-8")
            done = subprocess.run(
                [*SHELL, script],
                env=self.environment | own,
                cwd=self.work,
                capture_output=True,
                text=True,
            )
            codes[step["name"]] = done.returncode
            self.said = done.stdout + done.stderr
            if "id" in step:
                outputs[step["id"]] = self.outputs()
        return codes, outputs

    def outputs(self):
        text = (self.folder / "output").read_text(encoding="utf-8")
        several = {
            name: value for name, _, value in re.findall(r"(?sm)^(\w+)<<(\w+)\n(.*?)\n\2$", text)
        }
        rest = re.sub(r"(?sm)^\w+<<(\w+)\n.*?\n\1$", "", text)
        return several | dict(line.split("=", 1) for line in rest.splitlines() if line)

    @property
    def summary(self):
        return (self.folder / "summary").read_text(encoding="utf-8")


@pytest.fixture
def runner(action, tmp_path):
    if BASH is None:
        pytest.skip("there is no bash")
    return Runner(action, tmp_path)


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    slower = dataclasses.replace(LOOP, data_wait_ns=2 * LOOP.data_wait_ns)
    return write_trace(folder / "a.json"), write_trace(folder / "b.json", slower)


def test_no_expression_stands_in_a_script(action):
    for step in action["runs"]["steps"]:
        assert "${{" not in step["run"], step["name"]
        assert step["shell"] == "bash"
        assert "uses" not in step


def test_every_input_and_output_is_documented_and_used(action):
    rows = re.findall(r"^\| (`.*?`) \|", PAGE, re.M)
    named = [name for row in rows for name in re.findall(r"`([\w-]+)`", row)]
    assert named == [*action["inputs"], *action["outputs"]]
    used = FILE.read_text(encoding="utf-8").partition("\nruns:")[2]
    assert [name for name in action["inputs"] if f"inputs.{name}" not in used] == []


def test_the_workflows_of_the_page_are_yaml_and_name_its_inputs(action):
    import yaml

    first, second = (yaml.safe_load(t) for t in re.findall(r"```yaml\n(.*?)```", PAGE, re.S))
    (step,) = (s for s in first["jobs"]["step-time"]["steps"] if s.get("id") == "traceprobe")
    assert set(step["with"]) <= set(action["inputs"])
    assert (ROOT / step["uses"].partition("@")[0].split("/", 2)[2] / "action.yml") == FILE
    assert second["jobs"]


@pytest.fixture(scope="module")
def workflow():
    """The steps of the workflow with the command line, by what they are called."""
    yaml = pytest.importorskip("yaml", reason="pyyaml is not installed")
    second = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", PAGE, re.S)[1])
    steps = second["jobs"]["step-time"]["steps"]
    return {step.get("name", str(place)): step for place, step in enumerate(steps)}


def test_the_workflow_records_the_base_from_its_own_checkout(workflow):
    new, base = workflow["Record this change"], workflow["Record the base"]
    (checkout,) = (step["with"] for step in workflow.values() if "ref" in step.get("with", {}))
    assert checkout["ref"] == "${{ github.base_ref }}"
    assert base["working-directory"] == checkout["path"]
    assert new["run"].partition(" -- ")[2] == base["run"].partition(" -- ")[2] == "python train.py"
    installs = [step["run"] for step in workflow.values() if "pip install" in step.get("run", "")]
    assert any("traceprobe[torch] @ git+https://github.com/" in line for line in installs)


@pytest.mark.slow
@pytest.mark.usefixtures("pytorch")
@pytest.mark.parametrize(("width", "code"), [(64, 0), (1024, 1)], ids=["faster", "slower"])
def test_the_workflow_fails_where_the_script_got_slower(workflow, tmp_path, width, code):
    if BASH is None:
        pytest.skip("there is no bash")
    for folder in ("base-checkout", "tools"):
        (tmp_path / folder).mkdir()
    (tmp_path / "train.py").write_text(TRAINING.replace("WIDTH", str(width)))
    (tmp_path / "base-checkout" / "train.py").write_text(TRAINING.replace("WIDTH", "256"))
    program = tmp_path / "tools" / "traceprobe"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m traceprobe "$@"\n')
    program.chmod(0o755)
    folders = [str(program.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    codes = {}
    for name in ("Record this change", "Record the base", "Compare"):
        codes[name] = subprocess.run(
            [*SHELL, "-c", workflow[name]["run"]],
            env=environment(
                PATH=os.pathsep.join(folders), GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md")
            ),
            cwd=tmp_path / workflow[name].get("working-directory", "."),
            capture_output=True,
        ).returncode
    assert codes == {"Record this change": 0, "Record the base": 0, "Compare": code}
    summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert ("Gate failed" in summary) == (code == 1)


def test_an_analysis_says_what_bounds_the_run(runner, traces):
    codes, outputs = runner.run("Analyse", traces=f"\n{traces[0]}\n\n")
    assert codes == {"Analyse": 0}, runner.said
    found = outputs["analyse"]
    report = json.loads((runner.work / found["report"]).read_text())
    assert found["bound"] == report["verdict"]["bound"] == "io"
    assert float(found["confidence"]) == report["verdict"]["confidence"]
    assert float(found["step-ms"]) == pytest.approx(
        report["ranks"][0]["summary"]["step_ms"]["mean"]
    )
    assert "I/O-bound" in runner.summary
    assert (runner.work / "traceprobe-report" / "report.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "gate", "code", "decision"),
    [
        (0, "5%", 0, "pass"),
        (1, "5%", 1, "regression"),
        (1, "", 0, ""),
        (1, "; touch pwned", 2, None),
    ],
)
def test_a_gate_fails_a_job_that_got_slower(runner, traces, number, gate, code, decision):
    codes, outputs = runner.run(
        "Analyse", "Compare", traces=str(traces[number]), base=str(traces[0]), gate=gate
    )
    assert codes == {"Analyse": 0, "Compare": code}, runner.said
    assert outputs["compare"].get("decision") == decision
    assert ("slower" in runner.summary) == (number == 1 and code != 2)
    assert not (runner.work / "pwned").exists()


def test_a_limit_fails_a_job_whose_steps_are_longer(runner, traces):
    codes, made = runner.run("Analyse", traces=str(traces[0]))
    assert codes == {"Analyse": 0}
    for most, code in (("1000", 0), ("30.5", 1), ("$(touch pwned)", 1), ("nan", 1), ("-1", 1)):
        codes, _ = runner.run("Limit", made=made, max_step_ms=most)
        assert codes == {"Limit": code}, most
        assert ("::error::" in runner.said) == (code == 1)
    assert not (runner.work / "pwned").exists()
    codes, _ = runner.run("Limit", max_step_ms="1000")
    assert (codes, "has no steps" in runner.said) == ({"Limit": 1}, True)


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_the_name_of_a_file_is_never_a_command(runner, traces, name):
    (runner.work / name).write_bytes(Path(traces[0]).read_bytes())
    inputs = {"traces": name, "base": name, "output": f"out {name}"}
    codes, outputs = runner.run("Analyse", "Compare", "Comment", comment="true", **inputs)
    assert codes == {"Analyse": 0, "Compare": 0, "Comment": 0}, runner.said
    assert outputs["analyse"]["report"] == f"out {name}/report.json"
    assert not [path.name for path in runner.work.iterdir() if path.name.startswith("pwned")]
    called = (runner.folder / "gh").read_text().split("\0")
    assert called[:5] == ["pr", "comment", "7", "--repo", "o/r"]
    assert called[called.index("--body-file") + 1] == f"out {name}/compare.md"


def test_a_folder_with_line_feeds_adds_no_output(runner, traces):
    codes, outputs = runner.run("Analyse", traces=str(traces[0]), output="a\nbound=compute\nb")
    assert codes == {"Analyse": 0}
    assert outputs["analyse"]["bound"] == "io"
    assert outputs["analyse"]["report"] == "a\nbound=compute\nb/report.json"


def test_what_cannot_be_read_fails_the_job_with_a_line(runner):
    (runner.work / "no.json").write_text("nothing")
    codes, outputs = runner.run("Analyse", traces="no.json")
    assert codes == {"Analyse": 2}
    assert outputs["analyse"] == {}
    assert "no.json" in runner.said
    assert "Traceback" not in runner.said
    codes, _ = runner.run("Analyse", traces="\n")
    assert codes == {"Analyse": 2}
