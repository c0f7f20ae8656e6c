"""The sentences of a verdict: what was decided, by which numbers."""

from __future__ import annotations

from collections.abc import Sequence

from traceprobe.records.rank import Rank, mean_step_ms
from traceprobe.records.run import Run
from traceprobe.verdict.bounds import Decision
from traceprobe.verdict.correction import Corrected
from traceprobe.verdict.drift import Drift
from traceprobe.verdict.thresholds import STRAGGLING, Thresholds

SUBJECT = {
    "io": "waiting for input data or copying it to the device",
    "communication": "communication that no computation hides",
    "overhead": "the device idle while the host prepares work: Python, framework, launches, "
    "synchronisation",
    "compute": "computation",
}
_IDLE = {
    "idle_data_wait": "waits for data",
    "idle_host": "late launches",
    "idle_sync": "synchronisation",
    "idle_latency": "launch and dependency latency",
}


def headline(decision: Decision, corrected: Corrected, ranks: Sequence[Rank]) -> str:
    """One sentence."""
    if decision.bound == "inconclusive":
        return f"No verdict: {decision.missing[0]}."
    step = mean_step_ms(ranks) if corrected.drift is None else corrected.drift.after.step_ns / 1e6
    every = f" of each {step:.1f} ms step" if step is not None else " of the capture"
    if decision.bound == "mixed":
        first, second = (decision.secondary or "+").split("+")
        return (
            f"Two causes are about equal: {100 * corrected.shares[first]:.0f} %{every} is "
            f"{SUBJECT[first]}, {100 * corrected.shares[second]:.0f} % is {SUBJECT[second]}."
        )
    share = corrected.shares[decision.bound]
    return f"{100 * share:.0f} %{every} is {SUBJECT[decision.bound]}."


def reasons(
    decision: Decision,
    corrected: Corrected,
    ranks: Sequence[Rank],
    run: Run | None,
    limits: Thresholds,
) -> list[str]:
    """The numbers behind the decision, most important first."""
    found = []
    shares = corrected.shares
    if decision.bound == "compute" and any(r.step_marker for r in ranks):
        largest = decision.secondary
        found.append(
            f"{largest} takes {shares[largest]:.1%}, below the {limits.bound:.0%} that would "
            "make it "
            "the bound"
            if largest
            else f"io, communication and overhead each take less than {limits.notable:.0%}"
        )
    elif decision.bound != "inconclusive":
        names = (
            [decision.bound] if decision.bound != "mixed" else (decision.secondary or "").split("+")
        )
        limit = limits.mixed if decision.bound == "mixed" else limits.bound
        if not any(r.step_marker for r in ranks):
            limit = limits.whole_capture
        found += [f"{name} takes {shares[name]:.1%} (threshold {limit:.0%})" for name in names]
    found += _data_wait(ranks, corrected.drift)
    found += _idle(ranks)
    if run is not None and run.transfer_ns is not None and run.skew_ns is not None:
        found.append(
            f"collectives: {run.transfer_ns / 1e6:.2f} ms per step are transfer, "
            f"{run.skew_ns / 1e6:.2f} ms waiting for other ranks"
        )
        found += late(run, mean_step_ms(ranks))
    elif decision.bound == "communication":
        found.append(
            "with one rank this is communication or waiting for peers; give all rank files"
        )
    return found + corrected.notes


def late(run: Run, step_ms: float | None) -> list[str]:
    """Who comes last to the collectives, and why; nothing where hardly anybody waits."""
    if run.straggler_rank is not None:
        who = f"the others wait for rank {run.straggler_rank}"
        if run.straggler_cause != "other":
            who += f", which has more {run.straggler_cause}"
    elif step_ms is not None and (run.skew_ns or 0) / 1e6 > STRAGGLING * step_ms:
        who = "no rank is last for most of the waiting: they take turns"
    else:
        return []
    causes = [
        f"{name.replace('other', 'unexplained')} {part:.0%}"
        for name, part in (run.skew_causes or {}).items()
        if part >= 0.005
    ]
    if not causes:
        return [who]
    return [who, f"by what the late ranks have more of, the waiting is {', '.join(causes)}"]


def _data_wait(ranks: Sequence[Rank], drift: Drift | None) -> list[str]:
    waited = sum(r.summary.partition_ns["idle_data_wait"] or 0 for r in ranks)
    inferred = sum(r.summary.host.data_wait_inferred_ns for r in ranks)
    window = sum(r.summary.window_ns for r in ranks) or 1
    if waited / window < 0.05 and drift is None:
        return []
    steps = sum(r.summary.iterations_used for r in ranks)
    amount = f"{waited / steps / 1e6:.1f} ms per step" if steps else f"{waited / window:.0%}"
    if drift is not None:
        amount = f"{drift.after.data_wait_ns / 1e6:.1f} ms per step"
    where = "between the steps" if inferred > waited / 2 else "inside data ranges"
    return [f"the device waits {amount} for data while the step thread is {where}"]


def _idle(ranks: Sequence[Rank]) -> list[str]:
    window = sum(r.summary.window_ns for r in ranks) or 1
    parts = {
        text: sum(r.summary.partition_ns[name] or 0 for r in ranks) / window
        for name, text in _IDLE.items()
        if name != "idle_data_wait"
    }
    largest = max(parts, key=lambda text: parts[text])
    if parts[largest] < 0.05:
        return []
    listed = ", ".join(f"{text} {share:.1%}" for text, share in parts.items() if share >= 0.01)
    return [f"idle outside of data waits: {listed}"]
