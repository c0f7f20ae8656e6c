"""Communication taken out of programs that do not use DistributedDataParallel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

from tests.conftest import ROOT
from traceprobe.capture.oracle.blocks import Unavailable

PROGRAM = """
import json, sys
from pathlib import Path
import tests.without_compiler, torch
import torch.distributed as dist
from traceprobe.capture.oracle import ranks, wire

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}/store", rank=rank, world_size=2)
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
optimizer = torch.optim.Adam(model.parameters())
apart = dist.new_group([0])

def summed():
    value = torch.ones(1) * (rank + 1)
    dist.all_reduce(value)
    return value.item()

def train():
    optimizer.zero_grad()
    model(torch.randn(4, 2)).sum().backward()
    optimizer.step()

def state():
    values = [*model.state_dict().values()]
    values += [v for each in optimizer.state.values() for v in each.values()]
    return [value.clone() for value in values]

train()
silent = wire.Wire()
found = {"before": summed(), "groups": len(silent._groups), "cut": [], "agreed": []}
found["moved"], found["given back"] = [], []

def same(before):
    return all(torch.equal(a, b) for a, b in zip(before, state()))

for _ in range(2):
    train()  # what is trained between the trials stays
    first = state()
    with silent.taken_out():
        found["cut"].append(summed())
        train()
        found["agreed"].append(ranks.agreed(10 * rank))
        ranks.synchronize()
        found["moved"].append(not same(first))
    found["again"] = summed()
    found["given back"].append(same(first))
try:
    with silent.taken_out():
        train()
        raise KeyError
except KeyError:
    found["after an error"] = [summed(), same(first)]
found["groups of another"] = len(wire.Wire()._groups)
Path(sys.argv[2], f"{rank}.json").write_text(json.dumps(found))
dist.barrier()
"""


@pytest.mark.slow
def test_collectives_of_a_silent_wire_end_at_once_and_all_is_as_before(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    command = [sys.executable, str(program)]
    both = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for rank in range(2)
    ]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    for rank in range(2):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        own = rank + 1.0
        assert found == {
            "before": 3.0,
            "groups": 1,  # a group of one rank sends nothing anyway
            "cut": [own, own],
            "agreed": [10, 10],
            "again": 3.0,
            "moved": [True, True],
            "given back": [True, True],
            "after an error": [3.0, True],
            "groups of another": 1,  # that in which ranks meet stays
        }


def test_what_cannot_be_taken_out_says_why(monkeypatch):
    from traceprobe.capture.oracle import wire

    monkeypatch.setattr(wire.ranks, "meet_apart", lambda: None)
    monkeypatch.setattr(wire, "_groups", list)
    with pytest.raises(Unavailable, match="no process group"):
        wire.Wire().check()
    monkeypatch.setattr(wire, "_groups", lambda: [object()])
    monkeypatch.setattr(wire, "_silent", lambda _: None)
    with pytest.raises(Unavailable, match="no backend"):
        wire.Wire().check()


def test_a_copy_of_what_is_trained_has_to_fit_beside_the_program(monkeypatch):
    import torch

    from traceprobe.capture.oracle import wire

    weights = torch.zeros(1_000_000)
    monkeypatch.setattr(wire, "_trained", lambda: [weights])
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(wire, "_free_bytes", lambda: 15_999_999)
    with pytest.raises(Unavailable, match="half of the host's free memory"), wire._given_back():
        pass
    monkeypatch.setattr(wire, "_free_bytes", lambda: 16_000_000)
    with wire._given_back():
        weights.fill_(1)
    assert not weights.any()
