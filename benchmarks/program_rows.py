"""The runs that verdicts on programs as people write them are held against."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """A program of `workloads/programs`, with options.

    Args:
        ranks: processes, one a GPU.
        without: option that takes a part out, by that part: "loading", "communication", "host".
            What the step gets shorter by is the part's share.
        silent: option with which its ranks send nothing, and do all else; None without one.
        environment: of its processes, besides that of the benchmark.
        alone: how many ranks' work a rank does when it is without the others.
        updates: steps of the first optimizer in an iteration, which is what a recording counts.
        active: such steps that are recorded.
        modules: what the program takes longest to import.
        compiled: whether the first step compiles.
        steps, timed: iterations without a profiler, and how many of them, the last, are timed.
        note: what the ablation cannot tell.
    """

    name: str
    program: str
    options: str = ""
    ranks: int = 1
    without: dict[str, str] = field(default_factory=dict)
    alone: int = 1
    updates: int = 1
    active: int = 6
    modules: tuple[str, ...] = ()
    compiled: bool = False
    steps: int = 25
    timed: int = 15
    note: str = ""
    silent: str | None = None
    environment: dict[str, str] = field(default_factory=dict)


UNDIVIDED = frozenset({"fsdp-small", "fsdp-large", "tensor-parallel"})
"""Rows of which taking out the other ranks also takes out what the host does to shard and to call
collectives: by hand the ablation tells communication and overhead together, not apart."""
LOADING = {"loading": "--no-loading"}
RANKS = {"communication": "--one-rank"}
SILENT = "--silent"
HOST = {"host": "--no-host"}
HF = ("transformers", "accelerate")
LIGHTNING = ("lightning", "torchvision")
HALF = "One rank alone does the work of both: half of its step is what a rank has to do."

ROWS = (
    Row("lightning", "lightning_automatic", without=LOADING, modules=LIGHTNING),
    Row("gan", "gan", updates=2, active=8),
    Row("rl", "rl", without=HOST, updates=4, active=16),
    Row("checkpoint", "checkpoint_eval", without=HOST, active=15),
    Row("compiled", "timm_compile", without=LOADING, modules=("timm",), compiled=True),
    Row(
        "jpeg-few",
        "jpeg_loader",
        "--workers 2",
        without=LOADING,
        modules=("torchvision",),
        active=10,
        steps=16,
        timed=10,
    ),
    Row("trainer", "hf_trainer", without=LOADING, modules=HF),
    Row("accelerate", "accelerate_accumulation", without=LOADING, modules=HF, active=5),
    Row("fsdp-small", "fsdp2", "--batch-size 1", 2, without=RANKS, active=4, silent=SILENT),
    Row(
        "gpipe",
        "pipeline",
        "--schedule gpipe",
        2,
        without=RANKS,
        alone=2,
        note=HALF,
        silent=SILENT,
    ),
    Row("straggler", "ddp_straggler", "", 2, without=RANKS),
    Row("lightning-manual", "lightning_manual", without=LOADING, modules=LIGHTNING),
    Row(
        "trainer-slow",
        "hf_trainer",
        "--words 6000 --workers 2",
        without=LOADING,
        modules=HF,
        active=10,
        steps=16,
        timed=10,
    ),
    Row(
        "offload",
        "offloaded_optimizer",
        without=HOST,
        note="With the optimizer go its copies in both directions.",
    ),
    Row("recompute", "activation_checkpointing"),
    Row(
        "1f1b",
        "pipeline",
        "--schedule 1f1b --micro-batches 8",
        2,
        without=RANKS,
        alone=2,
        note=HALF,
        silent=SILENT,
    ),
    Row(
        "tensor-parallel",
        "tensor_parallel",
        "",
        2,
        without=RANKS,
        alone=2,
        active=4,
        note=HALF,
        silent=SILENT,
    ),
    Row("fsdp-large", "fsdp2", "--batch-size 8", 2, without=RANKS, active=4, silent=SILENT),
    Row(
        "jpeg-many",
        "jpeg_loader",
        "--workers 12",
        without=LOADING,
        modules=("torchvision",),
        active=8,
    ),
)
"""In the order in which they run: what is most worth having first."""

NARROW = {"NCCL_MAX_NCHANNELS": "1"}
"""One block of threads drives the links: some 15 GB/s."""
ORACLE_ROWS = (
    *ROWS,
    Row("fsdp-narrow", "fsdp2", "--batch-size 4", 2, silent=SILENT, environment=NARROW),
    Row("tensor-narrow", "tensor_parallel", "", 2, silent=SILENT, environment=NARROW),
    Row("gpipe-large", "pipeline", "--schedule gpipe --batch-size 96", 2, silent=SILENT),
    Row(
        "1f1b-large",
        "pipeline",
        "--schedule 1f1b --micro-batches 8 --batch-size 96",
        2,
        silent=SILENT,
    ),
)
"""With those whose communication takes long, which only ablations are about."""
