"""Programs that train on pictures and graphs, which lie on the device."""

from __future__ import annotations

from benchmarks.slowbench.program import Program
from benchmarks.slowbench.ways import EAGER, PIECEWISE, RETRIES, Range, Way, option

RESIDENT = (
    Program(
        "gradient_norms",
        {
            "batch": Range(832, 1088, 64),
            "size": 128,
            "model": "resnet18",
            "norms_on_host": False,
            "fused": True,
            "channels_last": True,
            "compiled": True,
        },
        {"batch": 4, "size": 48, "bf16": False, "compiled": False},
        ("scores = network(batch)", "model(batch[: int({share} * len(batch))])"),
        (
            option("item-each-step", norms_on_host=True),
            Way("contiguous-layout", {"channels_last": False}, EAGER),
            option("no-autocast", bf16=False),
            PIECEWISE,
        ),
        needs=("torchvision",),
    ),
    Program(
        "diffusion",
        {
            "batch": Range(64, 96, 8),
            "size": 64,
            "width": 96,
            "noise_on_host": False,
            "average_one_by_one": False,
            "bf16": True,
            "channels_last": True,
            "fused": True,
            "compiled": True,
        },
        {"batch": 1, "size": 8, "width": 8, "bf16": False, "compiled": False},
        (
            "taken = network(mixed, t)",
            "model(*(part[: max(1, int({share} * o.batch))] for part in (mixed, t)))",
        ),
        (
            Way("contiguous-layout", {"channels_last": False}, EAGER),
            option("no-autocast", bf16=False),
            PIECEWISE,
            RETRIES,
        ),
        # Its steps are the longest: what makes them longer is too much for a case.
        without=("many-tiny-kernels", "periodic-checkpoint", "periodic-evaluation"),
    ),
    Program(
        "neighbours",
        {
            "nodes": 100_000,
            "features": 512,
            "batch": Range(12288, 16384, 1024),
            "fanout": 12,
            "width": 2048,
            "features_on_gpu": True,
            "resident": True,
            "log_each_step": False,
            "tf32": True,
            "bf16": True,
            "fused": True,
            "compiled": True,
        },
        {
            "nodes": 2000,
            "features": 32,
            "batch": 64,
            "fanout": 6,
            "width": 64,
            "bf16": False,
            "compiled": False,
        },
        ("scores = second(top", "second(relu(first(x, x[:, None])))"),
        (
            option("no-autocast", bf16=False),
            option("fp32-matmul", bf16=False, tf32=False),
        ),
        without=("needless-work", "periodic-evaluation"),
    ),
    Program(
        "patches",
        {
            "batch": Range(384, 512, 32),
            "size": 224,
            "width": 384,
            "heads": 6,
            "layers": 3,
            "tf32": True,
            "bf16": True,
            "by_hand": False,
            "sdpa": True,
            "fused": True,
            "compiled": True,
        },
        {
            "batch": 4,
            "size": 64,
            "width": 64,
            "heads": 2,
            "layers": 2,
            "bf16": False,
            "compiled": False,
        },
        (
            "scores = network(images[chosen]",
            "model(images[chosen[: int({share} * len(chosen))]].permute(0, 3, 1, 2))",
        ),
        (
            Way(
                "unfused-pointwise", {"by_hand": True}, EAGER, small={"by_hand": True}, on_cpu=True
            ),
            Way("unfused-attention", {"sdpa": False}, EAGER),
            Way("recomputation", {"checkpointed": True}, small={"checkpointed": True}, on_cpu=True),
            option("no-autocast", bf16=False),
            option("fp32-matmul", bf16=False, tf32=False),
            PIECEWISE,
        ),
    ),
)
