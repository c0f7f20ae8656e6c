"""Programs that train on two ranks, and what makes these wait for each other."""

from __future__ import annotations

from benchmarks.slowbench.program import Program
from benchmarks.slowbench.ways import Range, Way

LAST = 1
"""The rank that is slower."""
RANKS = (
    Program(
        "documents",
        {
            "batch": Range(96, 128, 16),
            "length": 512,
            "width": Range(1280, 1536, 256),
            "layers": 2,
            "workers": 4,
            "compiled": True,
        },
        {
            "batch": 8,
            "length": 32,
            "width": 128,
            "heads": 4,
            "layers": 1,
            "vocabulary": 512,
            "workers": 1,
            "bf16": False,
            "compiled": False,
        },
        ("scores = network(part)", "core(part[: int({share} * len(part))])"),
        (
            Way(
                "small-buckets",
                {"bucket_mb": Range(1.0, 1.5)},
                small={"bucket_mb": 0.001},
                on_cpu=True,
            ),
            Way(
                "one-big-bucket", {"bucket_mb": 100_000}, {"channels": 4, "batch": 32, "layers": 6}
            ),
            Way("slow-wire", {"channels": 1}),
            Way(
                "straggler-compute",
                lines=(("{forward}", "again = [{pass} for _ in range({level} * rank)]"),),
                level=Range(1, 2),
                small_level=Range(4, 8),
                on_cpu=True,
                rank=LAST,
            ),
            Way(
                "straggler-host",
                lines=(("loss.backward()", "weighed = sum(i * i for i in range({level} * rank))"),),
                level=Range(320_000, 800_000),
                on_cpu=True,
                rank=LAST,
            ),
            Way(
                "straggler-loader",
                lines=(("words = self.words[index", "_ = sum(range({level} * self.rank))"),),
                level=Range(150_000, 400_000),
                on_cpu=True,
                rank=LAST,
            ),
            Way(
                "uneven-batches",
                {"more_on_last": Range(0.4, 1.0)},
                small={"more_on_last": 1.0},
                on_cpu=True,
                rank=LAST,
            ),
            Way(
                "no-accumulation-no-sync",
                {"sync_each_part": True},
                both={"parts": 2, "channels": 4, "batch": 64, "layers": 4},
                small={"sync_each_part": True},
                on_cpu=True,
            ),
        ),
        ranks=2,
    ),
    Program(
        "shards",
        {
            "batch": Range(32, 48, 8),
            "length": 512,
            "width": Range(2048, 2560, 512),
            "heads": 16,
            "layers": 4,
            "compiled": True,
        },
        {
            "batch": 4,
            "length": 32,
            "width": 128,
            "heads": 4,
            "layers": 2,
            "vocabulary": 512,
            "bf16": False,
            "compiled": False,
        },
        ("scores = network(tokens)", "network(tokens[: int({share} * len(tokens))])"),
        (
            Way("unoverlapped-all-gather", {"one_unit": True}, {"channels": 4}),
            Way("slow-wire", {"channels": 1}),
            Way(
                "straggler-host",
                lines=(("loss.backward()", "weighed = sum(i * i for i in range({level} * rank))"),),
                level=Range(320_000, 800_000),
                rank=LAST,
            ),
            Way("uneven-batches", {"more_on_last": Range(0.4, 1.0)}, rank=LAST),
        ),
        ranks=2,
    ),
    Program(
        "stages",
        {"batch": Range(96, 128, 16), "width": 2048, "layers": 4, "parts": 8},
        {
            "batch": 8,
            "length": 32,
            "width": 64,
            "layers": 4,
            "parts": 4,
            "bf16": False,
        },
        ("schedule.step(words)", "layers(words)"),
        (
            Way("pipeline-bubble", {"parts": 2}),
            Way("pipeline-imbalance", {"moved": 1}, rank=LAST),
        ),
        ranks=2,
    ),
)
