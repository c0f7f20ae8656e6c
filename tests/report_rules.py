"""The contract of report.json beyond its types: the sums, signs and orders that docs promise.

`problems(text)` lists what a report breaks; a report that keeps the contract gives an empty list.
While the tests run, every report that any of them makes is checked (`conftest.py`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from itertools import pairwise

import jsonschema

from tests.conftest import ROOT
from traceprobe import analysis
from traceprobe.report.result import BUSY, IDLE_CAUSES, PARTITION, SHARES

SCHEMA = ROOT / "traceprobe" / "report" / "report.schema.json"
ROUNDING = 1e-5
MEMBERS = {
    "io": ("idle_data_wait", "h2d"),
    "communication": ("communication",),
    "overhead": ("idle_host", "idle_sync", "idle_latency"),
    "compute": (*PARTITION[: PARTITION.index("communication")], "memory"),
    "other": ("idle_profiler", "idle_unexplained", "d2h"),
}
STATUSES = ("fail", "warn", "inconclusive", "pass", "not-applicable")


@contextmanager
def watching() -> Iterator[None]:
    """Check every report that is made meanwhile, where it is made."""
    merge = analysis.merge

    def checked(*arguments):
        report = merge(*arguments)
        assert problems(report.to_json()) == []
        return report

    analysis.merge = checked
    yield
    analysis.merge = merge


@cache
def validator():
    return jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


@lru_cache(maxsize=4)
def problems(text: str) -> list[str]:
    """Everything about a report's text that its contract forbids."""
    found: list[str] = []
    report = json.loads(text, parse_constant=lambda value: found.append(f"holds {value}"))
    found += [f"schema: {e.json_path}: {e.message[:200]}" for e in validator().iter_errors(report)]
    if found:
        return found
    return [
        *_text(text, report),
        *(
            f"rank {n}: {p}"
            for n, rank in enumerate(report["ranks"])
            for p in (_rank(rank) if _detailed(rank, report["run"]) else _brief(rank))
        ),
        *_whole(report),
        *_verdict(report["verdict"]),
        *_findings(report),
    ]


def _text(text: str, report: dict) -> Iterator[str]:
    """The form of the text."""
    if json.dumps(report, sort_keys=True) != json.dumps(report):
        yield "keys are not sorted"
    if not text.endswith("}\n"):
        yield "does not end in a newline"


def _detailed(rank: dict, run: dict | None) -> bool:
    overview = (run or {}).get("overview")
    return overview is None or rank["rank"] in overview["detailed_ranks"]


def _brief(rank: dict) -> Iterator[str]:
    """A rank of a large run of which only the summary stays."""
    summary = rank["summary"]
    yield from _sums("summary", summary, summary["window_ns"])
    details = [rank[key] for key in ("iterations", "gaps", "timeline", "worst")]
    if any([*details, summary["top_kernels"], summary["collectives"]]):
        yield "has details although it is not listed as detailed"


def _rank(rank: dict) -> Iterator[str]:
    summary = rank["summary"]
    yield from _sums("summary", summary, summary["window_ns"])
    used = [i for i in rank["iterations"] if i["used"]]
    windows = [i for i in rank["iterations"] if i["start_ns"] is not None]
    for i in rank["iterations"]:
        name = f"iteration {i['index']}"
        present = {i[key] is not None for key in ("start_ns", "end_ns", "partition_ns", "busy_ns")}
        if len(present) > 1:
            yield f"{name} has half a window"
        elif True in present:
            yield from _sums(name, i, i["end_ns"] - i["start_ns"])
        if i["used"] == (i["skip_reason"] is not None):
            yield f"{name} is used and skipped, or neither"
        if i["used"] and i["start_ns"] is None:
            yield f"{name} is used without a window"
    if [i["index"] for i in rank["iterations"]] != list(range(len(rank["iterations"]))):
        yield "iterations are not numbered from 0"
    if any(a["end_ns"] > b["start_ns"] for a, b in pairwise(windows)):
        yield "windows overlap or are out of order"
    if summary["iterations_used"] != len(used):
        yield "iterations_used is not the number of used iterations"
    if (rank["step_marker"] is None) != (not rank["iterations"]):
        yield "iterations without a marker, or a marker without iterations"
    yield from _summary(summary, used or windows)
    yield from _gaps(rank, windows)
    yield from _timeline(rank)


def _sums(name: str, record: dict, window: int) -> Iterator[str]:
    part, busy = record["partition_ns"], record["busy_ns"]
    if set(part) != set(PARTITION) or set(busy) != set(BUSY):
        yield f"{name}: classes differ from the contract"
    if sum(value or 0 for value in part.values()) != window:
        yield f"{name}: the partition does not sum to the window"
    for key in BUSY:
        if (part[key] is None) != (busy[key] is None):
            yield f"{name}: {key} is observed in one of partition and busy"
        elif not (part[key] or 0) <= (busy[key] or 0) <= window:
            yield f"{name}: {key} is exclusive {part[key]}, busy {busy[key]}, window {window}"


def _summary(summary: dict, covered: list[dict]) -> Iterator[str]:
    """Totals are those of the iterations; what stands twice says the same twice."""
    if covered and summary["window_ns"] != sum(i["end_ns"] - i["start_ns"] for i in covered):
        yield "window_ns is not the sum of its iterations"
    for kind in ("partition_ns", "busy_ns"):
        for key, total in summary[kind].items():
            if covered and (total or 0) != sum(i[kind][key] or 0 for i in covered):
                yield f"summary.{kind}.{key} is not the sum of its iterations"
    part, window = summary["partition_ns"], summary["window_ns"]
    for name in SHARES:
        share = sum(part[key] or 0 for key in MEMBERS[name]) / window if window else 0
        if abs(summary["share"][name] - share) > ROUNDING:
            yield f"share.{name} is not that of the partition"
    if window and abs(sum(summary["share"].values()) - 1) > ROUNDING:
        yield "share does not sum to 1"
    waited = [i["skew_exposed_ns"] for i in covered if i["skew_exposed_ns"] is not None]
    if waited and sum(waited) != (summary["communication"] or {}).get("skew_exposed_ns"):
        yield "skew_exposed_ns is not the sum of its iterations"
    for name in ("communication", "h2d"):
        record = summary[name]
        if (record is None) != (part[name] is None):
            yield f"{name} is observed in one of partition and record"
        elif record is not None:
            if record["exposed_ns"] != part[name] or record["total_ns"] != summary["busy_ns"][name]:
                yield f"{name}: exposed or total differ from partition or busy"
            if record["exposed_ns"] + record["overlapped_ns"] > record["total_ns"]:
                yield f"{name}: exposed and overlapped exceed the total"
    if (summary["step_ms"] is None) != (summary["iterations_used"] == 0):
        yield "step_ms without used iterations, or the reverse"
    if summary["step_ms"]:
        mean = window / summary["iterations_used"] / 1e6
        if not math.isclose(summary["step_ms"]["mean"], mean, rel_tol=1e-5, abs_tol=2e-6):
            yield "step_ms.mean is not the mean window"
    totals = [-k["total_ns"] for k in summary["top_kernels"]]
    kernels = summary["top_kernels"]
    beyond = [k for i, k in enumerate(kernels) if i >= 15 and _place(kernels, i, k["phase"]) > 6]
    if totals != sorted(totals) or beyond:
        yield "top_kernels are out of order or too many"
    for phase in {k["phase"] for k in kernels}:
        if sum(k["phase_share"] for k in kernels if k["phase"] == phase) > 1.0001:
            yield f"the kernels of {phase} take more than its time"
    yield from _collectives(summary)


def _place(kernels: list[dict], index: int, phase: str) -> int:
    """Place of a kernel among those of its phase, from 1."""
    return sum(k["phase"] == phase for k in kernels[: index + 1])


def _collectives(summary: dict) -> Iterator[str]:
    groups, communication = summary["collectives"], summary["communication"]
    totals = [-g["total_ns"] for g in groups]
    if totals != sorted(totals) or len(totals) > 20:
        yield "collectives are out of order or too many"
    for group in groups:
        if group["exposed_ns"] + group["overlapped_ns"] != group["total_ns"]:
            yield "a group of collectives is not the sum of exposed and overlapped"
        # Collectives that take no time at all are no communication, but they were launched.
        if group["total_ns"] > (communication["total_ns"] if communication else 0):
            yield "a group of collectives exceeds all communication"
        if group["matched"] > group["count"] or bool(group["matched"]) != (
            group["transfer_ns"] is not None
        ):
            yield "a group of collectives has transfer without matches, or the reverse"
        if group["bytes"] is None and group["algbw_at_least_gbps"] is not None:
            yield "a group of collectives has a bandwidth without bytes"
    whole = not summary["collectives_left_out"] and communication is not None
    if whole and summary["collectives_per_step"] is not None:
        counted = sum(g["count"] for g in groups) / summary["iterations_used"]
        if abs(counted - summary["collectives_per_step"]) > 0.001:
            yield "collectives are counted differently in total and by group"


def _gaps(rank: dict, windows: list[dict]) -> Iterator[str]:
    gaps = rank["gaps"]
    order = [(g["start_ns"] - g["end_ns"], g["start_ns"]) for g in gaps]
    if order != sorted(order) or len(gaps) > 50:
        yield "gaps are out of order or too many"
    if any(length >= 0 for length, _ in order):
        yield "a gap is empty"
    if {g["cause"] for g in gaps} - set(IDLE_CAUSES):
        yield "a gap has an unknown cause"
    inside = {i["index"]: (i["start_ns"], i["end_ns"]) for i in windows}
    for gap in gaps:
        low, high = inside.get(gap["iteration"], (0, gap["start_ns"] + 1))
        if windows and not low <= gap["start_ns"] < high:
            yield "a gap is outside of its iteration"


def _timeline(rank: dict) -> Iterator[str]:
    picture = rank["timeline"]
    for lane in picture["lanes"] if picture else ():
        columns = [lane[key] for key in ("start_ns", "duration_ns", "label", "detail")]
        if len({len(column) for column in columns}) != 1 or not columns[0]:
            yield f"lane {lane['name']} is empty or its columns differ in length"
        ends = [a + b for a, b in zip(*columns[:2], strict=True)]
        if columns[0] != sorted(columns[0]) or max(ends) > picture["duration_ns"]:
            yield f"lane {lane['name']} is out of order or leaves the picture"
        if set(lane["label"]) - set(PARTITION):
            yield f"lane {lane['name']} has unknown labels"


def _whole(report: dict) -> Iterator[str]:
    quality, run = report["quality"], report["run"]
    codes = [w["code"] for w in quality["warnings"]]
    if codes != sorted(set(codes)):
        yield "warnings are out of order or repeated"
    if quality["gpu_ops_linked"] > quality["gpu_ops"]:
        yield "more linked ops than ops"
    places = [(r["input"], r["pid"], r["device"]["index"]) for r in report["ranks"]]
    if places != sorted(set(places)) or not places:
        yield "ranks are out of order or repeated"
    if any(not 0 <= r["input"] < len(report["inputs"]) for r in report["ranks"]):
        yield "a rank has no input"
    if run is not None:
        if (run["transfer_ns"] is None) != (run["skew_ns"] is None):
            yield "transfer without skew, or the reverse"
        if (run["straggler_rank"] is None) != (run["straggler_cause"] is None):
            yield "straggler without a cause, or the reverse"
        yield from _overview(report)
        causes = run["skew_causes"]
        if causes and (run["skew_ns"] is None or abs(sum(causes.values()) - 1) > ROUNDING):
            yield "skew_causes without skew, or they do not sum to 1"


def _overview(report: dict) -> Iterator[str]:
    overview, ranks = report["run"].get("overview"), [r["rank"] for r in report["ranks"]]
    if overview is None:
        return
    members = [rank for group in overview["groups"] for rank in group["members"]]
    if sorted(members) != sorted(ranks) or overview["steps"]["ranks"] != ranks:
        yield "the overview does not hold every rank once"
    if any(group["median_rank"] not in group["members"] for group in overview["groups"]):
        yield "the median of a group is not a member"
    named = {overview["worst_rank"], overview["median_rank"]}
    if not named <= set(overview["detailed_ranks"]) <= set(ranks):
        yield "the worst or the median rank has no details"
    width = len(overview["steps"]["labels"])
    if width > 64 or {len(row) for row in overview["steps"]["step_ms"]} != {width}:
        yield "the matrix of steps is ragged or too wide"


def _verdict(verdict: dict) -> Iterator[str]:
    if set(verdict["shares"]) != set(SHARES) or abs(sum(verdict["shares"].values()) - 1) > ROUNDING:
        yield "verdict.shares do not sum to 1"
    inconclusive = verdict["bound"] == "inconclusive"
    if inconclusive != bool(verdict["missing"]) or inconclusive == bool(
        verdict["confidence_terms"]
    ):
        yield "an inconclusive verdict names what is missing and has no terms; others the reverse"
    total = sum(term["value"] for term in verdict["confidence_terms"])
    if abs(verdict["confidence"] - min(max(total, 0), 1)) > 5e-4 + ROUNDING:
        yield "the terms do not add up to the confidence"
    if ("+" in (verdict["secondary"] or "")) != (verdict["bound"] == "mixed"):
        yield "a mixed verdict, and no other, has two names in secondary"


def _findings(report: dict) -> Iterator[str]:
    order = [
        (STATUSES.index(f["status"]), -(f["saving_ms_per_step"] or 0), f["id"])
        for f in report["findings"]
    ]
    if order != sorted(order):
        yield "findings are out of order"
    if len({f["id"] for f in report["findings"]}) != len(order):
        yield "a finding is repeated"
    steps = [r["summary"]["step_ms"] for r in report["ranks"] if r["summary"]["step_ms"]]
    longest = max((s["mean"] for s in steps), default=math.inf)
    for finding in report["findings"]:
        saving = finding["saving_ms_per_step"]
        if saving is not None and not 0 < saving <= longest * (1 + ROUNDING) + 1e-3:
            yield f"{finding['id']} saves {saving} of {longest} ms"
        if finding["status"] in ("fail", "warn") and not finding["advice"]:
            yield f"{finding['id']} gives no advice"
        if not finding["evidence"]:
            yield f"{finding['id']} has no evidence"
