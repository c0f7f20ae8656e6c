"""The page about the validation, from its results: nothing on it is written by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import mean
from typing import Any

from benchmarks.matrix import EXPLAINED, MORE_SAVED, Row

Results = dict[str, Any]
NEAR = 0.03
"""An ablation this close to its own threshold cannot tell a right verdict from a wrong one."""
SHARES = ("io", "communication", "overhead")
BOUNDS = ("io", "communication", "overhead", "mixed", "compute")
BINS = ((0.0, 0.5), (0.5, 0.7), (0.7, 0.8), (0.8, 0.9), (0.9, 1.01))

HEAD = """# Validation on hardware

Every run below was measured twice, in processes of their own: `traceprobe bench` takes parts of
the loop out and times what is left ([the method](../ablation.md)), `traceprobe profile` records a
trace, from which the verdict comes. The ablation sees no trace, the verdict sees no ablation. Where
they agree, the verdict is right for the reason it gives.

This page is made by `python benchmarks/validate.py page` from [`results.json`](results.json). The
runs are those of `benchmarks/matrix.py`. No threshold and no term of the confidence was fitted to
them. What following single findings saved is on [a page of its own](advice.md).
"""


def page(results: Results, rows: Sequence[Row]) -> str:
    """The page in Markdown."""
    done = judged(results)
    parts = [
        HEAD,
        _machines(results),
        _summary(results, done, rows),
        _runs(results, done),
        _confusion(results, done),
        _errors(results, done),
        _savings(results, rows),
        _calibration(results, done),
        _explained(results, done),
        _missing(results, rows),
    ]
    return "\n".join(part.rstrip() + "\n" for part in parts if part)


def judged(results: Results) -> list[str]:
    """Cases that have both verdicts."""
    return [name for name, entry in results.items() if _both(entry)]


def _both(entry: dict[str, Any]) -> bool:
    return bool(entry["ablation"] and entry["recordings"])


def verdicts(results: Results, names: Iterable[str]) -> Iterator[tuple[str, str, str, float, Any]]:
    """Case, backend, the ablation's bound and margin, and the recording."""
    for name in names:
        oracle = results[name]["ablation"]["oracle"]
        for backend, recording in sorted(results[name]["recordings"].items(), reverse=True):
            yield name, backend, oracle["bound"], oracle["margin"], recording


def agreement(results: Results, names: Iterable[str]) -> tuple[int, int, list[str]]:
    """Verdicts that agree, those compared (the ablation not near its threshold), and the misses."""
    clear = [v for v in verdicts(results, names) if v[3] >= NEAR]
    misses = [f"{name} ({backend})" for name, backend, bound, _, r in clear if r["bound"] != bound]
    return len(clear) - len(misses), len(clear), misses


def share_errors(results: Results, names: Iterable[str]) -> dict[str, list[float]]:
    """Trace minus ablation of every share that the ablation knows, in points of the step."""
    found: dict[str, list[float]] = {share: [] for share in SHARES}
    for name, _, _, _, recording in verdicts(results, names):
        for share in SHARES:
            known = results[name]["ablation"]["oracle"]["shares"][share]
            if known is not None:
                found[share].append(100 * (recording["shares"][share] - known["value"]))
    return found


def savings(results: Results, rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Every change of a row that was measured: what the slow run's trace allows, what it saved.

    Steps are compared at the same number of samples. All times are ms per step of the slow run.
    """
    for row in rows:
        for control in row.controls:
            slow, fast = results.get(row.case), results.get(control.case)
            if not (slow and fast and slow["ablation"] and fast["ablation"] and control.lever):
                continue
            scale = _samples(slow) / _samples(fast)
            before, after = _step(slow), _step(fast)
            measured = before["median"] - scale * after["median"]
            low = before["low"] - scale * after["high"]
            high = before["high"] - scale * after["low"]
            allowed = {
                backend: _allowed(recording, control.lever)
                for backend, recording in sorted(slow["recordings"].items(), reverse=True)
            }
            yield {
                "case": row.case,
                "change": control.change,
                "lever": control.lever,
                "before": before["median"],
                "after": scale * after["median"],
                "measured": measured,
                "low": low,
                "high": high,
                "allowed": allowed,
                "exceeded": [b for b, ms in allowed.items() if ms is not None and low > ms],
            }


def _allowed(recording: dict[str, Any], lever: Sequence[str]) -> float | None:
    """What the findings of a recording allow together; None where it has none of them."""
    mine = [recording["savings"][finding] for finding in lever if finding in recording["savings"]]
    return min(sum(mine), float(recording["unprofiled_step_ms"])) if mine else None


def _step(entry: dict[str, Any]) -> dict[str, float]:
    return next(v["step_ms"] for v in entry["ablation"]["variants"] if v["name"] == "full")


def _samples(entry: dict[str, Any]) -> float:
    return float(entry["ablation"]["workload"]["samples_per_step"])


def _machines(results: Results) -> str:
    lines = ["## Machines", ""]
    seen: Counter[str] = Counter()
    for entry in results.values():
        if entry["ablation"]:
            hardware, libraries = entry["ablation"]["hardware"], entry["ablation"]["libraries"]
            gpus = hardware["gpus"]
            device = f"{len(gpus)} × {gpus[0]['name']}" if gpus else "no GPU"
            links = f", linked by {', '.join(hardware['links'])}" if hardware.get("links") else ""
            versions = ", ".join(f"{k} {v}" for k, v in sorted(libraries.items()) if v)
            seen[f"{device}{links}, {hardware['cpu_count']} CPUs; {versions}"] += 1
    lines += [f"- {text} ({count} runs)" for text, count in sorted(seen.items())]
    lines += [
        "",
        "Nsight Systems 2025.3. NVLink multicast (NVLS) was off. Up to four runs shared a machine,",
        "each with GPUs and CPUs of its own; that is the noise of the loader-bound ones.",
    ]
    return "\n".join(lines)


def _summary(results: Results, done: Sequence[str], rows: Sequence[Row]) -> str:
    right, compared, misses = agreement(results, done)
    everything = list(verdicts(results, done))
    errors = share_errors(results, done)
    changes = list(savings(results, rows))
    broken = [c for c in changes if c["exceeded"]]
    base = [row.case for row in rows if row.case in done]
    lines = [
        "## In short",
        "",
        f"- {len(base)} rows and {len(done) - len(base)} controls, {len(everything)} recordings, "
        "on " + _and(sorted({str(results[name]["ranks"]) for name in done})) + " GPUs.",
        f"- Of the {compared} recordings where the ablation is at least {100 * NEAR:.0f} points "
        f"from its own threshold, the trace verdict is the same in **{right}** "
        f"({right / compared:.1%}). The other {len(everything) - compared} are shown, not counted.",
        "- Misses: " + (", ".join(misses) if misses else "none") + ".",
        "- Mean absolute error of the shares: "
        + ", ".join(f"{name} {mean(map(abs, e)):.1f}" for name, e in errors.items())
        + " points.",
        f"- {len(changes)} changes were measured; "
        + (
            f"{len(broken)} saved more than the trace allowed: "
            + ", ".join(f"{c['case']} ({c['change']})" for c in broken)
            if broken
            else "none saved more than the trace of the slow run allowed"
        )
        + ", beyond the interval of the measurement.",
    ]
    return "\n".join(lines)


def _runs(results: Results, done: Sequence[str]) -> str:
    lines = [
        "## Runs",
        "",
        "Shares are io / communication / overhead in per cent of the step. *Margin* is the",
        "distance of the ablation's shares to the threshold that would change its verdict, in",
        "points.",
        "",
        "| run | `traceprobe … --workload` | GPUs | step, ms | ablation | margin | shares "
        "| torch.profiler | shares | nsys | shares |",
        "| --- | --- | ---: | ---: | --- | ---: | --- | --- | --- | --- | --- |",
    ]
    for name in done:
        entry = results[name]
        oracle = entry["ablation"]["oracle"]
        cells = [
            f"`{name}`",
            f"`{entry['arguments']}`" + (" over sockets" if entry["environment"] else ""),
            str(entry["ranks"]),
            f"{_step(entry)['median']:.1f}",
            oracle["bound"],
            f"{100 * oracle['margin']:.1f}",
            _shares({k: v and v["value"] for k, v in oracle["shares"].items()}),
        ]
        for backend in ("torch", "nsys"):
            recording = entry["recordings"].get(backend)
            if recording is None:
                cells += ["", ""]
                continue
            wrong = recording["bound"] != oracle["bound"]
            bound = f"**{recording['bound']}**" if wrong else recording["bound"]
            cells += [f"{bound} ({recording['confidence']:.2f})", _shares(recording["shares"])]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _shares(shares: dict[str, float | None]) -> str:
    return " / ".join("–" if shares[n] is None else f"{100 * shares[n]:.1f}" for n in SHARES)


def _confusion(results: Results, done: Sequence[str]) -> str:
    seen = Counter((bound, r["bound"]) for _, _, bound, _, r in verdicts(results, done))
    clear = Counter((b, r["bound"]) for _, _, b, m, r in verdicts(results, done) if m >= NEAR)
    trace = [b for b in (*BOUNDS, "inconclusive") if any(t == b for _, t in seen)]
    lines = [
        "## Confusion table",
        "",
        "Recordings by the ablation's verdict (rows) and the trace's (columns). In brackets those",
        "near the ablation's threshold, which are not counted above.",
        "",
        "| ablation \\ trace | " + " | ".join(trace) + " |",
        "| --- |" + " ---: |" * len(trace),
    ]
    for bound in (b for b in BOUNDS if any(o == b for o, _ in seen)):
        cells = []
        for other in trace:
            near = seen[bound, other] - clear[bound, other]
            cells.append(f"{clear[bound, other]}" + (f" (+{near})" if near else ""))
        lines.append(f"| {bound} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _errors(results: Results, done: Sequence[str]) -> str:
    lines = [
        "## Errors of the shares",
        "",
        "Trace minus ablation, in points of the step. The ablation's share is the time that goes",
        "away when the cause is taken out.",
        "",
        "| share | recordings | mean absolute error | mean | largest |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, errors in share_errors(results, done).items():
        worst = max(errors, key=abs)
        lines.append(
            f"| {name} | {len(errors)} | {mean(map(abs, errors)):.2f} | {mean(errors):+.2f} | "
            f"{worst:+.1f} |"
        )
    return "\n".join(lines)


def _savings(results: Results, rows: Sequence[Row]) -> str:
    lines = [
        "## Predicted and measured savings",
        "",
        "*Up to* is the sum of the savings of the named findings in the trace of the slow run,",
        "from torch.profiler / nsys. Steps are compared at the same number of samples. In brackets",
        "the 95 % interval of the measurement. Bold is what was measured to be more; – where the",
        "trace has none of these findings.",
        "",
        "| run | change | before, ms | after, ms | measured saving, ms | up to, ms | findings |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for change in savings(results, rows):
        allowed = " / ".join(
            _bound(ms, exceeded=backend in change["exceeded"])
            for backend, ms in change["allowed"].items()
        )
        lines.append(
            f"| `{change['case']}` | {change['change']} | {change['before']:.1f} | "
            f"{change['after']:.1f} | {change['measured']:.1f} "
            f"({change['low']:.1f} to {change['high']:.1f}) | {allowed} | "
            + ", ".join(f"`{lever}`" for lever in change["lever"])
            + " |"
        )
    explained = {c["case"]: c for c in savings(results, rows) if c["exceeded"]}
    lines += ["", *(f"- `{case}`: {MORE_SAVED[case]}" for case in explained if case in MORE_SAVED)]
    return "\n".join(lines).rstrip()


def _bound(ms: float | None, *, exceeded: bool) -> str:
    if ms is None:
        return "–"
    return f"**{ms:.1f}**" if exceeded else f"{ms:.1f}"


def _calibration(results: Results, done: Sequence[str]) -> str:
    lines = [
        "## Calibration of the confidence",
        "",
        "All recordings, those near the ablation's threshold too.",
        "",
        "| confidence | recordings | mean confidence | verdicts that agree |",
        "| --- | ---: | ---: | ---: |",
    ]
    for low, high in BINS:
        mine = [
            (r["confidence"], r["bound"] == bound)
            for _, _, bound, _, r in verdicts(results, done)
            if low <= r["confidence"] < high
        ]
        if mine:
            lines.append(
                f"| {low:.1f} to {min(high, 1):.1f} | {len(mine)} | {mean(c for c, _ in mine):.2f} "
                f"| {mean(right for _, right in mine):.2f} |"
            )
    return "\n".join(lines)


def _explained(results: Results, done: Sequence[str]) -> str:
    found = [f"- `{name}`: {EXPLAINED[name]}" for name in done if name in EXPLAINED]
    if not found:
        return ""
    return "\n".join(["## Where trace and ablation differ", "", *found])


def _missing(results: Results, rows: Sequence[Row]) -> str:
    names = [name for row in rows for name in (row.case, *(c.case for c in row.controls))]
    missing = sorted({name for name in names if not _both(results.get(name) or _NOTHING)})
    if not missing:
        return ""
    listed = ", ".join(f"`{name}`" for name in missing)
    return f"## Not run\n\nOf the matrix, these were not measured whole: {listed}.\n"


_NOTHING: dict[str, Any] = {"ablation": None, "recordings": {}}


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]
