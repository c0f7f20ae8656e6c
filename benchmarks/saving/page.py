"""The page about predicted savings and what was gained, from the scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
PAGE = """# Do predicted savings come true?

Twelve training programs, each with some of the usual causes of slowness, were recorded once, as
`traceprobe profile -- python PROGRAM` records any. Then they were timed, without a profiler, beside
variants from which one cause was taken away, or several. What the report of the recording predicts
is held against that. This page is made by `python benchmarks/savings.py page` from
[`savings.json`](savings.json).

- **Programs**: in `benchmarks/training_programs`, plain and without a word for a profiler: photos
  that are decoded, volumes that are cut in the training process, a GPT with attention written out,
  a BERT in fp32 that is checkpointed, a ResNet whose gradients are watched, a recurrent network
  cell by cell, clicks from tables, diffusion with an average of the weights in Python, a graph
  network whose features are on the host, segmentation with NumPy, a vision transformer by its
  formulas, a translator with smoothed labels. The variants are in `benchmarks/saving/catalog.py`.
- **Times**: all variants in one process on an NVIDIA H200, in turns: a block of 20 steps or more of
  each, after steps that warm up and that empty the loader's queue, three times (two for the
  translator), and the program as it is once more. The step is the median of the blocks. ± is half
  the ranges of the two steps that a gain is between, the furthest block of the program as it is
  left out: the first of a process may be twice as long. The SM clock was 1935 to 1980 MHz in all
  blocks.
- **Predictions** know the recording and the step of the program as it is, as it was timed beside
  the variants: several recordings were made on another machine of the kind, whose CPU was slower.
  *Inside* counts ± to the interval of a prediction.
- **Single changes**: what `traceprobe whatif` makes of a change. Where it makes kernels faster, how
  much is taken from a trace with the change: what is tested is what becomes of the step.
  *Well-timed* are those where half the ranges of both steps are no more than 5 % of the step:
  programs that wait for the CPU vary by more.
- **Together**: the first findings as the report plays them, against the variant with just these
  changes, where there is one.
- **Tuned**: the best that we knew to do at the precision and the batch of the program, against the
  bounds of its first report. Where that keeps a batch on the GPU it stands for a perfect loader.
- **Faults**: the recordings of [injected faults](injections.md), with what the faults cost.
"""
FINDINGS = (
    *("program", "finding", "first", "up to", "predicted", "between", "first look", "variant"),
    *("gained", "±"),
)
ADVICE = ("program", "verdict", "finding", "now", "predicted", "between", "variant", "measured")
ABLATIONS = ("program", "variant", "played", "now", "predicted", "between", "measured", "error")
NEAR = 0.10
WHY: dict[tuple[str, str], str] = {
    (
        "photos",
        "pinned",
    ): "by the recording, from a slower CPU, the loader is late, so that nothing "
    "else gains; where the steps were timed it hardly was",
    ("photos", "unread"): "as `pinned`",
    ("photos", "layout"): "as `pinned`",
    ("volumes", "resident"): "the metric in NumPy stays; in the replay it goes, as what the host "
    "does before a copy went with the copy",
    ("volumes", "bf16"): "not understood; the program as it is varied from 92 to 119 ms",
    ("volumes", "compiled"): "as `bf16`",
    ("gpt", "compiled"): "a compiled model takes less of the host for each launch, too; only its "
    "kernels were made faster",
    ("masked_words", "bf16"): "then the host limits the step (kernels take 8 ms of it), and how "
    "long the host takes is not told by a step that hides it; 594 launches instead of 466",
    ("masked_words", "tf32"): "as `bf16`: kernels take 15 ms of 26",
    ("clicks", "workers"): "the profiler doubles the time of a loader in the training process, "
    "which was not taken out of the wait for it",
    ("clicks", "resident"): "as `workers`",
    (
        "diffusion",
        "bf16",
    ): "1,387 launches instead of 1,149, for casts, and the host limits it then",
    ("diffusion", "average-at-once"): "400 launches fewer, which the change does not say",
    ("neighbours", "pinned"): "what the program gathers on the CPU was taken for a late loader",
    ("neighbours", "unread"): "the program as it is and this differ by less than either varies",
    ("neighbours", "tf32"): "as `unread`",
    ("streets", "fused"): "the program as it is varied: 113 ms, then 54 to 68",
    ("streets", "compiled"): "as `fused`",
    ("gradient_norms", "unread"): "the norms become a few kernels, too",
    ("gradient_norms", "fused"): "1,117 launches instead of 1,757, which the change does not say",
    ("gradient_norms", "foreach"): "as `fused`",
    (
        "gradient_norms",
        "compiled",
    ): "1,599 launches instead of 1,757, and the host takes longer for "
    "them: kernels take 8 ms of 43",
    ("patches", "bf16"): "2,133 launches instead of 1,866, for casts, and the host limits it then",
    ("translator", "unread"): "two blocks of each variant, 15 % apart",
}
"""What is known of predictions that missed, by program and variant."""


def page(found: Row) -> str:
    """The scores as Markdown."""
    first = found.get("first")
    programs = found["programs"]
    parts = [
        PAGE,
        _short(found, first),
        "## The first advice, followed\n",
        _table(
            ADVICE,
            [_advice(p, f) for p in programs for f in p["findings"] if f["place"] == 1],
            text=(0, 1, 2, 6),
        ),
        "## Findings\n",
        "Gains in ms a step. *First* is the place among what the report says to do first. Bold is "
        "outside the interval.\n",
        _table(FINDINGS, _findings(programs, first), text=(0, 1, 7)),
        "## Rank correlation within programs\n",
        _table(
            ("program", "findings that were followed", "correlation"),
            [
                (
                    f"`{p['program']}`",
                    str(_followed(p)),
                    _number(found["ranks"]["programs"][p["program"]]),
                )
                for p in programs
            ],
        ),
        "## Single changes\n",
        f"Steps in ms; bold is what is further off than {NEAR:.0%}.\n",
        _table(ABLATIONS, [r for p in programs for r in _ablations(p)], text=(0, 1, 2)),
        _explained(programs),
        "## Together\n",
        _table(
            ("program", "findings", "now", "predicted", "between", "variant", "measured"),
            [_joint(p) for p in programs if p["joint"]],
            text=(0, 1, 5),
        ),
        "## Tuned\n",
        _table(
            ("program", "now", "at least", "within reach", "variant", "best", "inside"),
            [_tuned(p) for p in programs if p["headroom"]],
            text=(0, 4, 6),
        ),
    ]
    if found["injected"]:
        parts += [
            "## Faults\n",
            _table(
                ("fault", "finding", "now", "predicted", "between", "cost"),
                [_fault(f) for f in found["injected"]],
                text=(0, 1),
            ),
        ]
    return "\n".join(parts)


def _short(found: Row, first: Row | None) -> str:
    looks = [found] if first is None else [first, found]
    head = ["", "now"] if first is None else ["", "first look", "now"]
    lines: list[tuple[str, ...]] = []

    def add(words: str, *values: str) -> None:
        lines.append((words, *values))

    def share(count: str, of: str) -> list[str]:
        each = [look["short"] for look in looks]
        return [f"{s[count]} of {s[of]} ({s[count] / s[of]:.0%})" if s[of] else "–" for s in each]

    add("programs", *(str(look["short"]["programs"]) for look in looks))
    add("findings predicted, of those followed", *share("predicted", "findings"))
    add("inside the interval", *share("findings_inside", "predicted"))
    add("gain within 5 % of the step", *share("findings_within_5", "predicted"))
    add("gained more than *up to*", *share("over_bound", "findings"))
    kinds = {
        "ms": "ms",
        "variants": "a variant counted once",
        "share": "shares of the step",
        "up_to": "*up to* instead",
    }
    for key, words in kinds.items():
        add(f"rank correlation, {words}", *(_number(look["ranks"][key]) for look in looks))
    add("single changes within 5 %", *share("ablations_within_5", "ablations"))
    add("within 10 %", *share("ablations_within_10", "ablations"))
    add("inside the interval", *share("ablations_inside", "ablations"))
    add("well-timed single changes within 5 %", *share("known_within_5", "known"))
    add("within 10 %", *share("known_within_10", "known"))
    add("inside the interval", *share("known_inside", "known"))
    add("together, inside the interval", *share("joint_inside", "joint"))
    add("tuned, inside the bounds", *share("tuned_inside", "tuned"))
    add("faults, inside the interval", *share("faults_inside", "faults"))
    add("faults within 5 % of the step", *share("faults_within_5", "faults"))
    add("rank correlation of faults", *(_number(look["short"]["fault_ranks"]) for look in looks))
    top = [_top(look["programs"]) for look in looks]
    add("the first advice gains something", *top)
    told = "## In short\n\n" + _table(head, lines)
    if first is not None:
        told += "\n" + first["note"] + "\n"
    return told


def _top(programs: Sequence[Row]) -> str:
    first = [f for p in programs for f in p["findings"] if f["place"] == 1]
    done = [f for f in first if f["measured_ms"] is not None]
    gained = sum(f["measured_ms"] > f["doubt_ms"] for f in done)
    return f"{gained} of {len(done)}"


def _advice(program: Row, finding: Row) -> tuple[str, ...]:
    """Steps, not gains: the longest predicted belongs to the least gain."""
    now, done = program["base_ms"], finding["measured_ms"] is not None
    low, high = now - finding["high_ms"], now - finding["low_ms"]
    return (
        f"`{program['program']}`",
        program["verdict"],
        f"`{finding['finding']}`",
        _number(now),
        _number(now - finding["predicted_ms"]),
        f"{low:.1f} to {high:.1f}",
        finding["variant"] or "",
        _number(program["steps_ms"][finding["variant"]]) if done else "not tried",
    )


def _followed(program: Row) -> int:
    return sum(
        f["measured_ms"] is not None and f["predicted_ms"] is not None for f in program["findings"]
    )


def _findings(programs: Sequence[Row], first: Row | None) -> list[tuple[str, ...]]:
    before = {
        (p["program"], f["finding"]): f["predicted_ms"]
        for p in (first or {"programs": ()})["programs"]
        for f in p["findings"]
    }
    rows = []
    for p in programs:
        for f in sorted(p["findings"], key=lambda f: (f["place"] or 9, -(f["predicted_ms"] or 0))):
            told, done = f["predicted_ms"] is not None, f["measured_ms"] is not None
            gained = _number(f["measured_ms"]) if done else "not tried"
            if told and done:
                doubt = f["doubt_ms"]
                if not f["low_ms"] - doubt <= f["measured_ms"] <= f["high_ms"] + doubt:
                    gained = f"**{gained}**"
            rows.append(
                (
                    f"`{p['program']}`",
                    f"`{f['finding']}`",
                    str(f["place"] or ""),
                    _number(f["up_to_ms"]),
                    _number(f["predicted_ms"]),
                    _between(f),
                    _number(before.get((p["program"], f["finding"]))),
                    f["variant"] or "",
                    gained,
                    _number(f["doubt_ms"]) if done else "",
                )
            )
    return rows


def _ablations(program: Row) -> list[tuple[str, ...]]:
    rows = []
    for a in program["ablations"]:
        off = f"{a['error']:+.1%}"
        rows.append(
            (
                f"`{program['program']}`",
                a["variant"],
                a["change"],
                _number(program["base_ms"]),
                _number(a["predicted_ms"]),
                _between(a),
                _number(a["measured_ms"]),
                off if abs(a["error"]) <= NEAR else f"**{off}**",
            )
        )
    return rows


def _explained(programs: Sequence[Row]) -> str:
    missed = [
        (p["program"], a["variant"])
        for p in programs
        for a in p["ablations"]
        if abs(a["error"]) > NEAR
    ]
    told = [f"- `{p}`, {v}: {WHY[p, v]}." for p, v in missed if (p, v) in WHY]
    return "\n".join(["What missed, and why:", "", *told, ""]) if told else ""


def _joint(program: Row) -> tuple[str, ...]:
    joint = program["joint"]
    done = joint["measured_ms"] is not None
    return (
        f"`{program['program']}`",
        ", ".join(f"`{name}`" for name in joint["findings"]),
        _number(program["base_ms"]),
        _number(joint["predicted_ms"]),
        _between(joint),
        joint["variant"] or "",
        _number(joint["measured_ms"]) if done else "not tried",
    )


def _tuned(program: Row) -> tuple[str, ...]:
    bounds = program["headroom"]
    return (
        f"`{program['program']}`",
        _number(program["base_ms"]),
        _number(bounds["floor_ms"]),
        _number(bounds["reachable_ms"]),
        bounds["variant"],
        _number(bounds["best_ms"]),
        "yes" if bounds["inside"] else "**no**",
    )


def _fault(fault: Row) -> tuple[str, ...]:
    return (
        fault["id"],
        f"`{fault['finding']}`" if fault["finding"] else "none asks",
        _number(fault["now_ms"]),
        _number(fault["predicted_ms"]),
        _between(fault),
        _number(fault["cost_ms"]),
    )


def _between(row: Row) -> str:
    if row["low_ms"] is None:
        return ""
    return f"{row['low_ms']:.1f} to {row['high_ms']:.1f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], text: Sequence[int] = (0,)) -> str:
    rule = ["---" if n in text else "---:" for n in range(len(head))]
    lines = [head, rule, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
