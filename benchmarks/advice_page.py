"""The page about measured advice, from its results: nothing on it is written by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import hypot
from typing import Any, Protocol

from benchmarks import matrix

Results = Mapping[str, Mapping[str, Any]]
FIRED = ("fail", "warn")

MENDED = {
    "small-kernels": "counted the kernels of graphs as launches",
    "recomputation": "left out the gaps between the kernels that go away",
    "h2d-pageable": "left out that the step without a profiler can be longer",
    "data-wait": "left out that the step without a profiler can be longer",
    "tf32-off": "did not read the switches that the capture recorded",
    "memory-format": "counted the conversions alone (ResNet-50 saved 25.8 ms of 6.3)",
}
"""Rules that these recordings showed to be wrong, and what was: for them this is no fresh test."""

HEAD = """# Advice, measured

Every rule below fired in a recording of the run *before*. Its advice was followed, and the run
*after* recorded in the same way. *Up to* is the saving that the report of the run before allows;
*saved* is the difference of the steps that both recordings timed without a profiler, at the same
number of samples. Where both runs were also timed by [`traceprobe bench`](../ablation.md), half of
the 95 % interval of its trials is what the difference is uncertain by. A row is good if the rule
fires before and not after, and no more was saved than allowed.

This page is made by `python benchmarks/advice.py page` from [`advice.json`](advice.json). What the
rules are is on the [page of findings](../findings.md).
"""


class Pair(Protocol):
    """See `benchmarks.advice.Pair`."""

    @property
    def rule(self) -> str:
        """Id of the finding."""

    @property
    def before(self) -> str:
        """A case."""

    @property
    def after(self) -> str:
        """The changed case."""

    @property
    def change(self) -> str:
        """In words."""


def page(results: Results, pairs: Sequence[Pair], workers: Sequence[str]) -> str:
    """The page in Markdown.

    Args:
        workers: cases with loader processes.
    """
    everything = list(measured(results, pairs))
    rows = [row for row in everything if row["was"] in FIRED]
    parts = [
        HEAD,
        _machines(results),
        _summary(rows),
        _pairs(rows),
        _mended(),
        _silent([row for row in everything if row["was"] not in FIRED]),
        _runs(results, everything),
        _workers(results, workers),
        _missing(results, pairs),
    ]
    return "\n".join(part.rstrip() + "\n" for part in parts if part)


def measured(results: Results, pairs: Sequence[Pair]) -> Iterator[dict[str, Any]]:
    """Every pair of which both runs were recorded; ms per step of the run before."""
    for pair in pairs:
        before, after = results.get(pair.before), results.get(pair.after)
        if before is None or after is None:
            continue
        scale = before["samples_per_step"] / after["samples_per_step"]
        error = None
        if before["uncertain_ms"] is not None and after["uncertain_ms"] is not None:
            error = hypot(before["uncertain_ms"], scale * after["uncertain_ms"])
        saved = before["step_ms"] - scale * after["step_ms"]
        old, new = before["findings"][pair.rule], after["findings"][pair.rule]
        allowed = old["saving_ms"]
        yield {
            "pair": pair,
            "was": old["status"],
            "is": new["status"],
            "before_ms": before["step_ms"],
            "after_ms": scale * after["step_ms"],
            "saved": saved,
            "error": error,
            "allowed": allowed,
            "verdict": _verdict(saved, error, allowed),
            "good": old["status"] in FIRED and new["status"] not in FIRED,
        }


def _verdict(saved: float, error: float | None, allowed: float | None) -> str:
    if allowed is None:
        return "no bound"
    if saved <= allowed:
        return "yes"
    return "yes, but for noise" if saved - (error or 0.0) <= allowed else "**no**"


def _uncertain(error: float | None) -> str:
    return "" if error is None else f" ± {error:.1f}"


def _machines(results: Results) -> str:
    seen: Counter[str] = Counter()
    for entry in results.values():
        hardware, libraries = entry["hardware"], entry["libraries"]
        versions = ", ".join(f"{k} {v}" for k, v in sorted(libraries.items()) if v)
        gpus = f"{len(hardware['gpus'])} × {hardware['gpus'][0]['name']}"
        seen[f"{gpus}, {hardware['cpu_count']} CPUs; {versions}"] += 1
    lines = [f"- {text} ({count} runs)" for text, count in sorted(seen.items())]
    return "\n".join(["## Machines", "", *lines])


def _summary(rows: Sequence[Mapping[str, Any]]) -> str:
    rules = {row["pair"].rule for row in rows}
    fired = {row["pair"].rule for row in rows if row["good"]}
    bound = {row["pair"].rule for row in rows if row["verdict"] in ("yes", "yes, but for noise")}
    bad = [row["pair"] for row in rows if not row["good"] or row["verdict"] == "**no**"]
    told = ", ".join(f"`{p.rule}` ({p.before}, {p.change})" for p in bad) or "none"
    return "\n".join(
        [
            "## In short",
            "",
            f"- {len(rows)} pairs of {len(rules)} rules.",
            f"- {len(fired & bound)} rules have a pair in which they fire before and not after, "
            "and no more was saved than allowed.",
            f"- Pairs of which that is not so: {told}.",
        ]
    )


def _pairs(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        "## Pairs",
        "",
        "| rule | run | change | before | after | before, ms | after, ms | saved, ms "
        "| up to, ms | within |",
        "| --- | --- | --- | --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in rows:
        pair, allowed = row["pair"], row["allowed"]
        lines.append(
            f"| [`{pair.rule}`](../findings.md#{pair.rule}) | `{pair.before}` | {pair.change} "
            f"| {row['was']} | {row['is']} | {row['before_ms']:.1f} | {row['after_ms']:.1f} "
            f"| {row['saved']:.1f}{_uncertain(row['error'])} "
            f"| {'–' if allowed is None else f'{allowed:.1f}'} | {row['verdict']} |"
        )
    return "\n".join(lines)


def _mended() -> str:
    lines = ["## Rules mended by these runs", ""]
    lines += [
        "Their bounds or conditions were changed after a run showed that they were wrong: the"
    ]
    lines += ["table shows the rules as they are now, and is no fresh test of these.", ""]
    lines += [f"- `{rule}` {what}." for rule, what in sorted(MENDED.items())]
    return "\n".join(lines)


def _silent(rows: Sequence[Mapping[str, Any]]) -> str:
    """Pairs whose rule did not fire to begin with: the cost was too small to be told."""
    if not rows:
        return ""
    told = [
        f"- `{row['pair'].rule}` on `{row['pair'].before}` ({row['pair'].change}): "
        f"{row['was']}; saved {row['saved']:.1f} of {row['before_ms']:.1f} ms"
        + ("." if row["allowed"] is None else f", up to {row['allowed']:.1f}.")
        for row in rows
    ]
    return "\n".join(["## Tried, and not fired", "", *told])


def _runs(results: Results, rows: Sequence[Mapping[str, Any]]) -> str:
    used = {name: None for row in rows for name in (row["pair"].before, row["pair"].after)}
    lines = ["## Runs", "", "| run | `traceprobe profile --workload …` | GPUs |"]
    lines.append("| --- | --- | ---: |")
    for name in sorted(used):
        entry = results[name]
        wire = " over sockets" if entry["environment"] == matrix.WIRE else ""
        lines.append(f"| `{name}` | `{entry['arguments']}`{wire} | {entry['ranks']} |")
    return "\n".join(lines)


def _workers(results: Results, names: Sequence[str]) -> str:
    lines = [
        "## Workers that hide the loader",
        "",
        "[`data-wait`](../findings.md#data-wait) says how many workers it takes at least. The step",
        "with another number follows from the same model, if no worker slows the others: it is as",
        "long as its rest, or as the loader takes for a batch. Beside it is the measured step.",
        "",
        "| run | workers | step, ms | said | other run | workers | predicted at least, ms "
        "| measured, ms |",
        "| --- | ---: | ---: | --- | --- | ---: | ---: | ---: |",
    ]
    for name in names:
        entry = results.get(name)
        if entry is None:
            continue
        told = entry["needed"] or "nothing"
        mine = f"| `{name}` | {entry['workers']} | {entry['step_ms']:.1f} | {told} "
        others = [
            other
            for other in names
            if other in results
            and other.split("-")[0] == name.split("-")[0]
            and results[other]["workers"] > entry["workers"]
        ]
        for other in others or [None]:
            if other is None:
                lines.append(mine + "| – | – | – | – |")
                continue
            more = results[other]
            least = max(entry["rest_ms"], entry["workers"] * entry["step_ms"] / more["workers"])
            lines.append(
                mine + f"| `{other}` | {more['workers']} | {least:.1f} | {more['step_ms']:.1f} |"
            )
    return "\n".join(lines)


def _missing(results: Results, pairs: Sequence[Pair]) -> str:
    names = sorted({n for pair in pairs for n in (pair.before, pair.after)} - set(results))
    if not names:
        return ""
    return "## Not run\n\n" + ", ".join(f"`{name}`" for name in names) + "."
