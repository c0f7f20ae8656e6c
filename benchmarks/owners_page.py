"""The page of docs/validation on what names cost and how much of the GPU's time has an owner.

    python benchmarks/owners_page.py      # docs/validation/owners.md from owners.json

`owners.json` holds `cost`, what `blame_cost.py` measured of some programs, and `ways`, the rows of
`owner_share.py`, with their machine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "validation" / "owners.json"
LEVELS = ("operator", "module", "line")


def page(found: dict[str, Any]) -> str:
    """The Markdown of the results."""
    machine = found["machine"]
    where = f"{machine['gpu']}, PyTorch {machine['torch']}"
    lines = [
        "# What names cost, and whose the GPU's time is",
        "",
        "Made by `python benchmarks/owners_page.py` from [`owners.json`](owners.json). "
        f"{where}, a host that others share.",
        "",
        "## The timed capture with and without the second one",
        "",
        "`benchmarks/blame_cost.py`: pairs of recordings, with names and with `--no-blame`, in",
        "turn. Difference of the mean step of the timed capture: median of the pairs, and the",
        "least and the largest. Nothing of the second capture is installed before the timed one",
        "has ended. A program that is bound by its host was measured beside it on the same",
        "machine, too noisily to say anything (−17 to +41 %, and as much before any naming); it",
        "is to be measured again, alone.",
        "",
        "| program | pairs | step, ms | difference | least to largest |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for row in found["cost"]:
        steps = row["compared"]["step_ms"]
        low, high = min(steps["differences"]), max(steps["differences"])
        lines.append(
            f"| {row['name']} | {len(steps['differences'])} | {row['step_ms']:.1f} | "
            f"{100 * steps['median']:+.2f} % | {100 * low:+.2f} to {100 * high:+.2f} % |"
        )
    lines += [
        "",
        "## Compiled code and CUDA graphs",
        "",
        "`benchmarks/owner_share.py`: six steps of a small GPT-2, recorded with names. Share of",
        "the GPU's busy time with an operator, a module or a line, without what the recording",
        "notes of compiled code and of captures, and with it. Operators of the compiler, which",
        "only say that code is compiled, do not count.",
        "",
        f"| way | {' | '.join(LEVELS)} | kernels noted |",
        f"| --- | {' | '.join('---:' for _ in LEVELS)} | --- |",
    ]
    for way, row in found["ways"].items():
        shares = [
            f"{100 * row['before'][level]:.1f} → {100 * row['after'][level]:.1f} %"
            for level in LEVELS
        ]
        noted = row["noted"]
        said = "–" if noted is None else f"{noted['compiled']} compiled, {noted['graphs']} graphs"
        lines.append(f"| {way} | {' | '.join(shares)} | {said} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.with_suffix(".md").write_text(page(json.loads(PAGE.read_text())))
