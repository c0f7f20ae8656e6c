"""Short captures of a watched run: out of the work folder, and each to its verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from traceprobe.capture.watch.short_captures import ABOUT, FOLDER
from traceprobe.errors import TraceprobeError, UsageError
from traceprobe.formatting import duration, ordinal
from traceprobe.options import Options
from traceprobe.pipeline.files import analyze_files
from traceprobe.records.report import Report
from traceprobe.records.watch import ShortCapture
from traceprobe.system.atomic_write import place

NAME = "step-{}.json.gz"
"""Of a trace, by its first step."""


class About(msgspec.Struct, frozen=True):
    """What the process that was captured says of it; see `capture.watch.capture_trigger.Reason`."""

    first: int
    steps: int
    trace: str
    kind: Literal["spike", "rhythm", "interval"]
    step: int
    period: int
    ms: float


def check_folder(folder: Path, *, replace: bool) -> None:
    """Refuse, before anything runs, where traces could not be kept.

    Raises:
        UsageError: there is no folder but something else, or one with traces that must stay.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"{folder}: is not a folder; choose another output with -o")
    if not replace and any(folder.glob(NAME.format("*"))):
        raise UsageError(
            f"{folder}: has captures; overwrite them with --force, or choose another -o"
        )


def kept_captures(work: Path, folder: Path, *, replace: bool) -> dict[Path, About]:
    """Traces that are complete, moved into a folder that is made for them; in order of steps.

    Args:
        replace: whether traces of an earlier run make room.

    Raises:
        OSError: a trace cannot be put there.
    """
    found = {path.parent: _about(path) for path in work.glob(f"{FOLDER.format('*')}/{ABOUT}")}
    if replace:
        for old in folder.glob(NAME.format("*")):
            old.unlink()
    if not found:
        return {}
    folder.mkdir(exist_ok=True)
    kept = {}
    for source, about in sorted(found.items(), key=lambda item: item[1].first):
        target = folder / NAME.format(about.first)
        place(source / about.trace, target)
        kept[target] = about
    return kept


def analysed(traces: Mapping[Path, About], on_state: Callable[[str], None]) -> list[ShortCapture]:
    """What each capture says. One that cannot be read says why."""
    captures = []
    for number, (path, about) in enumerate(traces.items(), 1):
        on_state(f"analysing capture {number} of {len(traces)}")
        verdict: dict[str, object]
        try:
            verdict = _verdict(analyze_files([path], Options()))
        except (TraceprobeError, OSError):
            verdict = {"headline": "it could not be analysed; `traceprobe analyze` says why"}
        known = {
            "step": about.first,
            "steps": about.steps,
            "reason": about.kind,
            "why": why(about),
            "file": path.name,
        }
        captures.append(msgspec.convert({**known, **verdict}, ShortCapture))
    return captures


def why(about: About) -> str:
    """Why a capture was made, in words."""
    if about.kind == "rhythm":
        return (
            f"every {ordinal(about.period)} step is long, {duration(about.ms * 1e6)} the last "
            f"time; step {about.step:,} was due"
        )
    if about.kind == "spike":
        return f"after step {about.step:,}, which took {duration(about.ms * 1e6)}"
    return "at the interval that was asked for"


def _verdict(report: Report) -> dict[str, object]:
    advice = next(_advices(report), "")
    verdict = report.verdict
    return {
        "bound": verdict.bound,
        "confidence": verdict.confidence,
        "headline": verdict.headline,
        "advice": advice,
    }


def _advices(report: Report) -> Iterator[str]:
    """Of findings that ask for something, in the order of the report."""
    for finding in report.findings:
        if finding.status in ("fail", "warn") and finding.advice:
            yield finding.advice


def _about(path: Path) -> About:
    return msgspec.json.decode(path.read_bytes(), type=About)
