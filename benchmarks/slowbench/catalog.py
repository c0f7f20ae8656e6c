"""The programs with nothing left to mend, and the ways in which causes get into them.

A program of `benchmarks/training_programs` is healthy with the options here. A way is other
options, or a line that is put in. The line that costs the time has the comment `# slow: CAUSE` in
the program; what is put in gets it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parents[1] / "training_programs"
PERIOD = 3
"""Steps between two of what is done now and then."""


@dataclass(frozen=True)
class Range:
    """A number that is drawn evenly between two; a whole one where both are, and of `step`."""

    low: float
    high: float
    step: int = 1

    def draw(self, source: random.Random) -> float:
        """One of them."""
        if isinstance(self.low, int) and isinstance(self.high, int):
            return source.randrange(self.low, self.high + 1, self.step)
        return round(source.uniform(self.low, self.high), 3)


def drawn(options: Mapping[str, Any], source: random.Random) -> dict[str, Any]:
    """Options with a number for each range."""
    return {k: v.draw(source) if isinstance(v, Range) else v for k, v in options.items()}


@dataclass(frozen=True)
class Way:
    """A way in which a cause gets into a program.

    Args:
        options: of the slow form, beside the healthy ones.
        both: of both forms.
        lines: what is put in, each with the beginning of the statement that it goes before; {level}
            is drawn from `level`, {pass} is the program's forward pass with a share of a batch.
        helpers: lines that both forms get, before the model is made.
        level: how strong it is. small: the same on a CPU; options, where there are `options`.
        period: steps after which the slow form repeats itself.
        on_cpu: whether a CPU feels it.
        neighbour: whether another process computes beside the slow form.
    """

    cause: str
    options: Mapping[str, Any] = field(default_factory=dict)
    both: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[tuple[str, str], ...] = ()
    helpers: tuple[str, ...] = ()
    level: Range | None = None
    small_level: Range | None = None
    small: Mapping[str, Any] = field(default_factory=dict)
    period: int = 1
    on_cpu: bool = False
    neighbour: bool = False


@dataclass(frozen=True)
class Program:
    """A program.

    Args:
        healthy: its options on a GPU. small: beside those, on a CPU.
        forward: the beginning of the statement with the forward pass, and that pass with a share of
            the batch.
        ways: those of this program alone. without: causes whose usual line is not for it.
        needs: modules that it imports, beside PyTorch and NumPy.
    """

    name: str
    healthy: Mapping[str, Any]
    small: Mapping[str, Any]
    forward: tuple[str, str]
    ways: tuple[Way, ...] = ()
    without: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """Its text."""
        return (PROGRAMS / f"{self.name}.py").read_text(encoding="utf-8")

    @property
    def all_ways(self) -> tuple[Way, ...]:
        """Its own, and the lines that go into any program."""
        return (*self.ways, *(way for way in ANYWHERE if way.cause not in self.without))


BACKWARD, UPDATE = "loss.backward()", "optimizer.step()"
PARAMETERS = 'optimizer.param_groups[0]["params"]'
COUNTED = ("import itertools", "made = itertools.count(1)")
ANYWHERE = (
    Way("item-each-step", lines=((BACKWARD, "seen = loss.item()"),)),
    Way(
        "item-each-step",
        lines=((UPDATE, f"norms = [p.grad.norm().item() for p in {PARAMETERS}[:{{level}}]]"),),
        level=Range(16, 64),
    ),
    Way(
        "print-each-step",
        lines=((UPDATE, f"print([p.grad.norm() for p in {PARAMETERS}[:{{level}}]])"),),
        level=Range(4, 24),
        small_level=Range(8, 24),
        on_cpu=True,
    ),
    Way(
        "python-between-launches",
        lines=((BACKWARD, "weighed = sum(i * i for i in range({level}))"),),
        level=Range(100_000, 320_000),
        small_level=Range(100_000, 400_000),
        on_cpu=True,
    ),
    Way(
        "many-tiny-kernels",
        lines=(
            (
                UPDATE,
                f"[p.grad.mul_(0.5).mul_(2.0) for _ in range({{level}}) for p in {PARAMETERS}]",
            ),
        ),
        level=Range(3, 8),
    ),
    Way(
        "gc-pauses",
        lines=((UPDATE, "gc.collect()"),),
        helpers=("import gc", "heap = [[n] for n in range({level})]"),
        level=Range(150_000, 600_000),
        small_level=Range(200_000, 600_000),
        on_cpu=True,
    ),
    Way("empty-cache-each-step", lines=((UPDATE, "torch.cuda.empty_cache()"),)),
    Way(
        "blocking-sync",
        lines=((BACKWARD, "torch.cuda.synchronize()"), (UPDATE, "torch.cuda.synchronize()")),
    ),
    Way(
        "periodic-checkpoint",
        lines=(
            (
                UPDATE,
                f"_ = next(made) % {PERIOD} or torch.save({PARAMETERS}[-{{level}}:], saved)",
            ),
        ),
        helpers=(*COUNTED, "import tempfile", "saved = tempfile.mkdtemp() + '/saved'"),
        level=Range(4, 20),
        small_level=Range(8, 40),
        period=PERIOD,
        on_cpu=True,
    ),
    Way(
        "periodic-evaluation",
        lines=(
            ("{forward}", f"_ = next(made) % {PERIOD} or evaluate({{level}}, lambda: {{pass}})"),
        ),
        helpers=(
            *COUNTED,
            "evaluate = torch.no_grad()(lambda n, call: [call() for _ in range(n)])",
        ),
        level=Range(1, 4),
        small_level=Range(1, 4),
        period=PERIOD,
        on_cpu=True,
    ),
    Way(
        "needless-work",
        lines=(("{forward}", "unused = {pass}"),),
        level=Range(0.3, 1.0),
        small_level=Range(0.5, 1.0),
        on_cpu=True,
    ),
    Way("clock-drop", level=Range(0.2, 0.8), neighbour=True),
)


def option(cause: str, **options: Any) -> Way:
    """Other options, on a GPU alone."""
    return Way(cause, options)


PIECEWISE = option("piecewise-optimizer", fused=False, foreach=False)
CATALOG = (
    Program(
        "photos",
        {
            "batch": Range(256, 384, 32),
            "size": 128,
            "photos": 512,
            "as_bytes": True,
            "workers": 8,
            "pin": True,
            "accuracy_each_step": False,
            "channels_last": True,
            "fused": True,
            "decoded": True,
        },
        {"batch": 8, "size": 48, "photos": 32, "workers": 2, "bf16": False},
        ("scores = network(images)", "network(images[: int({share} * len(images))])"),
        (
            Way(
                "slow-decode",
                {"decoded": False, "detail": Range(1.1, 1.6)},
                small={"detail": 12.0},
                on_cpu=True,
            ),
            Way("few-workers", {"workers": 1}),
            Way(
                "no-workers",
                {"workers": 0},
                small={"workers": 0},
                on_cpu=True,
            ),
            option("pageable-copies", pin=False),
            option("no-prefetch", copies_waited_for=True),
            Way("small-files", {"pieces": Range(4, 12)}, small={"pieces": 60}, on_cpu=True),
            Way("slow-collate", {"collate_growing": True}),
            Way("uneven-samples", {"huge": Range(2500, 5000)}, small={"huge": 2500}, on_cpu=True),
            option("contiguous-layout", channels_last=False),
            option("item-each-step", accuracy_each_step=True),
        ),
        needs=("torchvision", "PIL"),
    ),
    Program(
        "streets",
        {
            "batch": 8,
            "size": 160,
            "width": Range(48, 80, 16),
            "workers": 10,
            "pin": True,
            "confusion_on_host": False,
            "channels_last": True,
            "fused": True,
        },
        {"batch": 2, "size": 32, "width": 4, "workers": 1, "bf16": False},
        ("scores = network(pictures)", "network(pictures[: int({share} * len(pictures))])"),
        (
            Way("few-workers", {"workers": Range(1, 3)}),
            Way("no-workers", {"workers": 0}, small={"workers": 0}, on_cpu=True),
            option("pageable-copies", pin=False),
            option("no-prefetch", copies_waited_for=True),
            option("contiguous-layout", channels_last=False),
            option("no-autocast", bf16=False),
            Way("item-each-step", {"confusion_on_host": True}),
        ),
    ),
    Program(
        "volumes",
        {
            "batch": 2,
            "size": 64,
            "width": Range(32, 48, 8),
            "workers": 8,
            "pin": True,
            "dice_each_step": False,
            "bf16": True,
            "channels_last": True,
            "fused": True,
        },
        {"batch": 2, "size": 16, "width": 4, "workers": 1, "bf16": False},
        ("scores = network(volumes)", "network(volumes[: max(1, int({share} * len(volumes)))])"),
        (
            Way("few-workers", {"workers": 1}),
            Way("no-workers", {"workers": 0}, small={"workers": 0}, on_cpu=True),
            option("pageable-copies", pin=False),
            option("no-autocast", bf16=False),
            option("contiguous-layout", channels_last=False),
        ),
    ),
    Program(
        "clicks",
        {
            "batch": Range(12288, 20480, 2048),
            "tables": Range(8, 14),
            "count": 2_000_000,
            "tf32": True,
            "width": 64,
            "workers": 6,
            "by_batch": True,
            "auc_each_step": False,
            "fused": True,
            "pin": True,
        },
        {"batch": 128, "tables": 4, "rows": 200, "width": 4, "workers": 1, "count": 20_000},
        (
            "scores = network(dense, sparse)",
            "network(dense[: int({share} * len(dense))], sparse[: int({share} * len(dense))])",
        ),
        (
            Way("few-workers", {"workers": 1}),
            Way("no-workers", {"workers": 0}),
            option("fp32-matmul", tf32=False),
            Way("slow-collate", {"by_batch": False}, small={"by_batch": False}, on_cpu=True),
            option("pageable-copies", pin=False),
            PIECEWISE,
        ),
    ),
    Program(
        "gpt",
        {
            "batch": Range(8, 16, 2),
            "length": 1024,
            "width": Range(768, 1024, 128),
            "heads": 8,
            "layers": 3,
            "vocabulary": 16384,
            "sdpa": True,
            "fused": True,
            "log_each_step": False,
            "tf32": True,
        },
        {
            "batch": 4,
            "length": 64,
            "width": 64,
            "heads": 4,
            "layers": 2,
            "vocabulary": 512,
            "bf16": False,
        },
        (
            "loss = network(tokens, targets)",
            "network(*(part[: max(1, int({share} * o.batch))] for part in (tokens, targets)))",
        ),
        (
            Way("unfused-attention", {"sdpa": False}),
            Way("unfused-pointwise", {"gelu_by_hand": True}),
            Way("recomputation", {"checkpointed": True}, small={"checkpointed": True}, on_cpu=True),
            Way("double-precision-loss", {"double_loss": True}),
            option("unaligned-shapes", vocabulary=16383),
            option("no-autocast", bf16=False),
            option("fp32-matmul", bf16=False, tf32=False),
            PIECEWISE,
            Way("graph-breaks", {"graph_breaks": True}, {"compiled": True}),
        ),
    ),
    Program(
        "masked_words",
        {
            "batch": Range(32, 64, 8),
            "length": 256,
            "width": 768,
            "layers": 3,
            "vocabulary": 8192,
            "tf32": True,
            "bf16": True,
            "checkpointed": False,
            "log_each_step": False,
            "fused": True,
        },
        {
            "batch": 4,
            "length": 32,
            "width": 128,
            "layers": 2,
            "vocabulary": 512,
            "bf16": False,
        },
        (
            "scores = network(words",
            "network(words[: int({share} * len(words))])",
        ),
        (
            Way("recomputation", {"checkpointed": True}, small={"checkpointed": True}, on_cpu=True),
            Way("double-precision-loss", {"double_loss": True}),
            option("unaligned-shapes", vocabulary=8191),
            option("no-autocast", bf16=False),
            option("fp32-matmul", bf16=False, tf32=False),
            PIECEWISE,
        ),
    ),
    Program(
        "gradient_norms",
        {
            "batch": Range(256, 448, 32),
            "size": 128,
            "model": "resnet18",
            "norms_on_host": False,
            "fused": True,
            "channels_last": True,
        },
        {"batch": 4, "size": 48, "bf16": False},
        ("scores = network(batch)", "network(batch[: int({share} * len(batch))])"),
        (
            option("item-each-step", norms_on_host=True),
            option("contiguous-layout", channels_last=False),
            option("no-autocast", bf16=False),
            PIECEWISE,
        ),
        needs=("torchvision",),
    ),
    Program(
        "cells",
        {
            "batch": Range(512, 1024, 64),
            "length": 12,
            "width": 1024,
            "vocabulary": 8192,
            "cells": False,
            "log_each_step": False,
            "clip_by_hand": False,
            "fused": True,
            "tf32": True,
        },
        {"batch": 8, "length": 12, "width": 64, "vocabulary": 200},
        ("scores = network(tokens)", "network(tokens[: int({share} * len(tokens))])"),
        (
            Way("many-tiny-kernels", {"cells": True}, small={"cells": True}, on_cpu=True),
            option("fp32-matmul", tf32=False),
        ),
    ),
    Program(
        "diffusion",
        {
            "batch": Range(24, 48, 8),
            "size": 64,
            "width": 96,
            "noise_on_host": False,
            "average_one_by_one": False,
            "bf16": True,
            "channels_last": True,
            "fused": True,
        },
        {"batch": 1, "size": 8, "width": 8, "bf16": False},
        (
            "taken = network(mixed, t)",
            "network(*(part[: max(1, int({share} * o.batch))] for part in (mixed, t)))",
        ),
        (
            Way(
                "many-tiny-kernels",
                {"average_one_by_one": True},
                small={"average_one_by_one": True},
                on_cpu=True,
            ),
            option("contiguous-layout", channels_last=False),
            option("no-autocast", bf16=False),
            PIECEWISE,
        ),
    ),
    Program(
        "neighbours",
        {
            "nodes": 100_000,
            "features": 256,
            "batch": Range(512, 1536, 128),
            "fanout": 12,
            "width": 1024,
            "features_on_gpu": True,
            "resident": True,
            "log_each_step": False,
            "tf32": True,
            "fused": True,
        },
        {"nodes": 2000, "features": 32, "batch": 64, "fanout": 6, "width": 64},
        ("scores = second(top", "second(relu(first(x, x[:, None])))"),
        (option("fp32-matmul", tf32=False),),
        without=("needless-work", "periodic-evaluation"),
    ),
    Program(
        "patches",
        {
            "batch": Range(64, 128, 16),
            "size": 224,
            "width": 384,
            "heads": 6,
            "layers": 5,
            "tf32": True,
            "bf16": True,
            "by_hand": False,
            "sdpa": True,
            "fused": True,
        },
        {"batch": 4, "size": 64, "width": 64, "heads": 2, "layers": 2, "bf16": False},
        (
            "scores = network(images[chosen])",
            "network(images[chosen[: int({share} * len(chosen))]])",
        ),
        (
            Way("unfused-pointwise", {"by_hand": True}, small={"by_hand": True}, on_cpu=True),
            Way("unfused-attention", {"sdpa": False}),
            Way("recomputation", {"checkpointed": True}, small={"checkpointed": True}, on_cpu=True),
            option("no-autocast", bf16=False),
            option("fp32-matmul", bf16=False, tf32=False),
            PIECEWISE,
        ),
    ),
    Program(
        "translator",
        {
            "batch": Range(48, 96, 8),
            "length": 128,
            "width": 512,
            "layers": 2,
            "vocabulary": 16384,
            "checkpointed": False,
            "smoothed_by_hand": False,
            "clip_by_hand": False,
            "fused": True,
            "log_each_step": False,
            "tf32": True,
        },
        {"batch": 4, "length": 16, "width": 64, "layers": 1, "vocabulary": 128, "bf16": False},
        (
            "scores = network(source, target)",
            "network(*(part[: max(1, int({share} * o.batch))] for part in (source, target)))",
        ),
        (
            Way("recomputation", {"checkpointed": True}, small={"checkpointed": True}, on_cpu=True),
            Way(
                "unfused-pointwise",
                {"smoothed_by_hand": True},
                small={"smoothed_by_hand": True},
                on_cpu=True,
            ),
            option("unaligned-shapes", vocabulary=16383),
            option("no-autocast", bf16=False),
            option("fp32-matmul", bf16=False, tf32=False),
            PIECEWISE,
        ),
    ),
)
BY_NAME = {program.name: program for program in CATALOG}
