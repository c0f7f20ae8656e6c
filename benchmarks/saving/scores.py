"""What reports predict, held against what was gained by doing it.

Every prediction is made of one recording of a program as it is and of its step as it was timed
beside its variants. It is held against medians of blocks; a gain is known to half the ranges of the
two steps that it is between.
"""

from __future__ import annotations

import json
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import traceprobe
from benchmarks.rank_correlation import spearman
from benchmarks.saving.catalog import BY_NAME, Program, Variant
from traceprobe.errors import ImpossibleChange
from traceprobe.findings.first_fixes import first_fixes
from traceprobe.records.headroom import Headroom
from traceprobe.records.prediction import JointPrediction, PredictedSaving
from traceprobe.records.report import Finding, Report
from traceprobe.replay.predict import Playable, predict, prepare
from traceprobe.replay.scenario import Changes

WARNS = ("warn", "fail")
FEWEST = 2
"""Blocks without which nothing counts as timed."""
WELL = 0.05
"""Of a step: what its blocks and those of the program as it is may differ by, to be well timed."""


def score(folders: Sequence[Path], injected: Path | None) -> dict[str, Any]:
    """All that was timed and recorded in folders that `recordings.py` left."""
    timed: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for folder in folders:
            for part in sorted(folder.glob("*.tar")):
                with tarfile.open(part) as tar:
                    tar.extractall(place, filter="data")
            for path in [*folder.glob("*.json"), *place.glob("*.json")]:
                found = json.loads(path.read_text())
                if len(found.get("blocks", {}).get("base", ())) >= FEWEST:
                    timed[found["program"]] = found
        programs = [_program(BY_NAME[n], timed[n], place / n) for n in BY_NAME if n in timed]
    rows = [p for p in programs if p is not None]
    result: dict[str, Any] = {"programs": rows, "ranks": correlations(rows)}
    result["injected"] = [] if injected is None else list(_injected(injected))
    return {**result, "short": in_short(result)}


def in_short(result: Mapping[str, Any]) -> dict[str, Any]:
    """How many predictions came true: of findings, of single changes, together, and of faults."""
    programs = result["programs"]
    findings = [f for p in programs for f in p["findings"] if f["measured_ms"] is not None]
    told = [(f, p["base_ms"]) for p in programs for f in p["findings"]
            if f["measured_ms"] is not None and f["predicted_ms"] is not None]  # fmt: skip
    played = [a for p in programs for a in p["ablations"]]
    known = [a for p in programs for a in p["ablations"] if _well_timed(a, p)]
    joint = [p["joint"] for p in programs if p["joint"] and p["joint"]["measured_ms"] is not None]
    bounds = [p["headroom"] for p in programs if p["headroom"]]
    faults = [f for f in result["injected"] if f["predicted_ms"] is not None]
    return {
        "programs": len(programs),
        "findings": len(findings),
        "predicted": len(told),
        "findings_inside": sum(_near(f, f["doubt_ms"]) for f, _ in told),
        "findings_within_5": sum(
            abs(f["predicted_ms"] - f["measured_ms"]) <= 0.05 * base for f, base in told
        ),
        "over_bound": sum(f["measured_ms"] > f["up_to_ms"] + f["doubt_ms"] for f in findings),
        "ablations": len(played),
        "ablations_within_5": sum(abs(a["error"]) <= 0.05 for a in played),
        "ablations_within_10": sum(abs(a["error"]) <= 0.10 for a in played),
        "ablations_inside": sum(a["low_ms"] <= a["measured_ms"] <= a["high_ms"] for a in played),
        "ablations_worst": max((abs(a["error"]) for a in played), default=None),
        "known": len(known),
        "known_within_5": sum(abs(a["error"]) <= 0.05 for a in known),
        "known_within_10": sum(abs(a["error"]) <= 0.10 for a in known),
        "known_inside": sum(a["low_ms"] <= a["measured_ms"] <= a["high_ms"] for a in known),
        "joint": len(joint),
        "joint_inside": sum(j["low_ms"] <= j["measured_ms"] <= j["high_ms"] for j in joint),
        "tuned": len(bounds),
        "tuned_inside": sum(b["inside"] for b in bounds),
        "faults": len(faults),
        "faults_inside": sum(f["low_ms"] <= f["cost_ms"] <= f["high_ms"] for f in faults),
        "faults_within_5": sum(
            abs(f["predicted_ms"] - f["cost_ms"]) <= 0.05 * f["now_ms"] for f in faults
        ),
        "fault_ranks": spearman(
            [f["predicted_ms"] for f in faults], [f["cost_ms"] for f in faults]
        ),
    }


def _well_timed(played: Mapping[str, Any], program: Mapping[str, Any]) -> bool:
    """Whether both steps of a change are known well enough to tell errors of some percent."""
    ranges = (played["range_ms"], program["base_range_ms"])
    return sum(high - low for low, high in ranges) / 2 <= WELL * played["measured_ms"]


def _near(told: Mapping[str, float], doubt: float) -> bool:
    return told["low_ms"] - doubt <= told["measured_ms"] <= told["high_ms"] + doubt


class Times:
    """Steps of the variants of a program, ms."""

    def __init__(self, blocks: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
        self._ms = {k: [b["ms"] for b in v] for k, v in blocks.items() if len(v) >= FEWEST}

    def __contains__(self, name: str) -> bool:
        return name in self._ms

    def step(self, name: str) -> float:
        """The median of its blocks."""
        return median(self._ms[name])

    def range(self, name: str) -> tuple[float, float]:
        """The shortest and the longest block; of four or more without the furthest from the median.

        The first block of a process, when its turn begins, may be twice as long as the others.
        """
        each = sorted(self._ms[name], key=lambda ms: abs(ms - self.step(name)))
        kept = each[: max(len(each) - 1, 3)]
        return min(kept), max(kept)

    def gain(self, name: str) -> float:
        """How much shorter it is than the program as it is."""
        return self.step("base") - self.step(name)

    def doubt(self, name: str) -> float:
        """Half the ranges of the two steps that a gain is between."""
        ranges = [self.range("base"), self.range(name)]
        return sum(high - low for low, high in ranges) / 2


def _program(program: Program, timed: Mapping[str, Any], folder: Path) -> dict[str, Any] | None:
    traces = sorted((folder / "recording").glob("rank*.json.gz"))
    if not traces:
        return None
    times = Times(timed["blocks"])
    report = _report(traces, times.step("base"))
    recorded = _report(traces, None).quality.observer_effect
    first = first_fixes(report)
    findings = [f for f in report.findings if f.status in WARNS and f.saving_ms_per_step]
    return {
        "program": program.name,
        "verdict": report.verdict.bound,
        "base_ms": _ms(times.step("base")),
        "base_range_ms": [_ms(each) for each in times.range("base")],
        "recorded_ms": None if recorded is None else _ms(recorded.unprofiled_step_ms),
        "steps_ms": {v.name: _ms(times.step(v.name)) for v in program.variants if v.name in times},
        "findings": [_finding(program, f, times, first) for f in findings],
        "ablations": list(_ablations(program, report, times, folder / "timing")),
        "joint": _joint(program, report, times),
        "headroom": _headroom(program, report, times),
    }


def _report(traces: Sequence[Path], step_ms: float | None) -> Report:
    options = traceprobe.Options(unprofiled_step_ms=step_ms)
    return traceprobe.analyze([traceprobe.load(path) for path in traces], options)


def follower(program: Program, finding: str, times: Times) -> Variant | None:
    """The variant that does what a finding asks for."""
    for variant in program.variants:
        if finding in variant.answers and variant.name in times:
            return variant
    return None


def _finding(
    program: Program, finding: Finding, times: Times, first: Sequence[Finding]
) -> dict[str, Any]:
    variant = follower(program, finding.id, times)
    told = finding.predicted
    return {
        "finding": finding.id,
        "status": finding.status,
        "place": next((n for n, f in enumerate(first, 1) if f.id == finding.id), None),
        "up_to_ms": _ms(finding.saving_ms_per_step),
        "predicted_ms": _ms(told.ms) if isinstance(told, PredictedSaving) else None,
        "low_ms": _ms(told.low_ms) if isinstance(told, PredictedSaving) else None,
        "high_ms": _ms(told.high_ms) if isinstance(told, PredictedSaving) else None,
        "variant": None if variant is None else variant.name,
        "measured_ms": None if variant is None else _ms(times.gain(variant.name)),
        "doubt_ms": None if variant is None else _ms(times.doubt(variant.name)),
    }


def _ablations(
    program: Program, report: Report, times: Times, folder: Path
) -> Iterator[dict[str, Any]]:
    """What the replay makes of each change, where it is told how much faster kernels get."""
    run = prepare(report)
    for variant in program.variants:
        if variant.play is None or variant.name not in times:
            continue
        trace = folder / f"{program.name}.{variant.name}.json.gz"
        if variant.play.faster and not trace.exists():
            continue
        after = _report([trace], None) if variant.play.faster else report
        gone = {n for n in variant.play.faster if _busy(report, n) and not _busy(after, n)}
        changes = Changes(
            removed=frozenset({*variant.play.removed, *gone}),
            overlapped=frozenset(variant.play.overlapped),
            speedup={
                name: _busy(report, name) / _busy(after, name)
                for name in variant.play.faster
                if _busy(report, name) and _busy(after, name)
            },
        )
        row = _played(run, changes)
        if row is not None:
            step = times.step(variant.name)
            low, high = times.range(variant.name)
            yield {
                "variant": variant.name,
                "change": ", ".join(changes.words()),
                **row,
                "measured_ms": _ms(step),
                "range_ms": [_ms(low), _ms(high)],
                "error": round(row["predicted_ms"] / step - 1, 4),
            }


def _played(run: Playable, changes: Changes) -> dict[str, Any] | None:
    try:
        told = predict(run, changes)
    except ImpossibleChange:
        return None
    return {
        "predicted_ms": _ms(told.predicted),
        "low_ms": _ms(told.low),
        "high_ms": _ms(told.high),
    }


def _busy(report: Report, name: str) -> float:
    summary = report.ranks[0].summary
    return (summary.busy_ns.get(name) or 0) / max(summary.steps, 1)


def _joint(program: Program, report: Report, times: Times) -> dict[str, Any] | None:
    """The joint prediction, and the variant with just these changes where there is one."""
    joint = report.joint
    if not isinstance(joint, JointPrediction):
        return None
    singles = [follower(program, finding, times) for finding in joint.findings]
    names = {variant.name for variant in singles if variant is not None}
    same = [
        v.name
        for v in program.variants
        if v.name in times and (set(v.joins) == names or ({v.name} == names and not v.joins))
    ]
    done = same[0] if same and None not in singles else None
    return {
        "findings": list(joint.findings),
        "predicted_ms": _ms(joint.step_ms),
        "low_ms": _ms(joint.low_ms),
        "high_ms": _ms(joint.high_ms),
        "variant": done,
        "measured_ms": None if done is None else _ms(times.step(done)),
    }


def _headroom(program: Program, report: Report, times: Times) -> dict[str, Any] | None:
    found = report.headroom
    tuned = [v.name for v in program.variants if v.tuned and v.name in times]
    if not isinstance(found, Headroom) or not tuned:
        return None
    best = min(tuned, key=times.step)
    return {
        "floor_ms": _ms(found.floor_ms),
        "reachable_ms": _ms(found.reachable_ms),
        "variant": best,
        "best_ms": _ms(times.step(best)),
        "inside": found.floor_ms <= times.step(best) <= found.reachable_ms,
    }


def correlations(programs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Spearman's rank correlation of predicted gains with measured ones.

    `variants` counts a variant once: for the finding of those it mends that predicts the most.
    """
    rows = [
        {**f, "base_ms": p["base_ms"], "program": p["program"]}
        for p in programs
        for f in p["findings"]
        if f["predicted_ms"] is not None and f["measured_ms"] is not None
    ]
    once = {(r["program"], r["variant"]): r for r in sorted(rows, key=lambda r: r["predicted_ms"])}

    def of(some: Sequence[Mapping[str, Any]], key: str = "predicted_ms") -> float | None:
        return spearman([r[key] for r in some], [r["measured_ms"] for r in some])

    shares = ([r[key] / r["base_ms"] for r in rows] for key in ("predicted_ms", "measured_ms"))
    return {
        "pairs": len(rows),
        "ms": of(rows),
        "share": spearman(*shares),
        "up_to": of(rows, "up_to_ms"),
        "variants": of(list(once.values())),
        "variant_pairs": len(once),
        "programs": {
            p["program"]: of([r for r in rows if r["program"] == p["program"]]) for p in programs
        },
    }


def _injected(folder: Path) -> Iterator[dict[str, Any]]:
    """Faults that `injections.py` put into programs: what mending them saves, what they cost."""
    from benchmarks.injection.recordings import read_rows
    from benchmarks.injection.scores import FINDINGS, felt

    rows = read_rows(folder / "rows.jsonl")
    machine = next(row["machine"] for row in rows if "machine" in row)
    latest = {row["id"]: row for row in rows if "kind" in row}
    with tempfile.TemporaryDirectory() as name:
        for part in sorted(folder.glob("part*.tar")):
            with tarfile.open(part) as tar:
                tar.extractall(name, filter="data")
        for row in latest.values():
            traces = sorted((Path(name) / row["id"]).glob("rank*.json.gz"))
            if not traces or not FINDINGS[row["kind"]] or not felt(row, machine):
                continue
            report = _report(traces, None)
            asking = [
                f for f in report.findings if f.id in FINDINGS[row["kind"]] and f.status in WARNS
            ]
            told = next((f for f in asking if isinstance(f.predicted, PredictedSaving)), None)
            yield {
                "id": row["id"],
                "kind": row["kind"],
                "now_ms": _ms(row["unprofiled_ms"]),
                "cost_ms": _ms(row["unprofiled_ms"] - row["step_ms"]),
                "finding": None if told is None else told.id,
                "predicted_ms": None if told is None else _ms(told.predicted.ms),
                "low_ms": None if told is None else _ms(told.predicted.low_ms),
                "high_ms": None if told is None else _ms(told.predicted.high_ms),
            }


def _ms(value: float | None) -> float:
    return round(value or 0.0, 4)
