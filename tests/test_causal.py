"""`traceprobe bench --causal`: programs whose critical regions are known, and what is told."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from statistics import median

import pytest

from benchmarks import causal as causal_page
from tests.causal_records import DEVICE_BOUND, HOST_BOUND, make_causal, make_region
from tests.cli_runner import environment, write_trace
from tests.conftest import ROOT
from tests.report_factory import make_report
from traceprobe.capture.oracle.probe_plan import RankProbes
from traceprobe.capture.oracle.probe_record import summarize_probes
from traceprobe.errors import DamagedRecord
from traceprobe.records.causal import Causal, Slope
from traceprobe.render import document_of
from traceprobe.render import terminal as document_terminal

LOOP = """
import sys, threading, time
import tests.without_compiler, torch
from torch.utils.data import DataLoader, Dataset

mode = sys.argv[1]
torch.set_num_threads(1)

class Data(Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        time.sleep(0.03 if mode == "loader" else 0)
        return torch.randn(16)

loader = DataLoader(Data(), batch_size=1, num_workers={"host": 0}.get(mode, 2))
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for batch in loader:
    if mode == "thread":
        other = threading.Thread(target=time.sleep, args=(0.02,))
        other.start()
    if mode == "host":
        time.sleep(0.01)
    model(batch).square().mean().backward()
    if mode == "thread":
        other.join()
    optimizer.step()
    optimizer.zero_grad()
"""
FAST = ("--trials", "3", "--seconds", "0.2", "--warmup", "2")


@pytest.fixture
def bench(tmp_path, pytorch):
    def run(text, *arguments, options=FAST):
        script = tmp_path / "train.py"
        script.write_text(textwrap.dedent(text))
        command = [sys.executable, "-m", "traceprobe", "bench", "--causal", *options, "-o", "-"]
        return subprocess.run(
            [*command, "--", sys.executable, str(script), *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env=environment(),
        )

    return run


HOST = [("between", "host"), ("forward", "host"), ("backward", "host"), ("optimizer", "host")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "critical", "hidden"),
    [
        ("host", [*HOST, ("loader", "host")], []),
        ("loader", [("loader", "workers")], HOST),
        # What follows the start of the other thread is hidden by it until it is joined.
        ("thread", [("between", "host"), ("optimizer", "host")], HOST[1:3]),
    ],
)
def test_known_regions_are_critical_or_hidden(bench, mode, critical, hidden):
    done = bench(LOOP, mode)
    assert done.returncode == 0, done.stderr
    found = {(r.region, r.resource): r for r in Causal.from_json(done.stdout).regions}
    # Others may compute on this machine meanwhile, which disturbs some of the blocks.
    for places, opposite in ((critical, "hidden"), (hidden, "critical")):
        assert not [place for place in places if found[place].judgement == opposite]
    assert median(found[place].slope.value for place in critical) > 0.5
    assert median([0.0, *(found[place].slope.value for place in hidden)]) < 0.5


@pytest.mark.slow
def test_a_program_that_catches_its_end_finds_everything_as_it_was(bench, tmp_path):
    mark = tmp_path / "after.json"
    done = bench(
        f"""
        import json, torch
        from torch.nn.modules import module
        from torch.optim import optimizer as optimizers
        from traceprobe.capture.loader.batch_feed import feed

        backward = torch.autograd.backward
        model = torch.nn.Linear(4, 4)
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        try:
            while True:
                model(torch.randn(2, 4)).sum().backward()
                sgd.step()
        except SystemExit:
            pass
        same = [
            torch.autograd.backward is backward,
            feed.source is None,
            not module._global_forward_pre_hooks,
            not optimizers._global_optimizer_pre_hooks,
        ]
        open({str(mark)!r}, "w").write(json.dumps(same))
        """,
        options=("--trials", "2", "--seconds", "0.02", "--warmup", "1"),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(mark.read_text()) == [True] * 4
    causal = Causal.from_json(done.stdout)
    assert causal.absent["loader"] == "no DataLoader of PyTorch gives the steps their batches"
    assert not [*tmp_path.glob("*/plan.json")]


@pytest.mark.slow
def test_a_program_that_ends_early_is_told_so(bench):
    done = bench(
        """
        import torch
        model = torch.nn.Linear(4, 4)
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(20):
            model(torch.randn(2, 4)).sum().backward()
            sgd.step()
        """
    )
    assert done.returncode == 2
    assert "the program ended after 20 steps, and its trials need about " in done.stderr


def rank(scale=1.0, **given):
    """Blocks of two rounds, with a slope of 0.5 and hooks of 1 ms."""
    steps = {"bare": [0.1, 0.2], "base/1": [0.101, 0.201]}
    steps |= {name: [0.101 + 0.5 * d, 0.201 + 0.5 * d] for name, d in given.items()}
    return RankProbes(
        step_s={name: [scale * s for s in seconds] for name, seconds in steps.items()},
        given_s={name: [d, d] for name, d in given.items()},
        steps=dict.fromkeys(steps, 9),
        absent={},
        workers=0,
        workload={"name": "x"},
        hardware={},
        libraries={},
        flags={},
    )


GIVEN = {"forward/host/1": 0.01, "forward/host/2": 0.02}


def test_the_blocks_of_a_rank_become_slopes():
    made = summarize_probes({0: rank(**GIVEN)})
    assert Causal.from_json(made.to_json()) == made
    assert (made.step_ms, made.hooks_ms.value) == pytest.approx((150, 1))
    (region,) = made.regions
    assert (region.region, region.resource, region.judgement) == ("forward", "host", "partly")
    assert region.slope.value == pytest.approx(0.5)
    assert [b.delay_ms for b in region.blocks] == pytest.approx([0, 10, 20])


def test_the_slowest_rank_sets_the_step():
    made = summarize_probes({0: rank(**GIVEN), 1: rank(2.0, **GIVEN)})
    assert made.ranks == 2
    assert made.step_ms == pytest.approx(300)
    assert made.regions[0].slope.value == pytest.approx(1.0)


def test_collectives_are_compared_with_their_own_steps_without_delay():
    given = {"collectives/network/0": 0.0, "collectives/network/1": 0.01}
    (region,) = summarize_probes({0: rank(**given)}).regions
    assert [block.delay_ms for block in region.blocks] == pytest.approx([0, 10])


def test_the_terminal_fits():
    many = DEVICE_BOUND | {
        ("backward", "host"): 0.0,
        ("optimizer", "host"): 0.0,
        ("collectives", "network"): 0.5,
    }
    lines = document_terminal.render(
        document_of(make_causal(many)), width=80, color=False
    ).splitlines()
    assert len(lines) <= 24
    assert any("forward on the device" in line and "0.99" in line for line in lines)


@pytest.mark.parametrize(
    "changes",
    [
        {"rounds": 0},
        {"step_ms": 0.0},
        {"workers": -1},
        {"hooks_ms": Slope(value=1.0, low=2.0, high=3.0)},
        {"regions": [make_region("forward", "host", 1.0)] * 2},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_probes_that_contradict_themselves_are_refused(changes):
    with pytest.raises(DamagedRecord):
        Causal.from_json(make_causal(**changes).to_json())


def test_a_report_holds_the_probes_and_says_where_they_differ(cli):
    trace = write_trace(cli.folder / "run.json")
    bound = json.loads(cli("analyze", trace, "-o", "-").expect(0).out)["verdict"]["bound"]
    assert bound == "io"
    (cli.folder / "causal.json").write_text(make_causal().to_json())
    done = cli("analyze", trace, "--causal", "causal.json", "-o", "out.json", "-o", "out.html")
    done.expect(0)
    report = json.loads((cli.folder / "out.json").read_text())
    assert report["causal"] == json.loads(make_causal().to_json())
    assert "What one more millisecond costs" in (cli.folder / "out.html").read_text()
    (cli.folder / "bench.json").write_text("{}")
    assert "is not probes" in cli("analyze", trace, "--causal", "bench.json").expect(2).err


def test_a_verdict_that_probes_contradict_is_said_in_the_report():
    page = make_report("compute", causal=make_causal(HOST_BOUND)).to_html()
    assert "They disagree" in page


def test_few_trials_are_refused_before_anything_runs(cli):
    done = cli("bench", "--causal", "--trials", "1", "--", sys.executable, "-c", "1").expect(2)
    assert "--trials 2" in done.err


def test_the_page_of_known_programs_is_made_of_its_record():
    record = json.loads((ROOT / "docs" / "validation" / "causal.json").read_text())
    assert (ROOT / "docs" / "validation" / "causal.md").read_text() == causal_page.page(record)
    assert sum(len(scenario["regions"]) for scenario in record["scenarios"]) >= 30
