"""docs/validation/steady.md of docs/validation/steady.json.

    python benchmarks/steady_page.py

The runs are those of `benchmarks/steady_runs.py`, measured in sessions: each says when, with which
PyTorch and on what, and what was different in it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "validation"
WITHIN = 2.0
"""% that an unprofiled step should at most be off."""


def page(sessions: list[dict[str, Any]]) -> str:
    """The page."""
    parts = [_HEAD]
    for session in sessions:
        runs = [run for run in session["runs"] if "error" not in run]
        quiet = [run for run in runs if run["neighbour"] is None]
        parts += [f"## {session['title']}\n", session["text"] + "\n", _counts(quiet), _table(runs)]
    return "\n".join(parts)


def _truth(run: dict[str, Any]) -> float:
    """The plain loop after the recording: what the last blocks should have measured."""
    return float(run["after"]["step_ms"])


def _off(run: dict[str, Any], plain: float) -> float:
    return float(100 * (run["unprofiled_step_ms"] / plain - 1))


def _counts(quiet: list[dict[str, Any]]) -> str:
    after = sum(abs(_off(run, _truth(run))) <= WITHIN for run in quiet)
    changed = sum(_clock_ratio(run) >= 1.1 for run in quiet)
    early = [run for run in quiet if "before" in run]
    first, counted = (
        sum(abs(100 * (of(run) / run["before"]["step_ms"] - 1)) <= WITHIN for run in early)
        for of in (lambda run: run["blocks"][0]["step_ms"], lambda run: run["unprofiled_step_ms"])
    )
    return (
        f"Alone on the GPU, {after} of {len(quiet)} unprofiled steps lie within {WITHIN:.0f} % of "
        f"the plain loop after the recording; in {changed} of {len(quiet)} runs the mean clocks of "
        f"the blocks that count differ by 10 % and more. Of {len(early)} runs that were timed "
        f"plainly before any profiler ran, {first} first blocks and {counted} unprofiled steps lie "
        f"within {WITHIN:.0f} % of that.\n"
    )


def _clock_ratio(run: dict[str, Any]) -> float:
    clocks = [b.get("clock", {}).get("sm_mhz") for b in run["blocks"] if b["kept"]]
    known = [mhz for mhz in clocks if mhz]
    return max(known) / min(known) if known else 1.0


def _table(runs: list[dict[str, Any]]) -> str:
    lines = [
        "| run | warm-up | period | blocks, ms (p: profiled; in brackets: not counted) "
        "| unprofiled | plain before | plain after | off | clocks |",
        "| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for run in runs:
        before = f"{run['before']['step_ms']:.2f}" if "before" in run else ""
        lines.append(
            f"| `{run['name']}` | {run['warmup']['steps']} | {run['warmup']['period']} "
            f"| {' '.join(map(_block, run['blocks']))} | {run['unprofiled_step_ms']:.2f} "
            f"| {before} | {_truth(run):.2f} | {_off(run, _truth(run)):+.1f} % "
            f"| {_clock_ratio(run):.2f} |"
        )
    return "\n".join(lines) + "\n"


def _block(block: dict[str, Any]) -> str:
    text = f"{block['step_ms']:.2f}{'p' * block['profiled']}"
    return text if block["kept"] else f"({text})"


_HEAD = """# Steady recordings, measured

Made by `python benchmarks/steady_page.py` from [`steady.json`](steady.json), which
`benchmarks/steady_runs.py` measured: training loops, each in a process of its own, recorded as
`traceprobe profile` does and timed plainly for two seconds or more after the recording, and in runs
without `-cold` also before it. "off" is the unprofiled step against the plain loop after it; the
clocks are the highest mean of a block that counts over the lowest.
"""


if __name__ == "__main__":
    text = page(json.loads((FOLDER / "steady.json").read_text()))
    (FOLDER / "steady.md").write_text(text)
