"""A diagnosis told in sections: what needs attention first, with its meaning and its fix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from traceprobe.formatting import counted
from traceprobe.records.diagnosis import STATUSES, CheckStatus, Diagnosis, Outcome, Section
from traceprobe.render.document import Block, Document, Facts, Text, Tone

WORDS: dict[CheckStatus, str] = {
    "fail": "fail",
    "warn": "warn",
    "unknown": "unknown",
    "ok": "ok",
    "not-applicable": "does not apply",
}
MACHINE = "environment"
"""What the section about this machine is called."""
COUNTED: dict[CheckStatus, tuple[str, str]] = {
    "fail": ("check failed", "checks failed"),
    "warn": ("warning", "warnings"),
    "unknown": ("unknown", "unknown"),
    "ok": ("passed", "passed"),
}
_TONES: dict[CheckStatus, Tone] = {"fail": "bad", "warn": "unclear"}


def document(diagnosis: Diagnosis) -> Document:
    """The checks for a terminal, a paragraph for each thing that was checked."""
    outcomes = [outcome for section in diagnosis.sections for outcome in section.checks]
    found = {outcome.status for outcome in outcomes}
    return Document(
        kind="diagnosis",
        title=total(outcomes),
        tone=next((tone for status, tone in _TONES.items() if status in found), "plain"),
        headline="",
        summary={"terminal": [[*_checks(section)] for section in diagnosis.sections]},
        version=diagnosis.traceprobe_version,
        json=diagnosis.to_json(),
    )


def total(outcomes: Sequence[Outcome]) -> str:
    """How many checks ended how, on one line; those that do not apply are not told."""
    counts = Counter(outcome.status for outcome in outcomes)
    told = [
        counted(counts[status], *COUNTED[status])
        for status in STATUSES
        if counts[status] and status in COUNTED
    ]
    return ", ".join(told) or "nothing to check"


def _checks(section: Section) -> Iterator[Block]:
    """The checks by urgency. Of an input only the names of those that passed: there are many.

    What a machine has is of interest for itself.
    """
    yield Facts([(section.subject, total(section.checks))])
    passed = [] if section.subject == MACHINE else [c.id for c in section.checks if _fine(c)]
    for outcome in sorted(section.checks, key=lambda outcome: STATUSES.index(outcome.status)):
        if outcome.status != "not-applicable" and outcome.id not in passed:
            found = f"{outcome.id}: {outcome.found}"
            yield Text([found], WORDS[outcome.status], _TONES.get(outcome.status, "plain"))
            if outcome.meaning:
                yield Text([f"means: {outcome.meaning}", f"fix: {outcome.fix}"], "-")
    if passed:
        yield Text([", ".join(passed)], "passed:")


def _fine(outcome: Outcome) -> bool:
    return outcome.status == "ok"
