"""What `traceprobe watch` finds of what holds a program up, and what it costs.

    python benchmarks/watch_runs/measure.py DIR          # runs the programs
    python benchmarks/watch.py summarize NAME=DIR...     # watch.json
    python benchmarks/watch.py page                      # watch.md beside it

Each DIR is of one machine, with its name before it.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "validation"
CAUSES = {
    "garbage-collection": {"garbage-collection"},
    "checkpoint": {"checkpoint"},
    "loader-worker": {"loader-worker", "loader"},
}
"""Causes by which an injection counts as found."""
WORDS = {
    "garbage-collection": "collection of garbage",
    "checkpoint": "checkpoint",
    "loader-worker": "slow worker",
    "pace": "slow stretch of 3 to 6 s",
}
EXPECTED = {"start", "garbage-collection"}
"""Events that a quiet run may have: they are true."""
NEAR = 16
"""Steps by which the edge of a stretch may be off."""


def summarize(folders: list[str]) -> dict[str, Any]:
    """Counts of each run."""
    runs, cost = [], []
    for given in folders:
        machine, _, folder = given.partition("=")
        for path in sorted(Path(folder).glob("*-cost-*.json")):
            found = json.loads(path.read_text())
            ratios = [100 * (pair["on"] / pair["off"] - 1) for pair in found["blocks"]]
            cost.append(
                {
                    "machine": machine,
                    "torch": found["torch"],
                    "step_ms": round(median(pair["off"] for pair in found["blocks"]), 3),
                    "pairs": len(ratios),
                    "steps": found["steps"],
                    "median_percent": round(median(ratios), 3),
                    "mean_percent": round(mean(ratios), 3),
                    "error_percent": round(stdev(ratios) / len(ratios) ** 0.5, 3),
                }
            )
        truths = sorted(Path(folder).glob("*.truth.json"))
        runs += [_run(machine, path) for path in truths]
    return {"runs": runs, "cost": cost}


def _run(machine: str, path: Path) -> dict[str, Any]:
    """What one run was held up by, and what was found of it."""
    name = path.name.removesuffix(".truth.json")
    truth = json.loads(path.read_text())["truth"]
    record = json.loads((path.parent / f"{name}.json").read_text())
    device, kind = name.split("-", 1)[0], "quiet" if "-quiet-" in name else "held-up"
    injected, found = Counter[str](), Counter[str]()
    for one in truth:
        if not _is_listed(one, record):
            continue
        injected[one["kind"]] += 1
        found[one["kind"]] += _is_found(one, record)
    alarms = list(_alarms(record)) if kind == "quiet" else []
    return {
        "machine": machine,
        "device": device,
        "kind": kind,
        "steps": record["steps"],
        "seconds": round(record["watched_s"], 1),
        "injected": dict(injected),
        "found": dict(found),
        "alarms": alarms,
    }


def _is_found(one: dict[str, Any], record: dict[str, Any]) -> bool:
    """Whether a record tells of an injection at its place, by a cause that it may have."""
    if one["kind"] == "pace":
        return any(abs(part["first"] - one["first"]) <= NEAR for part in record["pace"][1:])
    return any(
        one["first"] - 1 <= step <= one["last"] + 1
        for event in record["events"]
        if event["cause"] in CAUSES[one["kind"]]
        for step in event["steps"]
    )


def _is_listed(one: dict[str, Any], record: dict[str, Any]) -> bool:
    """Whether the record lists enough steps to tell; of many events it has the first only."""
    return all(
        event["count"] == len(event["steps"]) or one["last"] <= event["steps"][-1]
        for event in record["events"]
        if event["cause"] in CAUSES.get(one["kind"], ())
    )


def _alarms(record: dict[str, Any]) -> Iterator[str]:
    """Causes that a quiet run was told to have."""
    for event in record["events"]:
        rhythm = event["every_steps"] or event["every_s"]
        if event["cause"] not in EXPECTED and (rhythm or event["lost_s"] >= _worth(record)):
            yield event["cause"]
    yield from (f"pace: {part['cause']}" for part in record["pace"][1:])


def _worth(record: dict[str, Any]) -> float:
    """Time that causes of chance must cost to be told, s.

    Since the records of the H200 were made, a loader that is late now and then is one of them.
    """
    return 0.005 * float(record["watched_s"])


def page(found: dict[str, Any]) -> str:
    """The page of `watch.json`."""
    held = [run for run in found["runs"] if run["kind"] == "held-up"]
    rows = []
    for machine, device in sorted({(run["machine"], run["device"]) for run in held}):
        runs = [run for run in held if (run["machine"], run["device"]) == (machine, device)]
        for kind, word in WORDS.items():
            injected = sum(run["injected"].get(kind, 0) for run in runs)
            if injected:
                hits = sum(run["found"].get(kind, 0) for run in runs)
                rows.append(f"| {machine}, {device.upper()} | {word} | {injected} | {hits} |")
    quiet = []
    for run in found["runs"]:
        if run["kind"] == "quiet":
            alarms = ", ".join(run["alarms"]) or "none"
            where = f"{run['machine']}, {run['device'].upper()}"
            quiet += [f"| {where} | {run['seconds']:.0f} | {run['steps']:,} | {alarms} |"]
    cost = [
        f"| {c['machine']} | {c['step_ms']:.2f} | {c['pairs']} × {c['steps']} | "
        f"{c['median_percent']:+.2f} | {c['mean_percent']:+.2f} ± {c['error_percent']:.2f} |"
        for c in found["cost"]
    ]
    return f"""# What watching finds, and what it costs

`benchmarks/watch_runs/train.py` trains a small model and is held up at random times, seeded, each
two to three and a half seconds after the last; the record of [`traceprobe watch`](../watch.md) is
then held against what was done. `benchmarks/watch.py page` writes this page from `watch.json`.

| machine | injected | how often | found and named |
| --- | --- | --: | --: |
{chr(10).join(rows)}

A slow stretch is another process that computes on the same GPU, on a CPU twice the work of a
step: nothing that is watched changes with either. These records are of a version that took six such
changes for a pace that wanders and told them only in sum. Since then a run that comes back to one
level does not wander; the medians in the records of the second day then have all 15 stretches of
the 15 that were injected, which was not run again on the machine. The first records of the H200
listed 50 steps of an event; injections after the last of them are not counted. Records list 500
since.

## Quiet runs

| machine | s | steps | false alarms |
| --- | --: | --: | --- |
{chr(10).join(quiet)}

The two shared cores had other work all the time, as most of these alarms say; those of the loader
are of its late batches then. Since then a worker must be late six times in turn to be called slow.
The slow stretches of the last two are in their strips (9 to 11 ms a step instead of 5.7 for two to
three seconds): three other runs were on that machine, and it was not quiet.

## Cost

Blocks of steps with and without a session take turns in one process; ± is the standard error of
the mean over pairs.

| machine | step, ms | pairs × steps | median, % | mean, % |
| --- | --: | --: | --: | --: |
{chr(10).join(cost)}
"""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("summarize", "page"))
    parser.add_argument("folders", nargs="*", metavar="NAME=DIR")
    given = parser.parse_args()
    if given.what == "summarize":
        text = json.dumps(summarize(given.folders), indent=1) + "\n"
        (FOLDER / "watch.json").write_text(text)
        return
    found = json.loads((FOLDER / "watch.json").read_text())
    (FOLDER / "watch.md").write_text(page(found))


if __name__ == "__main__":
    main()
