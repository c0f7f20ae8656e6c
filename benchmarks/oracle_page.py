"""What `oracle.py` measured, as numbers and as a page."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.program_rows import ORACLE_ROWS, ROWS, Row

LIMIT = 3.0
"""Points that a share may be off."""
PARTS = {
    "loading": ("synthetic-device", "synthetic-host"),
    "communication": ("full-no-comm",),
    "host": ("full-regular",),
    "fused": ("full-fused",),
}
"""The variants of the oracle that take out what is taken out by hand; the first that it has."""
_HEAD = """# Ablations of unmodified programs

`traceprobe bench` took parts out of programs that know nothing of it. By hand the same parts were
taken out of their source: by options of the programs (`--no-loading`, `--one-rank`, `--no-host`),
and by `fused=True` for their optimizers: one round in a process before `bench`, and one in another
after it, without a profiler. Of programs without DistributedDataParallel `--silent` takes
communication out: they begin with PyTorch's process groups that send nothing, and pipelines call
nothing that sends after their first step. A share is what a step gets shorter by, in per cent of
the whole step; below 0 it gets longer.

All but `compiled`, `jpeg-few`, `jpeg-many` and `trainer-slow` were measured before `bench` waited
until batches that lay ready from a block without loading were used up. `compiled` and the two of
`jpeg` are of a later day than the others, and each of them ran alone. Rows of H100s are of a later
day still, two programs at a time; `accelerate` and `lightning` ran alone, and took another time
when they ran again all the same. `fsdp-large`, `fsdp-narrow`, `tensor-narrow` and last `straggler`
ran alone on two H200s on the last days.

    python benchmarks/oracle.py run --out DIR --gpus 2
    python benchmarks/oracle.py collect DIR && python benchmarks/oracle.py page
"""

_MISSES = """
## What is off, and why

- **The program is not the same twice.** Of `compiled`, two processes by hand took 22.95 and
  26.48 ms a step with nothing changed, and the four blocks of `bench` 22.5 to 23.6: by the first
  process alone loading is 11.2 % by hand and 12.3 % by `bench`. `jpeg-many` took 26.9 and 31.8 ms,
  with twelve workers on sixteen cores. Two rounds by hand tell no more than these ranges.
- **`straggler`** is a host that is late, and it is late by another time in each round: 6.6 to
  15.1 % by hand, 4.7 to 14.3 % by `bench`, on two H200s. On H100s it was 4.8 to 4.9 and 5.5 to
  7.2 %.
- **Where the host sets the pace it is the host that varies.** The steps of `fsdp-small`,
  `fsdp-large` and `tensor-parallel` are the host's on these machines (150 to 200 ms, a fifth apart
  when they ran again), and so are those of `fsdp-narrow` and `tensor-narrow` once nothing is sent.
  Where the GPU does, as in the large pipelines, both ways agree within 0.3 points of communication.
- **The `io` trial was wrong** in `jpeg-many`: 12 batches took 0.003, 0.008, 0.79 and 0.002 s,
  which is too fast for pictures that are decoded, and once too slow: 66 ms a batch, where a step
  takes 30. The trial threw away what lay ready until one batch took 5 ms, which a large one may
  that lies ready; and it began while the workers of the program still filled their own queues. No
  share above uses it, but the overlap does. It now throws away as many batches as may lie ready,
  between two rests of all workers, and its first run, which decides the length of the others, is
  of whole turns of the workers. A loader whose four workers take 200 ms a batch, and whose
  batches take 8 ms to hand over, needs 50 ms a step: it was measured as 42.4 before and 49.3
  since (2 cores, PyTorch 2.13), and the overlap as 0.24 and 0.96 of 1. It was not run again on a
  GPU."""


def collect(folder: Path) -> dict[str, Any]:
    """The rows of a run; of one that was made again the last."""
    known = {row.name: row for row in ORACLE_ROWS}
    rows: dict[str, Any] = {}
    machine: dict[str, Any] = {}
    for line in (folder / "rows.jsonl").read_text().splitlines():
        found = json.loads(line)
        files = found["files"]
        hands = [value for name, value in files.items() if name.startswith("hand")]
        trials = [value for name, value in files.items() if name.endswith(".trials.json")]
        if len(trials) < known[found["name"]].ranks:
            continue
        rows[found["name"]] = _row(hands, trials, known[found["name"]])
        machine = files["machine0.json"]
        rows[found["name"]]["gpu"] = _gpu(machine)
    return {"machine": machine, "rows": rows}


def _gpu(machine: dict[str, Any]) -> str:
    names = sorted({gpu["name"] for gpu in machine.get("hardware", {}).get("gpus", [])})
    return ", ".join(names) or "a CPU"


def _row(hands: list[Any], trials: list[Any], row: Row) -> dict[str, Any]:
    if row.silent is None:  # a rank without the others does the work of several
        hands = [_shared(hand, row.alone) for hand in hands]
    hand = {name: max(statistics.fmean(h[name]) for h in hands) for name in hands[0]}
    first = trials[0]
    steps = [
        {
            name: [1e3 * row.updates * block / rank["steps"][name] for block in blocks]
            for name, blocks in rank["seconds"].items()
        }
        for rank in trials
    ]
    oracle = {name: max(statistics.median(rank[name]) for rank in steps) for name in steps[0]}
    shares = {}
    for part, variants in PARTS.items():
        variant = next((name for name in variants if name in oracle), None)
        if part in hand and variant is not None:
            shares[part] = {
                "hand": round(100 * (1 - hand[part] / hand["full"]), 2),
                "hand_range": _range(_rounds(hands, part), _rounds(hands, "full")),
                "oracle": round(100 * (1 - oracle[variant] / oracle["full"]), 2),
                "oracle_range": _range(_rounds(steps, variant), _rounds(steps, "full")),
                "variant": variant,
            }
    return {
        "hand_ms": {name: round(value, 3) for name, value in hand.items()},
        "hand_full_ms": [round(value, 3) for value in hands[0]["full"]],
        "oracle_ms": {name: round(value, 3) for name, value in oracle.items()},
        "absent": first["absent"],
        "shares": shares,
    }


def _shared(hand: dict[str, list[float]], ranks: int) -> dict[str, list[float]]:
    """The times of a rank by hand, of which the one without the others is for so many ranks."""
    alone = [step / ranks for step in hand.get("communication", [])]
    return {**hand, "communication": alone} if alone else hand


def _rounds(ranks: list[dict[str, list[float]]], name: str) -> list[float]:
    """A step of each round, of the slowest rank."""
    return [max(found) for found in zip(*(rank[name] for rank in ranks), strict=True)]


def _range(without: list[float], full: list[float]) -> list[float]:
    """Lowest and highest share that a round comes to."""
    shares = [100 * (1 - part / whole) for part, whole in zip(without, full, strict=True)]
    return [round(min(shares), 2), round(max(shares), 2)]


def _model(gpu: str) -> str:
    """`H200` of `NVIDIA H200`, and `H100` of `NVIDIA H100 80GB HBM3`."""
    return gpu.removeprefix("NVIDIA ").partition(" ")[0]


def _apart(share: dict[str, Any]) -> float:
    """Points between the nearest ends of the two ranges; 0 where they overlap."""
    (a, b), (c, d) = share["hand_range"], share["oracle_range"]
    return max(0.0, c - b, a - d)


def page(results: dict[str, Any]) -> str:
    """The page."""
    rows = results["rows"]
    lines = [_HEAD]
    compared = [
        (name, part, share) for name, row in rows.items() for part, share in row["shares"].items()
    ]
    good = sum(abs(s["hand"] - s["oracle"]) <= LIMIT for *_, s in compared)
    near = sum(_apart(s) <= LIMIT for *_, s in compared)
    libraries = results["machine"].get("libraries", {})
    devices: dict[str, int] = Counter(row["gpu"] for row in rows.values())
    told = " and ".join(f"{count} on {gpu}" for gpu, count in devices.items())
    missing = ", ".join(f"`{row.name}`" for row in ROWS if row.name not in rows)
    torch = libraries.get("torch", "unknown")
    lines += [
        f"{len(rows)} programs, {told}, PyTorch {torch}; four rounds of 0.5 s.",
        f"**{good} of {len(compared)} shares are within {LIMIT:g} points, the ranges of {near}.**",
        "A range goes from the lowest to the highest share of a round. It is wide where the same",
        "program, unchanged, took another time when it ran again.\n",
        f"Not measured: {missing or 'none'}. Of pipelines in that size the host takes longer than",
        "the GPU; with more sequences a batch they are `gpipe-large` and `1f1b-large`.\n",
        "| program | GPU | taken out | by hand | range | by `bench` | range | ranges apart "
        "| variant |",
        "| --- | --- | --- | --: | --: | --: | --: | --: | --- |",
    ]
    for name, part, share in compared:
        by_hand = "{:.1f} to {:.1f}".format(*share["hand_range"])
        by_bench = "{:.1f} to {:.1f}".format(*share["oracle_range"])
        mark = "" if _apart(share) <= LIMIT else " **(!)**"
        lines.append(
            f"| `{name}` | {_model(rows[name]['gpu'])} | {part} "
            f"| {share['hand']:.1f} % | {by_hand} | {share['oracle']:.1f} % "
            f"| {by_bench} | {_apart(share):.1f}{mark} | `{share['variant']}` |"
        )
    lines += [
        _MISSES,
        "\n## The whole step\n",
        "The step of `full` against that of the program alone, with no hook installed, which ran",
        "before the trials and after them.\n",
        "| program | alone, ms | `full`, ms | more |",
        "| --- | --: | --: | --: |",
    ]
    for name, row in rows.items():
        alone, full = row["hand_ms"]["full"], row["oracle_ms"]["full"]
        both = ", ".join(f"{value:.2f}" for value in row["hand_full_ms"])
        lines.append(f"| `{name}` | {both} | {full:.2f} | {100 * (full / alone - 1):+.1f} % |")
    if (cost := results.get("cost")) is not None:
        lines += [
            "\n## What the hooks cost\n",
            f"A program whose step does next to nothing ({cost['plain']:.0f} µs) ran in "
            f"{cost['rounds']} blocks of {cost['steps']} steps without hooks, with hooks that do "
            "nothing, and with those of a session that measures, in turns. Medians of the "
            f"differences: **{cost['idle_more']:.1f} µs** and **{cost['measuring_more']:.1f} µs** "
            "a step.",
        ]
    return "\n".join(lines) + "\n"
