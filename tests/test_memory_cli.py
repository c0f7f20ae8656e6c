"""`traceprobe memory` from the outside: real programs, simulated in processes of their own."""

from __future__ import annotations

import json
import sys
import textwrap

import pytest

from tests.cli_runner import spawn
from traceprobe.capture.memory.memory_prediction_session import NO_MODEL
from traceprobe.records.memory import read

pytestmark = pytest.mark.usefixtures("pytorch")

WIDTH = 256
PROGRAM = f"""
import tests.without_compiler, torch
from traceprobe.capture import recorder

torch.set_num_threads(1)
model = torch.nn.Linear({WIDTH}, {WIDTH}, bias=False)
optimizer = torch.optim.Adam(model.parameters(), fused=True)
record = recorder()
HAND_OVER
for number, batch in enumerate(record.steps([torch.ones(8, {WIDTH})])):
    with record.phase("forward"):
        loss = model(batch).square().mean()
    with record.phase("backward"):
        loss.backward()
    with record.phase("optimizer"):
        optimizer.step()
        optimizer.zero_grad()
    AT_END
print("after the loop")
"""
PLAIN = """
import torch

model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(1000):
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
print("trained to the end")
"""


@pytest.fixture
def predict(tmp_path):
    """Runs in a folder of its own."""

    def run(*arguments):
        return spawn("memory", *arguments, cwd=tmp_path)

    run.folder = tmp_path
    return run


def program(folder, text=PROGRAM, hand_over="record.memory(model, optimizer)", at_end="pass"):
    path = folder / "train.py"
    text = textwrap.dedent(text).replace("HAND_OVER", hand_over).replace("AT_END", at_end)
    path.write_text(text)
    return "--", sys.executable, path


@pytest.mark.slow
def test_a_workload(predict, tmp_path):
    data = ("--data-folder", tmp_path / "data")
    done = predict("--workload", "gpt2", "--size", "tiny", "--batch-size", "2", *data).expect(0)
    assert "of GPU memory" in done.out
    assert "optimizer state" in done.out
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.slow
def test_a_program_of_the_user_s_own_in_json(predict):
    done = predict("-o", "-", *program(predict.folder)).expect(0)
    found = read(json.loads(done.out))
    matrix = WIDTH * WIDTH * 4
    assert found.predicted.most.weights == matrix
    assert found.predicted.most.gradients == matrix
    assert found.predicted.most.optimizer_state == 2 * matrix + 512
    assert (found.optimizer, found.implementation) == ("Adam", "fused")
    assert found.measured is None


@pytest.mark.slow
def test_a_file_is_written_once(predict):
    arguments = ("-q", "-o", "step.json", *program(predict.folder))
    assert predict(*arguments).expect(0).out == ""
    assert read(json.loads((predict.folder / "step.json").read_text())) is not None
    assert "step.json" in predict(*arguments).expect(2).err
    predict("-f", *arguments).expect(0)


@pytest.mark.slow
def test_a_program_that_hands_nothing_over_is_told_how(predict):
    done = predict(*program(predict.folder, hand_over=""))
    assert done.code == 2
    assert NO_MODEL in done.err


@pytest.mark.slow
def test_a_program_without_the_recorder_is_refused_at_its_first_step(predict):
    done = predict(*program(predict.folder, PLAIN))
    assert done.code == 2
    assert NO_MODEL in done.err
    assert "trained to the end" not in done.out + done.err


@pytest.mark.slow
def test_a_program_that_looks_at_its_data_fails_with_its_own_words(predict):
    done = predict(*program(predict.folder, at_end="loss.detach().numpy()"))
    assert done.code == 2
    assert "the program ended with status 1" in done.err


@pytest.mark.slow
def test_a_loader_without_batches_is_no_loop(predict):
    text = PROGRAM.replace("[torch.ones(8, 256)]", "[]")
    assert "must be its training loop" in predict(*program(predict.folder, text)).expect(2).err


def test_nothing_to_predict(predict):
    assert "nothing to run" in predict().expect(2).err
