"""Whether the verdict of a trace and that of an ablation say the same, and how to tell a reader.

The ablation is a measurement of its own: no profiler, other steps, nothing inferred. Where it has
no share for what the trace names, it can neither confirm nor deny it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from traceprobe.formatting import NOT_OBSERVED, percent, within_sentence
from traceprobe.model.taxonomy import BOUND_LABELS, SHARE_LABELS
from traceprobe.records.ablation import Ablation, AblationVerdict
from traceprobe.records.report import Verdict

State = Literal["agree", "partly", "disagree", "unknown"]


class Agreement(msgspec.Struct, frozen=True):
    """How the two verdicts relate, and the sentence that says so."""

    state: State
    words: str


def compare(verdict: Verdict, ablation: Ablation) -> Agreement:
    """Set the verdict of a trace against that of an ablation."""
    measured = ablation.oracle
    by_trace, by_ablation = parts(verdict), parts(measured)
    ablated, traced = named(measured), within_sentence(named(verdict))
    if verdict.bound == "inconclusive":
        return Agreement("unknown", f"{ablated}; the trace gives no verdict")
    if measured.bound == "inconclusive":
        return Agreement("unknown", f"the ablation gives no verdict; the trace says {traced}")
    if by_trace == by_ablation:
        return Agreement("agree", f"{ablated}, as the trace says")
    if set(by_trace) & set(by_ablation):
        return Agreement("partly", f"{ablated}; the trace says {traced}")
    blind = [name for name in by_trace if measured.shares.get(name) is None]
    if blind:
        cannot = " and ".join(SHARE_LABELS[name] for name in blind)
        return Agreement(
            "unknown",
            f"{ablated}; the trace says {traced}, which this ablation can neither confirm nor "
            f"deny: it has no share for {cannot}",
        )
    names = [name for name in SHARE_LABELS if name in {*by_trace, *by_ablation}]
    values = ", ".join(f"{SHARE_LABELS[n]} {_share(ablation, n)}" for n in names)
    seen = ", ".join(f"{SHARE_LABELS[n]} {percent(verdict.shares.get(n))}" for n in names)
    return Agreement(
        "disagree",
        f"{ablated} ({values}; {100 * measured.margin:.1f} points from another answer); the trace "
        f"says {traced} ({seen})",
    )


def named(judged: Verdict | AblationVerdict) -> str:
    """The bound in words; of `mixed` also what is mixed."""
    word = BOUND_LABELS[judged.bound]
    if judged.bound != "mixed":
        return word
    return f"{word}: {' and '.join(SHARE_LABELS[name] for name in parts(judged))}"


def parts(judged: Verdict | AblationVerdict) -> list[str]:
    """What a verdict holds to be the bound, in fixed order: one share, or the two of `mixed`."""
    names = (judged.secondary or "").split("+") if judged.bound == "mixed" else [judged.bound]
    return [name for name in SHARE_LABELS if name in names]


def _share(ablation: Ablation, name: str) -> str:
    share = ablation.oracle.shares.get(name)
    if share is None:
        return NOT_OBSERVED
    return f"{percent(share.value)}, 95 % interval {100 * share.low:.1f}–{100 * share.high:.1f} %"
