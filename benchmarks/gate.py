"""How often the gate of `traceprobe compare` is wrong: false alarms, and slowdowns that it misses.

    python benchmarks/gate.py TRACE … [--trials 100] [-o docs/validation/gate.json]
    python benchmarks/gate.py --page docs/validation/gate.json    # gate.md beside it

Each trace, or folder of rank traces, is a run. Its steps are dealt to two halves: the first against
the last, or blocks of neighbours drawn at random. Compared with each other, the halves of a run
should never be a regression. Then the run is slowed: all its times are stretched wherever one class
of the partition is at work, until that class costs 10 % of a step more. The whole analysis is made
again, and a half of the slowed run is compared with the other half of the run as it was: the gate
of 5 % should fail and the comparison name that class first.

The calibration of a run is left out: both halves would share it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from msgspec.structs import replace

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import traceprobe  # noqa: E402
from traceprobe.compare.compare import ENOUGH_STEPS, compare, part  # noqa: E402
from traceprobe.compare.run import NothingToCompare, Observed, observe  # noqa: E402
from traceprobe.ingest.trace_folder import find_traces  # noqa: E402
from traceprobe.model.events import Trace  # noqa: E402
from traceprobe.model.taxonomy import COMPUTE_PHASES  # noqa: E402
from traceprobe.timeline import phases  # noqa: E402
from traceprobe.timeline.device_timeline import device_timeline  # noqa: E402
from traceprobe.timeline.intervals import Intervals, measure_until, merge, subtract  # noqa: E402
from traceprobe.timeline.process_timeline import process_timeline  # noqa: E402

ALLOWED = 0.05
SLOWDOWN = 0.10
LEAST_SHARE = 0.05
"""Part of a step that a class must take to be slowed: a class that is not there cannot be."""
TIMES = {
    "gpu_ops": ("t0", "t1", "launch_t0", "launch_t1"),
    "host_calls": ("t0", "t1"),
    "host_ranges": ("t0", "t1"),
}
SEED = 3
BLOCK = 10
"""Neighbouring steps that are dealt together."""


@dataclass(frozen=True)
class Run:
    """A run as it was read, without its calibration."""

    name: str
    traces: list[Trace]
    observed: Observed


def read(path: Path) -> Run:
    """A file, or a folder with the files of the ranks."""
    files = find_traces(path)[0] if path.is_dir() else [path]
    found = [_plain(traceprobe.load(file)) for file in files]
    name = path.name.removesuffix(".gz") if path.is_file() else f"{path.parent.name}/{path.name}"
    return Run(name, found, observe(traceprobe.analyze(found), name))


def _plain(trace: Trace) -> Trace:
    return replace(trace, metadata={k: v for k, v in trace.metadata.items() if k != "traceprobe"})


def splits(count: int, source: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Ways to deal steps to two halves, without end: first and last, then blocks at random.

    Steps are not dealt in turns: where a loader stalls every other step, one half would have all.
    """
    half, steps = count // 2, np.arange(count)
    yield steps[:half], steps[-half:]
    yield steps[-half:], steps[:half]
    while True:
        blocks = np.array_split(steps, max(2, round(count / BLOCK)))
        order = source.permutation(len(blocks))
        dealt = np.concatenate([blocks[place] for place in order])
        dealt = np.roll(dealt, int(source.integers(count)))
        yield np.sort(dealt[:half]), np.sort(dealt[half : 2 * half])


def self_comparisons(run: Run, trials: int) -> Counter[str]:
    """Decisions of the gate between halves of a run."""
    source = np.random.default_rng(SEED)
    dealt = splits(len(run.observed.step_ms), source)
    return Counter(
        _decision(compare(part(run.observed, a), part(run.observed, b), ALLOWED))
        for _, (a, b) in zip(range(trials), dealt, strict=False)
    )


def _decision(comparison: Any) -> str:
    return str(comparison.gate.decision)


def slowed(run: Run, name: str) -> Observed:
    """The run with more time in class `name`: in all, `SLOWDOWN` of its steps."""
    active = _active(run.traces[0], name)
    share = _share(run.observed, name)
    factor = SLOWDOWN / share
    stretched = [_stretch(trace, active, factor) for trace in run.traces]
    return observe(traceprobe.analyze(stretched), f"{run.name} slowed in {name}")


def _active(trace: Trace, name: str) -> Intervals:
    """When a class is at work on the first device of a trace, and none that counts before it."""
    first = trace.devices[0]
    prepared = process_timeline(trace, first.pid, None, phases.compile_phase_names({}))
    sets = device_timeline(prepared, first.index).sets
    before = [sets[other] for other in COMPUTE_PHASES[: _place(name)] if other in sets]
    return subtract(sets[name], merge(*before))


def _place(name: str) -> int:
    return COMPUTE_PHASES.index(name) if name in COMPUTE_PHASES else len(COMPUTE_PHASES)


def _stretch(trace: Trace, active: Intervals, factor: float) -> Trace:
    """Every time of a trace later by `factor` of what `active` has lasted until then."""

    def moved(times: np.ndarray) -> np.ndarray:
        later = np.rint(factor * measure_until(active, times)).astype(np.int64)
        return np.asarray(times + later)

    frames = {
        table: getattr(trace, table).with_columns(
            pl.when(pl.col(column) < 0)
            .then(pl.col(column))
            .otherwise(pl.Series(column, moved(getattr(trace, table)[column].to_numpy())))
            .alias(column)
            for column in columns
        )
        for table, columns in TIMES.items()
    }
    return replace(trace, **frames)


def _share(run: Observed, name: str) -> float:
    values = run.classes[name]
    return 0.0 if values is None else float(values.mean() / run.step_ms.mean())


def injections(run: Run, trials: int) -> Counter[str]:
    """What is found of a slowdown in each class that is large enough, in turns."""
    names = [name for name in run.observed.classes if _share(run.observed, name) >= LEAST_SHARE]
    changed = {name: slowed(run, name) for name in names}
    dealt = splits(len(run.observed.step_ms), np.random.default_rng(SEED))
    found: Counter[str] = Counter()
    for number, (a, b) in zip(range(trials), dealt, strict=False):
        name = names[number % len(names)]
        if len(changed[name].step_ms) != len(run.observed.step_ms):
            found["not the same steps"] += 1
            continue
        result = compare(part(run.observed, a), part(changed[name], b), ALLOWED)
        real = [c for c in result.classes if c.real and (c.delta or 0) > 0]
        blamed = max(real, key=lambda c: c.delta or 0).name if real else None
        found[f"{_decision(result)}, {'blamed' if blamed == name else 'not blamed'}"] += 1
    return found


PAGE = """# How often the gate is wrong

`traceprobe compare --gate 5%` on runs of which the answer is known. This page is made by
`benchmarks/gate.py` from [`gate.json`](gate.json). One constant follows from such runs, the level
of the intervals: at 95 % a noisy one, `sc21_dali_amp`, gave 5 false alarms in 100.

- **The same**: a run's steps in two halves, compared with each other. *Regression* is a false
  alarm.
- **Slowed**: all times of the run are stretched wherever one class of the partition is at work,
  until it costs 10 % of a step more, and the run is analysed again. A half of it is compared with
  the other half of the run as it was. *Caught* is a regression, *blamed* is that the slowed class
  is the one that grew most.

The halves are first and last, then blocks of ten neighbouring steps drawn at random; those of one
run are not independent of each other. Calibrations are left out, as both halves would share them.
Where a run is too noisy to tell 5 %, the gate says *inconclusive*, and its exit code is 1 too.

{head}
{rows}

{sums}
"""
COLUMNS = (
    *("run", "steps", "the same: pass", "inconclusive", "regression"),
    *("slowed: caught", "and blamed", "inconclusive", "passed"),
)


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """The results as Markdown."""
    lines, quiet = [], []
    for row in rows:
        told = _told(row)
        lines.append(f"| {row['run']} | {row['steps']} | {' | '.join(str(n) for n in told)} |")
        if row["same"].get("inconclusive", 0) < sum(row["same"].values()) / 2:
            quiet.append(row)
    sums = [_sum("All runs", rows), _sum("Runs that are quiet enough to tell 5 %", quiet)]
    head = f"| {' | '.join(COLUMNS)} |\n| --- |{' ---: |' * (len(COLUMNS) - 1)}"
    return PAGE.format(head=head, rows="\n".join(lines), sums="\n".join(sums))


def _told(row: Mapping[str, Any]) -> list[int]:
    same, slow = row["same"], row["slowed"]
    caught = [slow.get(f"regression, {word}", 0) for word in ("blamed", "not blamed")]
    unsure, passed = (
        sum(slow.get(f"{decision}, {word}", 0) for word in ("blamed", "not blamed"))
        for decision in ("inconclusive", "pass")
    )
    decided = [same.get(word, 0) for word in ("pass", "inconclusive", "regression")]
    return [*decided, sum(caught), caught[0], unsure, passed]


def _sum(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    told = [sum(column) for column in zip(*map(_told, rows), strict=True)]
    same, slow = sum(told[:3]), told[3] + told[5] + told[6]
    return (
        f"- {name}: {told[2]} false alarms in {same} self-comparisons ({told[2] / same:.1%}); of "
        f"{slow} slowdowns {told[3]} caught ({told[3] / slow:.1%}), {told[4]} of them blamed on "
        f"the right class, {told[6]} passed ({told[6] / slow:.1%})."
    )


def measure(run: Run, trials: int) -> dict[str, Any]:
    """Both kinds of comparisons of a run."""
    return {
        "run": run.name,
        "steps": len(run.observed.step_ms),
        "same": dict(self_comparisons(run, trials)),
        "slowed": dict(injections(run, trials)),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each run, and the sums."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--trials", type=int, default=100, help="of either kind, for each run")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--page", type=Path)
    given = parser.parse_args(arguments)
    if given.page:
        text = page(json.loads(given.page.read_text(encoding="utf-8")))
        given.page.with_suffix(".md").write_text(text, encoding="utf-8")
        return
    rows: list[dict[str, Any]] = []
    for path in given.runs:
        try:
            run = read(path)
        except (NothingToCompare, traceprobe.TraceprobeError) as error:
            print(f"{path.name}: left out: {error}", flush=True)
            continue
        steps = len(run.observed.step_ms)
        if steps // 2 < ENOUGH_STEPS:
            print(f"{run.name}: left out: {steps} steps, of which no half can be judged")
            continue
        rows.append(measure(run, given.trials))
        print(rows[-1], flush=True)
    print(_sum("All runs", rows))
    if given.output:
        text = json.dumps(rows, indent=1, sort_keys=True)
        given.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
