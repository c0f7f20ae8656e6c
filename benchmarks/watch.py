"""What `traceprobe watch` finds of what holds a program up, and what it costs.

    python benchmarks/watch_runs/measure.py DIR          # runs the programs
    python benchmarks/watch.py summarize NAME=DIR...     # into watch.json, in place of those NAMEs
    python benchmarks/watch.py page                      # watch.md beside it

Each DIR is of one machine, with its name before it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from traceprobe.watch.pace import stretches  # noqa: E402
from traceprobe.watch.pace_causes import joined  # noqa: E402

FOLDER = ROOT / "docs" / "validation"
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
    changes, by_strip = _changes_by_strip(record), 0
    for one in truth:
        if not _is_listed(one, record) or one["last"] >= record["steps"]:
            continue
        injected[one["kind"]] += 1
        found[one["kind"]] += _is_found(one, record)
        if one["kind"] == "pace":
            by_strip += any(abs(step - one["first"]) <= _near(record) for step in changes)
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
        "by_strip": by_strip if kind == "held-up" else len(changes),
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


def _changes_by_strip(record: dict[str, Any]) -> list[int]:
    """Steps at which a stretch would begin now, of the medians that the record has; without causes.

    Of a record without any change there is none now, either.
    """
    if len(record["pace"]) == 1 and not any("the pace wanders" in note for note in record["notes"]):
        return []
    lengths = np.diff([*record["strip"]["first"], record["steps"]])
    ms = np.repeat(record["strip"]["median_ms"], lengths)
    pace = stretches(ms)
    return [part.start for part in joined(ms, pace, range(1, len(pace)))[1:]]


def _near(record: dict[str, Any]) -> int:
    """Steps by which an edge may be off that only the strip shows."""
    return NEAR + int(np.diff(record["strip"]["first"]).max())


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
                strip = [run["by_strip"] for run in runs if "by_strip" in run and kind == "pace"]
                now = sum(strip) if strip else ""
                rows.append(
                    f"| {machine}, {device.upper()} | {word} | {injected} | {hits} | {now} |"
                )
    quiet = []
    for run in found["runs"]:
        if run["kind"] == "quiet":
            counts = Counter(run["alarms"])
            alarms = ", ".join(f"{n} × {each}" for each, n in counts.items()) or "none"
            where = f"{run['machine']}, {run['device'].upper()}"
            now = run.get("by_strip", "")
            quiet += [f"| {where} | {run['seconds']:.0f} | {run['steps']:,} | {alarms} | {now} |"]
    cost = [
        f"| {c['machine']} | {c['step_ms']:.2f} | {c['pairs']} × {c['steps']} | "
        f"{c['median_percent']:+.2f} | {c['mean_percent']:+.2f} ± {c['error_percent']:.2f} |"
        for c in found["cost"]
    ]
    return f"""# What watching finds, and what it costs

`benchmarks/watch_runs/train.py` trains a small model and is held up at random times, seeded, each
two to three and a half seconds after the last; the record of [`traceprobe watch`](../watch.md) is
then held against what was done. `benchmarks/watch.py page` writes this page from `watch.json`.

| machine | injected | how often | found and named | by the rule of now |
| --- | --- | --: | --: | --: |
{chr(10).join(rows)}

A slow stretch is another process that computes on the same GPU, on a CPU twice the work of a
step: nothing that is watched changes with either.

**Slow stretches on a CPU were missed by a rule, not for want of signs.** The first records are of a
version that took six changes without a cause for a pace that wanders and told them in sum. The next
excepted runs that come back to one level, and made the runs of the third day: three of them, on
cores that other runs disturbed, had no such level and told nothing; three quiet ones had one and
told each small change. Of a pace that wanders, what stands out is told now: half as long again as
the usual step, or longer, and half a percent of the run. The last column is that rule on the
medians that the records hold; it was not run again on that machine. The stretch that it misses
begins in one that was slow for another reason. The third day's runs on two shared cores were made
with it.

The slow worker of the third day's GPU run slept for two steps of that model, which the batches
that lay ready hid: nine steps of its three times were late, as the notes of the record say, and six
in turn are what it takes to name a worker. It sleeps four steps since.

The first records of the H200 listed 50 steps of an event; injections after the last of them are not
counted, nor are those that the end of the run cut short. Records list 500 since.

## Quiet runs

| machine | s | steps | false alarms | by the rule of now |
| --- | --: | --: | --- | --: |
{chr(10).join(quiet)}

The two shared cores had other work all the time, as most of these alarms say; those of the loader
are of its late batches then. Since then a worker must be late six times in turn to be called slow.
Runs with slow stretches of no known cause have them in their strips: 7 to 11 ms a step instead
of 5 for one to sixteen seconds. Up to seven runs were on that machine at once, some of which were
held up on purpose, and none of those was quiet; `measure.py` makes the quiet ones by themselves
since.

The sixteen quiet runs of one host with four H100s ran beside each other: 79 minutes on CPUs, 26 on
GPUs. Each of those on a CPU has one event: 313 to 337 steps, 2.3 % of the time, took some 26 ms
longer than the 8 ms of the others, with a core to run on as far as the system tells, and with no
other reading that explains it. Whether a virtual machine stood still then is not read. Three of the
GPUs kept their pace for 20 minutes. The fourth was at 85 to 90 °C and at 654 to 1,700 instead of
1,980 MHz, as the record tells, with each change of its clock and since then in one sentence; one
change of pace had no cause there.

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
    found = json.loads((FOLDER / "watch.json").read_text())
    if given.what == "summarize":
        new = summarize(given.folders)
        names = {name.partition("=")[0] for name in given.folders}
        for part, rows in new.items():
            new[part] = [row for row in found[part] if row["machine"] not in names] + rows
        (FOLDER / "watch.json").write_text(json.dumps(new, indent=1) + "\n")
        return
    (FOLDER / "watch.md").write_text(page(found))


if __name__ == "__main__":
    main()
