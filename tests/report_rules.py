"""The contract of report.json beyond its types: what docs promise of orders, lengths and texts.

Sums and what else every run checks of itself are the product's own rules, see
`traceprobe.pipeline.invariants`.
`problems(text)` lists what a report breaks; a report that keeps the contract gives an empty list.
While the tests run, every report that any of them makes is checked (`conftest.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache

import jsonschema_rs
import msgspec

from tests.conftest import ROOT
from traceprobe.model.taxonomy import PARTITION
from traceprobe.pipeline import merge as analysis
from traceprobe.records.report import Report

SCHEMA = ROOT / "traceprobe" / "records" / "report.schema.json"
ROUNDING = 1e-5
MEMBERS = {
    "io": ("idle_data_wait", "h2d"),
    "communication": ("communication",),
    "overhead": ("idle_host", "idle_sync", "idle_latency"),
    "compute": (*PARTITION[: PARTITION.index("communication")], "memory"),
    "other": ("idle_profiler", "idle_unexplained", "d2h"),
}
CAUSES = (
    *("synchronization", "allocator-stalls", "recompilation", "host-pauses", "data-parallel"),
    "data-wait",  # what a rank is late by that `communication-skew` waits for
)
STATUSES = ("fail", "warn", "inconclusive", "pass", "not-applicable")


@contextmanager
def watching() -> Iterator[None]:
    """Check every report that is made meanwhile, where it is made."""
    merge = analysis.merge

    def checked(*arguments):
        report = merge(*arguments)
        found = problems(report.to_json())
        assert not found, found[:20]
        return report

    analysis.merge = checked
    yield
    analysis.merge = merge


def schema() -> dict:
    return json.loads(SCHEMA.read_text(encoding="utf-8"))


@cache
def validator():
    return jsonschema_rs.Draft202012Validator(schema())


@lru_cache(maxsize=4)
def problems(text: str) -> list[str]:
    """Everything about a report's text that its contract forbids."""
    found: list[str] = []
    report = json.loads(text, parse_constant=lambda value: found.append(f"holds {value}"))
    wrong = validator().iter_errors(report)
    found += [f"schema: {e.instance_path}: {e.message[:200]}" for e in wrong]
    if found:
        return found
    return [
        *_text(text, report),
        *msgspec.json.decode(text, type=Report).problems(),
        *(f"rank {n}: {p}" for n, rank in enumerate(report["ranks"]) for p in _rank(rank)),
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


def _rank(rank: dict) -> Iterator[str]:
    """What a table may list, and in which order."""
    summary, gaps = rank["summary"], rank["gaps"]
    for name, members in MEMBERS.items():
        part, window = summary["partition_ns"], summary["window_ns"]
        share = sum(part[key] or 0 for key in members) / window if window else 0
        if abs(summary["share"][name] - share) > ROUNDING:
            yield f"share.{name} is not that of its classes"
    kernels = summary["top_kernels"]
    totals = [-k["total_ns"] for k in kernels]
    beyond = [k for i, k in enumerate(kernels) if i >= 15 and _place(kernels, i, k["phase"]) > 6]
    if totals != sorted(totals) or beyond:
        yield "top_kernels are out of order or too many"
    for phase in {k["phase"] for k in kernels}:
        if sum(k["phase_share"] for k in kernels if k["phase"] == phase) > 1.0001:
            yield f"the kernels of {phase} take more than its time"
    totals = [-g["total_ns"] for g in summary["collectives"]]
    if totals != sorted(totals) or len(totals) > 20:
        yield "collectives are out of order or too many"
    order = [(g["start_ns"] - g["end_ns"], g["start_ns"]) for g in gaps]
    if order != sorted(order) or len(gaps) > 50:
        yield "gaps are out of order or too many"


def _place(kernels: list[dict], index: int, phase: str) -> int:
    """Place of a kernel among those of its phase, from 1."""
    return sum(k["phase"] == phase for k in kernels[: index + 1])


def _whole(report: dict) -> Iterator[str]:
    codes = [w["code"] for w in report["quality"]["warnings"]]
    if codes != sorted(set(codes)):
        yield "warnings are out of order or repeated"
    overview = (report["run"] or {}).get("overview")
    if overview is not None and len(overview["steps"]["labels"]) > 64:
        yield "the matrix of steps is too wide"


def _verdict(verdict: dict) -> Iterator[str]:
    inconclusive = verdict["bound"] == "inconclusive"
    if inconclusive != bool(verdict["missing"]) or inconclusive == bool(
        verdict["confidence_terms"]
    ):
        yield "an inconclusive verdict names what is missing and has no terms; others the reverse"
    if ("+" in (verdict["secondary"] or "")) != (verdict["bound"] == "mixed"):
        yield "a mixed verdict, and no other, has two names in secondary"


def _gain(finding: dict) -> float:
    """By what findings are ordered: as predicted, else at most."""
    predicted = finding.get("predicted")
    return predicted["ms"] if predicted else finding["saving_ms_per_step"] or 0


def _urgency(finding: dict) -> tuple[int, float, float, int, str]:
    status = STATUSES.index(finding["status"])
    bound = finding["saving_ms_per_step"] or 0
    return max(status - 1, 0), -round(_gain(finding), 2), -bound, status, finding["id"]


def _ordered(order: list[tuple[int, float, float, int, str]]) -> bool:
    """Sorted, but that a cause may be told earlier, before a general finding about its time."""
    others = [f for f in order if f[-1] not in CAUSES]
    late = [f for f in order if order.index(f) > sorted(order).index(f) + len(CAUSES)]
    return others == sorted(others) and not any(f[-1] in CAUSES for f in late)


def _findings(report: dict) -> Iterator[str]:
    order = [_urgency(f) for f in report["findings"]]
    asking = [place for place, finding in enumerate(order) if finding[0] == 0]
    # What to do first, at most three of those that ask for a change, is told before the others.
    firsts = [n for n in range(4) if asking[:n] == list(range(n))]
    if not any(_ordered(order[n:]) for n in firsts):
        yield "findings are out of order"
    if len({f["id"] for f in report["findings"]}) != len(order):
        yield "a finding is repeated"
    for finding in report["findings"]:
        if finding["status"] in ("fail", "warn") and not finding["advice"]:
            yield f"{finding['id']} gives no advice"
        if not finding["evidence"]:
            yield f"{finding['id']} has no evidence"
