"""Programs that load their data."""

from __future__ import annotations

from benchmarks.slowbench.program import Program
from benchmarks.slowbench.ways import PIECEWISE, Range, Way, option

LOADING = (
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
)
