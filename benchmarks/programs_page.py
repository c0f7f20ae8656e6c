"""The page about programs, from their results: nothing on it is written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean
from typing import Any

from benchmarks.program_rows import UNDIVIDED

Results = dict[str, Any]
NEAR = 0.03
"""A truth this close to a threshold cannot tell a right verdict from a wrong one."""
CHANGED = 0.2
"""Part by which the recording's own step without a profiler differs from the program's, where other
load on the machine, or other batches, made it another run."""
SHARES = ("io", "communication", "overhead")
BACKENDS = {"torch": "torch.profiler", "nsys": "Nsight Systems"}

HEAD = """# Programs as people write them

The programs of [`workloads/programs`](../../workloads/programs) use Hugging Face's Trainer,
Accelerate, Lightning, timm and plain PyTorch, and mark nothing: no ranges, no steps. Each was timed
without a profiler, as it is and with a part taken out (its loader, its other ranks, its work on the
host), then recorded by the recorder of `traceprobe profile`, and the recording was analysed.

The truth is what these times say: what a step gets shorter by is the share of the part that was
taken out. What the GPU computes in the rest is the time of the kernels in the Kineto recording,
read without traceprobe, against the step without a profiler. What then remains is overhead.

This page is made by `python benchmarks/programs.py page` from [`programs.json`](programs.json).
"""


def page(results: Results) -> str:
    """The page in Markdown."""
    parts = [HEAD, _machine(results), _summary(results), _table(results), _notes(results)]
    return "\n".join(part.rstrip() + "\n" for part in parts if part)


def outcome(row: dict[str, Any], verdict: dict[str, Any]) -> str:
    """Of a verdict: "right", "wrong", or why the truth does not tell.

    It is "near" where the truth is near a threshold, "undivided" where the verdict names the other
    one of communication and overhead, which the ablation cannot tell apart, "changed" where the
    recording was of a run at another pace, and "unknown" without a truth.
    """
    truth = row["truth"]
    if truth is None or "overhead" not in truth["shares"]:
        return "unknown"
    if "error" in verdict:
        return "wrong"
    if verdict["bound"] == truth["bound"]:
        return "right"
    if truth["margin"] < NEAR:
        return "near"
    either = {"communication", "overhead", "mixed"}
    if row["name"] in UNDIVIDED and {verdict["bound"], truth["bound"]} <= either:
        return "undivided"
    pace = verdict.get("calibrated_ms")
    if pace is not None and abs(pace / truth["step_ms"] - 1) > CHANGED:
        return "changed"
    return "wrong"


def rows(results: Results) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    """Every recording with its row and profiler."""
    for row in results["rows"].values():
        for backend in BACKENDS:
            if backend in row["verdicts"]:
                yield row, backend, row["verdicts"][backend]


def _machine(results: Results) -> str:
    machine = results["machine"]
    libraries = ", ".join(f"{name} {version}" for name, version in machine["libraries"].items())
    lines = [f"- Python {machine['python']}, {libraries}; {machine['cpus']} CPUs"]
    lines += [
        f"- {name}, driver {driver}; clocks up to {sm} (multiprocessors) and {memory} (memory)"
        for name, driver, sm, memory in (gpu.split(", ") for gpu in machine["gpus"])
    ]
    return "## Machine\n\n" + "\n".join(lines) + "\n"


def _summary(results: Results) -> str:
    outcomes = [outcome(row, verdict) for row, _, verdict in rows(results)]
    names = ("right", "wrong", "near", "undivided", "changed", "unknown")
    counts = {name: outcomes.count(name) for name in names}
    lines = [
        f"- {len(results['rows'])} programs, {len(outcomes)} recordings: {counts['right']} "
        f"verdicts are right, {counts['wrong']} wrong, {counts['near']} differ where the truth is "
        f"within {100 * NEAR:.0f} points of a threshold."
    ]
    if counts["undivided"]:
        lines.append(
            f"- {counts['undivided']} name the other one of communication and overhead, where "
            "taking out the other ranks takes out the host's work for them too."
        )
    if counts["changed"]:
        lines.append(
            f"- {counts['changed']} differ where the recording's own step without a profiler is "
            f"more than {100 * CHANGED:.0f} % off the program's: the run had changed its pace."
        )
    if counts["unknown"]:
        lines.append(f"- Of {counts['unknown']} recordings the truth is not known.")
    for share in SHARES:
        errors = [
            100 * (verdict["shares"][share] - row["truth"]["shares"][share])
            for row, _, verdict in rows(results)
            if "error" not in verdict and row["truth"] and share in row["truth"]["shares"]
        ]
        if errors:
            lines.append(
                f"- {share}: mean absolute error {mean(map(abs, errors)):.1f} points, "
                f"largest {max(errors, key=abs):+.1f}, over {len(errors)} recordings."
            )
    return "## In short\n\n" + "\n".join(lines) + "\n"


def _table(results: Results) -> str:
    lines = [
        "## Runs",
        "",
        "Shares are io / communication / overhead in per cent of the step. *Step* is without a "
        "profiler and in the trace, *clock* the median of the multiprocessors' while it was timed "
        "and while it was recorded. *Backward* is the part of the kernels' time, collectives left "
        "out, that autograd's threads launched in the Kineto recording, and that was attributed to "
        "backward and recompute, of what was attributed at all.",
        "",
        "| program | GPUs | profiler | step, ms | clock, MHz | truth | shares | verdict "
        "| shares | confidence | iterations | backward, % | |",
        "| --- | ---: | --- | ---: | ---: | --- | --- | --- | --- | ---: | ---: | ---: | --- |",
    ]
    for row, backend, verdict in rows(results):
        truth = row["truth"]
        cells = [f"`{_command(row)}`", str(row["ranks"]), BACKENDS[backend]]
        step = "–" if truth is None else f"{truth['step_ms']:.1f}"
        cells.append(f"{step} / {_number(verdict.get('step_ms'))}")
        cells.append(f"{_clock(row, 'as it is')} / {_clock(row, backend)}")
        cells += ["–", "–"] if truth is None else [truth["bound"], _shares(truth["shares"])]
        if "error" in verdict:
            cells += [verdict["error"].partition(":")[0], "–", "–", "–", "–"]
        else:
            cells += [
                verdict["bound"],
                _shares(verdict["shares"]),
                f"{verdict['confidence']:.2f}",
                f"{verdict['iterations']} of {row['active'] // row['updates']}",
                _backward(truth, verdict),
            ]
        found = outcome(row, verdict)
        cells.append(f"**{found}**" if found == "wrong" else found)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _backward(truth: dict[str, Any] | None, verdict: dict[str, Any]) -> str:
    """Kernel time launched by autograd's threads, and attributed to backward and recompute."""
    told = None if truth is None else truth.get("backward")
    phases = verdict.get("phases", {})
    known = 1.0 - phases.get("unattributed", 0.0)
    found = (phases.get("backward", 0.0) + phases.get("recompute", 0.0)) / (known or 1.0)
    return f"{'–' if told is None else f'{100 * told:.0f}'} / {100 * found:.0f}"


def _notes(results: Results) -> str:
    lines = [
        f"- `{_command(row)}`: {row['note']}" for row in results["rows"].values() if row["note"]
    ]
    failed = [
        f"- `{row['name']}` with {BACKENDS[backend]}: {found['failed'] or 'no room for it'}"
        for row in results["rows"].values()
        for backend, found in row["recordings"].items()
        if backend not in row["verdicts"]
    ]
    text = "## Notes\n\n" + "\n".join(lines) + "\n" if lines else ""
    return text + ("\nNot recorded:\n\n" + "\n".join(failed) + "\n" if failed else "")


def _command(row: dict[str, Any]) -> str:
    return f"{row['program']} {row['options']}".rstrip()


def _shares(shares: dict[str, float]) -> str:
    return " / ".join(f"{100 * shares[s]:.1f}" if s in shares else "–" for s in SHARES)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _clock(row: dict[str, Any], variant: str) -> str:
    clocks = [c["median"] for c in row["clocks_mhz"].get(variant, {}).values() if c]
    return f"{mean(clocks):.0f}" if clocks else "–"
