"""docs/validation/steady.md of docs/validation/steady.json.

    python benchmarks/steady_page.py

The runs are those of `benchmarks/steady_runs.py`, measured in sessions: each says when, with which
PyTorch and on what, and what was different in it.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, median
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "validation"
WITHIN = 2.0
"""% that an unprofiled step should at most be off."""


def page(sessions: list[dict[str, Any]]) -> str:
    """The page."""
    parts = [_HEAD]
    for session in sessions:
        runs = [run for run in session["runs"] if "error" not in run]
        parts += [f"## {session['title']}\n", session["text"] + "\n", _counts(runs), _table(runs)]
    return "\n".join(parts)


def _plain(run: dict[str, Any]) -> list[float]:
    """The halves of the plain loop, before the recording and after it."""
    kinds = [run[when] for when in ("before", "after") if when in run]
    return [float(each[half]) for each in kinds for half in ("first_half_ms", "second_half_ms")]


def _off(run: dict[str, Any]) -> float:
    """The unprofiled step against the mean of the plain loop, %."""
    return 100 * (run["unprofiled_step_ms"] / fmean(_plain(run)) - 1)


def _beyond(run: dict[str, Any]) -> float:
    """How far it lies outside of what the halves of the plain loop took, %."""
    step, halves = run["unprofiled_step_ms"], _plain(run)
    return 100 * max(step / max(halves) - 1, 1 - step / min(halves), 0.0)


def _slower(run: dict[str, Any]) -> float:
    """The plain loop after a recording against before it, %."""
    return float(100 * (run["after"]["step_ms"] / run["before"]["step_ms"] - 1))


def _counts(runs: list[dict[str, Any]]) -> str:
    near = sum(abs(_off(run)) <= WITHIN for run in runs)
    inside = sum(_beyond(run) <= WITHIN for run in runs)
    quiet = [run for run in runs if run["neighbour"] is None]
    changed = sum(_clock_ratio(run) >= 1.1 for run in quiet)
    slower = [_slower(run) for run in runs if "before" in run]
    return (
        f"**{near} of {len(runs)} unprofiled steps lie within {WITHIN:.0f} % of the mean of the "
        f"plain loop, {inside} within {WITHIN:.0f} % of the range of its halves.** In {changed} of "
        f"{len(quiet)} runs without a neighbour the mean clocks of the blocks that count differ by "
        f"10 % and more. The plain loop after a recording took {median(slower):+.1f} % against "
        f"before it (median of {len(slower)}; {min(slower):+.1f} to {max(slower):+.1f} %).\n"
    )


def _clock_ratio(run: dict[str, Any]) -> float:
    clocks = [b.get("clock", {}).get("sm_mhz") for b in run["blocks"] if b["kept"]]
    known = [mhz for mhz in clocks if mhz]
    return max(known) / min(known) if known else 1.0


def _table(runs: list[dict[str, Any]]) -> str:
    lines = [
        "| run | warm-up | period | blocks, ms (p: profiled; in brackets: not counted) "
        "| unprofiled | plain before | plain after | off | beyond | clocks |",
        "| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| `{run['name']}` | {run['warmup']['steps']} | {run['warmup']['period']} "
        f"| {' '.join(map(_block, run['blocks']))} | {run['unprofiled_step_ms']:.2f} "
        f"| {_halves(run, 'before')} | {_halves(run, 'after')} | {_off(run):+.1f} % "
        f"| {_beyond(run):.1f} % | {_clock_ratio(run):.2f} |"
        for run in runs
    ]
    return "\n".join(lines) + "\n"


def _halves(run: dict[str, Any], when: str) -> str:
    halves = ("first_half_ms", "second_half_ms")
    return ", ".join(f"{run[when][half]:.2f}" for half in halves) if when in run else ""


def _block(block: dict[str, Any]) -> str:
    text = f"{block['step_ms']:.2f}{'p' * block['profiled']}"
    return text if block["kept"] else f"({text})"


_HEAD = """# Steady recordings, measured

Made by `python benchmarks/steady_page.py` from [`steady.json`](steady.json), which
`benchmarks/steady_runs.py` measured: training loops, each in a process of its own, recorded as
`traceprobe profile` does and timed plainly, in two halves, after the recording, and in most runs
also before it. "off" is the unprofiled step against the mean of these halves, "beyond" how far it
lies outside of them: a loop that the host limits has no one step on a machine that others use too,
where its pace wanders by 10 % and more from one second to the next. The clocks are the highest mean
of a block that counts over the lowest.
"""


if __name__ == "__main__":
    text = page(json.loads((FOLDER / "steady.json").read_text()))
    (FOLDER / "steady.md").write_text(text)
