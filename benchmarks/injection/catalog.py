"""The training programs that faults are put into, and with what options they run."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

PROGRAMS = Path(__file__).with_name("programs")


@dataclass(frozen=True)
class Program:
    """A program of `programs/`, which knows nothing of traceprobe.

    Args:
        script: its file, in a folder of its own where it has modules.
        needs: package that it is written with, beside PyTorch.
        gpu: options on a GPU, where the host is about as busy as the GPU.
        heavy: options on a GPU that then has more to do than the host.
        loads: whether a `DataLoader` feeds it, with `--workers`.
    """

    name: str
    script: str
    gpu: tuple[str, ...]
    heavy: tuple[str, ...]
    needs: str = "torch"
    loads: bool = False

    @property
    def folder(self) -> str | None:
        """Its own folder in `programs/`, None where it is one file."""
        return self.script.partition("/")[0] if "/" in self.script else None

    @property
    def missing(self) -> str | None:
        """Why it cannot run here."""
        return None if find_spec(self.needs) else f"{self.needs} is not installed"


def _options(text: str) -> tuple[str, ...]:
    return tuple(text.split())


CATALOG = (
    Program(
        "nanogpt",
        "gpt/train.py",
        _options("--n-layer 4 --n-embd 256 --batch-size 8 --block-size 256"),
        _options("--n-layer 6 --n-embd 1024 --batch-size 24 --block-size 1024"),
    ),
    Program(
        "cnn-amp",
        "cnn/train.py",
        _options("--batch-size 64 --width 32"),
        _options("--batch-size 256 --width 384"),
        loads=True,
    ),
    Program(
        "gan",
        "gan.py",
        _options("--batch-size 64 --nf 32"),
        _options("--batch-size 256 --nf 256"),
    ),
    Program(
        "lstm",
        "lstm.py",
        _options("--nhid 256 --batch-size 32 --bptt 32"),
        _options("--nhid 2048 --batch-size 256 --bptt 64"),
    ),
    Program(
        "gcn",
        "gcn.py",
        _options("--nodes 20000 --hidden 128"),
        _options("--nodes 200000 --hidden 1024 --degree 16"),
    ),
    Program(
        "diffusion",
        "diffusion/train_ddpm.py",
        _options("--width 32 --size 32 --batch-size 16"),
        _options("--width 160 --size 64 --batch-size 48"),
        loads=True,
    ),
    Program(
        "two-tower",
        "two_tower/main.py",
        _options("--width 128 --size 64 --batch-size 32"),
        _options("--width 1024 --size 128 --batch-size 192"),
        loads=True,
    ),
    Program(
        "reinforce",
        "reinforce.py",
        _options("--envs 16 --length 32"),
        _options("--envs 64 --length 64 --hidden 16384"),
    ),
    Program(
        "hf-trainer",
        "hf_trainer/run_mlm.py",
        _options("--hidden 128 --layers 2 --length 64 --batch-size 16"),
        _options("--hidden 1024 --layers 8 --length 256 --batch-size 48"),
        needs="transformers",
        loads=True,
    ),
    Program(
        "lightning-vae",
        "lightning_vae/train.py",
        _options("--width 32 --batch-size 64"),
        _options("--width 768 --batch-size 384"),
        needs="lightning",
        loads=True,
    ),
    Program(
        "timm",
        "timm_finetune.py",
        _options("--model resnet18 --size 64 --batch-size 16"),
        _options("--model resnet50 --size 160 --batch-size 96"),
        needs="timm",
        loads=True,
    ),
    Program(
        "accelerate-dlrm",
        "accelerate_tabular.py",
        _options("--batch-size 256"),
        _options("--batch-size 8192 --hidden 8192 --fields 24"),
        needs="accelerate",
        loads=True,
    ),
)
