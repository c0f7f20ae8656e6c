"""The training programs, and what each runs like with causes of its slowness taken away.

A program is a file of `benchmarks/training_programs/`: `Options` with the defaults of the program
as it is, `SMALL` options for a CPU, and `train(options)`, which goes on for ever and yields after
each step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parents[1] / "training_programs"


@dataclass(frozen=True)
class Play:
    """The change of the replay that stands for a change of a program.

    Args:
        removed, overlapped: as in `traceprobe.replay.scenario.Changes`.
        faster: parts that get faster; how much is taken from a trace with the change.
    """

    removed: tuple[str, ...] = ()
    overlapped: tuple[str, ...] = ()
    faster: tuple[str, ...] = ()


@dataclass(frozen=True)
class Variant:
    """A program with something changed.

    Args:
        options: that differ from the program as it is.
        answers: the findings that ask for it. A finding is followed by the first such variant.
        play: None where no change of the replay stands for it.
        joins: the variants that this one has all the changes of; empty for a single change.
        tuned: whether it is all that we knew to do.
    """

    name: str
    options: Mapping[str, Any]
    answers: tuple[str, ...] = ()
    play: Play | None = None
    joins: tuple[str, ...] = ()
    tuned: bool = False


@dataclass(frozen=True)
class Program:
    """A program, and its variants in the order in which they are timed."""

    name: str
    variants: tuple[Variant, ...] = field(default_factory=tuple)

    @property
    def script(self) -> Path:
        """Its file."""
        return PROGRAMS / f"{self.name}.py"


PASSES = ("forward", "backward")
DATA = ("data-wait",)
SYNC = ("synchronization",)
COPIES = ("h2d-pageable", "h2d-exposed")
OPTIMIZER = ("optimizer-launches", "optimizer-cost")
HOST = ("host-overhead", "small-kernels")
LOADED = Play(removed=("data-wait",))
RESIDENT = Play(removed=("data-wait", "h2d"))
UNREAD = Play(removed=("sync",))
QUICKER = Play(faster=PASSES)
UPDATED = Play(faster=("optimizer",))


def single(name: str, answers: tuple[str, ...], play: Play | None, **options: Any) -> Variant:
    """One change."""
    return Variant(name, options, answers, play)


def joined(name: str, joins: str, *, tuned: bool = False, **options: Any) -> Variant:
    """Several changes: those of the variants `joins`, here with their options."""
    return Variant(name, options, (), None, tuple(joins.split()), tuned)


CATALOG = (
    Program(
        "photos",
        (
            single("workers", DATA, LOADED, workers=14),
            single("pinned", COPIES, Play(faster=("h2d",)), pin=True),
            single("unread", SYNC, UNREAD, accuracy_each_step=False),
            single("resident", (), RESIDENT, resident=True),
            single("layout", ("memory-format",), QUICKER, channels_last=True),
            single("compiled", ("unfused-kernels", *HOST), QUICKER, compiled=True),
            single("fused", OPTIMIZER, UPDATED, fused=True),
            joined("both", "workers pinned", workers=14, pin=True),
            joined("all", "workers pinned unread", workers=14, pin=True, accuracy_each_step=False),
            joined(
                "tuned",
                "resident unread layout fused compiled",
                tuned=True,
                resident=True,
                accuracy_each_step=False,
                channels_last=True,
                fused=True,
                compiled=True,
            ),
        ),
    ),
    Program(
        "volumes",
        (
            single("workers", DATA, LOADED, workers=8),
            single("pinned", COPIES, Play(faster=("h2d",)), pin=True),
            single(
                "no-dice", (*SYNC, "memory-traffic", "unexplained-idle"), None, dice_each_step=False
            ),
            single("resident", (), RESIDENT, resident=True),
            single("bf16", ("lower-precision",), QUICKER, bf16=True),
            single("layout", ("memory-format",), QUICKER, channels_last=True),
            single("compiled", ("unfused-kernels", *HOST), QUICKER, compiled=True),
            joined("both", "workers no-dice", workers=8, dice_each_step=False),
            joined("all", "workers pinned no-dice", workers=8, pin=True, dice_each_step=False),
        ),
    ),
    Program(
        "gpt",
        (
            single("sdpa", ("attention-unfused",), QUICKER, sdpa=True),
            single("padded", ("unaligned-matmul",), QUICKER, vocabulary=50304),
            single("fused", OPTIMIZER, UPDATED, fused=True),
            single("foreach", (), UPDATED, foreach=True),
            single("unread", SYNC, UNREAD, log_each_step=False),
            single("compiled", ("unfused-kernels", *HOST), QUICKER, compiled=True),
            joined("all", "sdpa padded fused", sdpa=True, vocabulary=50304, fused=True),
            joined(
                "tuned",
                "sdpa padded fused unread compiled",
                tuned=True,
                sdpa=True,
                vocabulary=50304,
                fused=True,
                log_each_step=False,
                compiled=True,
            ),
        ),
    ),
    Program(
        "masked_words",
        (
            single("bf16", ("lower-precision",), Play(faster=(*PASSES, "recompute")), bf16=True),
            single("tf32", ("tf32-off",), Play(faster=(*PASSES, "recompute")), tf32=True),
            single("kept", ("recomputation",), Play(removed=("recompute",)), checkpointed=False),
            single("unread", SYNC, UNREAD, log_each_step=False),
            single("fused", OPTIMIZER, UPDATED, fused=True),
            single(
                "compiled",
                ("unfused-kernels", *HOST),
                Play(faster=(*PASSES, "recompute")),
                compiled=True,
            ),
            joined("both", "tf32 kept", tf32=True, checkpointed=False),
            joined("all", "bf16 kept", bf16=True, checkpointed=False),
            joined(
                "tuned-fp32",
                "kept fused unread compiled",
                tuned=True,
                checkpointed=False,
                fused=True,
                log_each_step=False,
                compiled=True,
            ),
        ),
    ),
    Program(
        "gradient_norms",
        (
            single("unread", SYNC, UNREAD, norms_on_host=False),
            single("layout", ("memory-format",), QUICKER, channels_last=True),
            single("fused", OPTIMIZER, UPDATED, fused=True),
            single("foreach", (), UPDATED, foreach=True),
            single("compiled", ("unfused-kernels", *HOST), QUICKER, compiled=True),
            joined("both", "unread layout", norms_on_host=False, channels_last=True),
            joined(
                "all", "unread layout fused", norms_on_host=False, channels_last=True, fused=True
            ),
            joined(
                "tuned",
                "unread layout fused compiled",
                tuned=True,
                norms_on_host=False,
                channels_last=True,
                fused=True,
                compiled=True,
            ),
        ),
    ),
    Program(
        "cells",
        (
            single("graphs", HOST, Play(removed=("host",)), graphs=True),
            single("whole", (), None, cells=False),
            single("unread", SYNC, UNREAD, log_each_step=False),
            single("fused", OPTIMIZER, None, fused=True),
            single("library-clip", (), None, clip_by_hand=False),
            joined("both", "graphs fused", graphs=True, fused=True),
            joined(
                "all",
                "graphs fused unread library-clip",
                tuned=True,
                graphs=True,
                fused=True,
                log_each_step=False,
                clip_by_hand=False,
            ),
        ),
    ),
    Program(
        "clicks",
        (
            single("workers", DATA, LOADED, workers=12),
            single("by-batch", (), None, by_batch=True),
            single("resident", (), RESIDENT, resident=True),
            single("no-auc", (*SYNC, "unexplained-idle"), None, auc_each_step=False),
            single("fused", OPTIMIZER, None, fused=True),
            single("graphs", HOST, None, graphs=True),
            joined("both", "workers fused", workers=12, fused=True),
            joined("all", "workers no-auc fused", workers=12, auc_each_step=False, fused=True),
            joined(
                "tuned",
                "resident no-auc fused graphs",
                tuned=True,
                resident=True,
                auc_each_step=False,
                fused=True,
                graphs=True,
            ),
        ),
    ),
    Program(
        "diffusion",
        (
            single(
                "noise-on-gpu",
                (*COPIES, *SYNC, "unexplained-idle", *DATA),
                None,
                noise_on_host=False,
            ),
            single("bf16", ("lower-precision",), QUICKER, bf16=True),
            single("average-at-once", (), UPDATED, average_one_by_one=False),
            single("layout", ("memory-format",), QUICKER, channels_last=True),
            single("fused", OPTIMIZER, UPDATED, fused=True),
            single("compiled", ("unfused-kernels", *HOST), QUICKER, compiled=True),
            joined("both", "noise-on-gpu bf16", noise_on_host=False, bf16=True),
            joined(
                "all",
                "noise-on-gpu bf16 average-at-once",
                noise_on_host=False,
                bf16=True,
                average_one_by_one=False,
            ),
            joined(
                "tuned-tf32",
                "noise-on-gpu average-at-once fused layout compiled",
                tuned=True,
                noise_on_host=False,
                average_one_by_one=False,
                fused=True,
                channels_last=True,
                compiled=True,
            ),
        ),
    ),
    Program(
        "neighbours",
        (
            single("pinned", COPIES, Play(faster=("h2d",), removed=("sync",)), pin=True),
            single("features-on-gpu", (*DATA, "unexplained-idle"), None, features_on_gpu=True),
            single("resident", (), None, resident=True),
            single("unread", SYNC, UNREAD, log_each_step=False),
            single("tf32", ("tf32-off", "lower-precision"), QUICKER, tf32=True),
            single("fused", OPTIMIZER, None, fused=True),
            joined(
                "all",
                "features-on-gpu unread fused",
                features_on_gpu=True,
                log_each_step=False,
                fused=True,
            ),
        ),
    ),
    Program(
        "streets",
        (
            single("workers", DATA, LOADED, workers=14),
            single(
                "counted-on-gpu",
                (*SYNC, "memory-traffic", "unexplained-idle"),
                None,
                confusion_on_host=False,
            ),
            single("layout", ("memory-format",), QUICKER, channels_last=True),
            single("resident", COPIES, RESIDENT, resident=True),
            single("fused", OPTIMIZER, UPDATED, fused=True),
            single("compiled", ("unfused-kernels", *HOST), QUICKER, compiled=True),
            joined("both", "workers counted-on-gpu", workers=14, confusion_on_host=False),
            joined(
                "all",
                "workers counted-on-gpu layout",
                workers=14,
                confusion_on_host=False,
                channels_last=True,
            ),
            joined(
                "tuned",
                "resident counted-on-gpu layout fused compiled",
                tuned=True,
                resident=True,
                confusion_on_host=False,
                channels_last=True,
                fused=True,
                compiled=True,
            ),
        ),
    ),
    Program(
        "patches",
        (
            single("tf32", ("tf32-off",), QUICKER, tf32=True),
            single("bf16", ("lower-precision",), QUICKER, bf16=True),
            single("library", (), QUICKER, by_hand=False),
            single("sdpa", ("attention-unfused",), QUICKER, sdpa=True),
            single("fused", OPTIMIZER, UPDATED, fused=True),
            single("compiled", ("unfused-kernels", *HOST), QUICKER, compiled=True),
            joined("both", "bf16 sdpa", bf16=True, sdpa=True),
            joined("all", "bf16 sdpa compiled", bf16=True, sdpa=True, compiled=True),
            joined(
                "tuned-fp32",
                "library sdpa fused compiled",
                tuned=True,
                by_hand=False,
                sdpa=True,
                fused=True,
                compiled=True,
            ),
        ),
    ),
    Program(
        "translator",
        (
            single("kept", ("recomputation",), Play(removed=("recompute",)), checkpointed=False),
            single("library-loss", (), QUICKER, smoothed_by_hand=False),
            single("library-clip", SYNC, None, clip_by_hand=False),
            single("fused", OPTIMIZER, UPDATED, fused=True),
            single("unread", (), UNREAD, log_each_step=False),
            single("compiled", ("unfused-kernels", *HOST), None, compiled=True),
            joined("both", "kept fused", checkpointed=False, fused=True),
            joined(
                "all", "kept fused library-clip", checkpointed=False, fused=True, clip_by_hand=False
            ),
            joined(
                "tuned",
                "kept library-loss library-clip fused unread compiled",
                tuned=True,
                checkpointed=False,
                smoothed_by_hand=False,
                clip_by_hand=False,
                fused=True,
                log_each_step=False,
                compiled=True,
            ),
        ),
    ),
)
BY_NAME = {program.name: program for program in CATALOG}
