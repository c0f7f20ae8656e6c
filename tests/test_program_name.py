"""What records call a program: its file, never its arguments or its environment."""

from __future__ import annotations

import shlex

import pytest

from traceprobe.capture.process.program_name import program_name
from traceprobe.cli.program import chosen

COMMANDS = {
    "python train.py": "train",
    "python3.12 -u -X dev /home/someone/project/train.py --token s3cret": "train",
    "python 'my training.py' --epochs 3": "my training",
    "python train --lr 0.1": "train",
    "./train.py --lr 0.1": "train",
    "python -m project.train --config s3cret.py": "train",
    "python -um project.train": "train",
    "python -mproject.train": "train",
    "python -W ignore train.py": "train",
    "python --check-hash-based-pycs=always train.py": "train",
    "python -c 'import os; key = \"s3cret\"' s3cret.py": "python",
    "python -uc s3cret": "python",
    "python -": "python",
    "python": "python",
    "env HF_TOKEN=s3cret python train.py": "train",
    "/usr/bin/env -i -u HOME -C /tmp HF_TOKEN=s3cret python3 train.py": "train",
    "HF_TOKEN=s3cret python train.py": "train",
    "HF_TOKEN=s3cret.py KEY='two words' ./launch.sh": "launch",
    "env HF_TOKEN=s3cret": "env",
    "env -S 'python train.py --token=s3cret.x'": "program",
    "HF_TOKEN=s3cret": "program",
    "torchrun --nproc-per-node 2 --log=s3cret.py train.py --token s3cret": "train",
    "python -m torch.distributed.run --nproc-per-node 2 train.py s3cret": "train",
    "accelerate launch --config_file s3cret.yaml train.py": "train",
    "uv run --with s3cret python -m project.train": "train",
    "conda run -n s3cret python train.py": "train",
    "nice -n 5 srun --comment=s3cret python train.py": "train",
    "sh -c 'HF_TOKEN=s3cret python train.py'": "sh",
    "sh -c 'python train.py; curl -H s3cret host.py'": "sh",
    "./run-it.sh s3cret": "run-it",
    "''": "program",
}


@pytest.mark.parametrize(("command", "name"), COMMANDS.items(), ids=COMMANDS)
def test_a_program_is_called_by_its_file(command, name):
    assert program_name(shlex.split(command)) == name


def test_every_command_names_its_program_so():
    program, name = chosen(None, ["env", "HF_TOKEN=s3cret", "python", "train.py"], "bench")
    assert (program[0], name) == ("env", "train")
