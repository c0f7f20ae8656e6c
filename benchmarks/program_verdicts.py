"""What the recordings of `programs.py` are judged to be, and what the ablations say they are."""

from __future__ import annotations

import gzip
import json
import tarfile
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

import traceprobe
from traceprobe.errors import TraceprobeError
from traceprobe.verdict.bounds import by_threshold
from traceprobe.verdict.thresholds import Thresholds

_GPU_CATEGORIES = {"kernel", "gpu_memset"}
_COMMUNICATION = "nccl"
_PHASES = (
    "forward",
    "backward",
    "recompute",
    "optimizer",
    "graph",
    "input",
    "unattributed",
)


def analyze(folders: list[Path]) -> dict[str, Any]:
    """The rows that `programs.py run` left in folders, with truths and verdicts.

    Where a row is in several folders, the last one that has its times counts, and of each profiler
    the last recording.
    """
    machine: dict[str, Any] = {}
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        traces = Path(name)
        for folder in folders:
            left = json.loads((folder / "rows.json").read_text())
            machine = left["machine"]
            for part in sorted(folder.glob("part*.tar")):
                with tarfile.open(part) as tar:
                    tar.extractall(traces, filter="data")
            for row in left["rows"].values():
                known = rows.setdefault(row["name"], row)
                if row["variants"]:
                    known["variants"], known["clocks_mhz"] = row["variants"], row["clocks_mhz"]
                known["recordings"] |= row["recordings"]
        for row in rows.values():
            kept = traces / row["name"]
            row["truth"] = truth(row, sorted((kept / "torch").glob("rank*.json.gz")))
            row["verdicts"] = {
                backend.name: judged(sorted(backend.iterdir()))
                for backend in sorted(kept.glob("*"))
            }
    return {"machine": machine, "rows": rows}


def truth(row: dict[str, Any], traces: list[Path]) -> dict[str, Any] | None:
    """Shares of the step as measured without traceprobe; None where the program was not timed.

    A part's share is what the step gets shorter by without it. What of the rest the GPU computes is
    known from the kernels of a Kineto recording, whose durations a profiler leaves as they are;
    what then remains is overhead.
    """
    times = {name: list(by_rank.values()) for name, by_rank in row["variants"].items()}
    if None in times.get("as it is", [None]):
        return None
    step = mean(times["as it is"])
    shares = {"io": 0.0, "communication": 0.0}
    if None not in times.get("loading", [None]):
        shares["io"] = max(1 - mean(times["loading"]) / step, 0.0)
    if None not in times.get("communication", [None]):
        shares["communication"] = max(1 - max(times["communication"]) / row["alone"] / step, 0.0)
    found: dict[str, Any] = {"step_ms": step}
    if None not in times.get("host", [None]):
        found["host"] = max(1 - mean(times["host"]) / step, 0.0)
    if traces:
        computing = mean(computing_ms(path, row["updates"]) for path in traces)
        rest = 1 - computing / step - sum(shares.values())
        shares["overhead"] = max(rest, 0.0)
        found["computing_ms"] = computing
        found["backward"] = mean(map(backward_share, traces))
    decision = by_threshold(shares, Thresholds())  # type: ignore[arg-type]
    return {**found, "shares": shares, "bound": decision.bound, "margin": decision.margin}


def computing_ms(path: Path, updates: int) -> float:
    """Time of an iteration in which kernels other than collectives run, from the trace's own rows.

    Args:
        path: of a Kineto trace with `ProfilerStep#` ranges. updates: of these, in an iteration.
    """
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    steps = sum(
        str(e.get("name", "")).startswith("ProfilerStep#") and e.get("cat") == "user_annotation"
        for e in events
    )
    times = np.array(
        sorted(
            (e["ts"], e["ts"] + e["dur"])
            for e in events
            if e.get("cat") in _GPU_CATEGORIES and not e["name"].startswith(_COMMUNICATION)
        )
    )
    if not len(times):
        return 0.0
    ends = np.maximum.accumulate(times[:, 1])
    before = np.concatenate([[-np.inf], ends[:-1]])
    busy = np.maximum(times[:, 1] - np.maximum(times[:, 0], before), 0).sum()
    return float(busy) / 1e3 / max(steps, 1) * updates


def backward_share(path: Path) -> float:
    """Part of the kernel time, collectives left out, that a thread of autograd launched.

    Such a thread runs operators with a `Fwd thread id`. Forward operators that are run again there
    count too.

    Args:
        path: of a Kineto trace.
    """
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    autograd = {e["tid"] for e in events if (e.get("args") or {}).get("Fwd thread id")}
    launched = {
        e["args"]["correlation"]: e["tid"]
        for e in events
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e.get("args", {})
    }
    spent = {True: 0.0, False: 0.0}
    for e in events:
        if e.get("cat") == "kernel" and not e["name"].startswith(_COMMUNICATION):
            thread = launched.get(e.get("args", {}).get("correlation"))
            if thread is not None:
                spent[thread in autograd] += e["dur"]
    return spent[True] / (sum(spent.values()) or 1.0)


def judged(traces: list[Path]) -> dict[str, Any]:
    """The verdict on a recording, and what is compared of it."""
    try:
        report = traceprobe.analyze([traceprobe.load(path) for path in traces])
    except TraceprobeError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    verdict, first = report.verdict, report.ranks[0]
    busy, effect = first.summary.busy_ns, report.quality.observer_effect
    phases = {name: ns for name in _PHASES if (ns := busy.get(name))}
    return {
        "bound": verdict.bound,
        "secondary": verdict.secondary,
        "confidence": verdict.confidence,
        "shares": verdict.shares,
        "calibrated_ms": None if effect is None else effect.unprofiled_step_ms,
        "iterations": first.summary.iterations_used,
        "step_ms": None if first.summary.step_ms is None else first.summary.step_ms.mean,
        "marker": None if first.step_marker is None else first.step_marker.kind,
        "phases": {name: ns / sum(phases.values()) for name, ns in phases.items()},
        "findings": [f.id for f in report.findings if f.status in ("fail", "warn")],
        "warnings": [warning.code for warning in report.quality.warnings],
    }
