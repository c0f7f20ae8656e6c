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
COUNTED: dict[CheckStatus, tuple[str, str]] = {
    "fail": ("check failed", "checks failed"),
    "warn": ("warning", "warnings"),
    "unknown": ("unknown", "unknown"),
    "ok": ("passed", "passed"),
}
WRONG: Sequence[CheckStatus] = ("fail", "warn", "unknown")
"""What is told without being asked."""
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
        summary={
            "terminal": [
                *([*_checks(section, WRONG)] for section in diagnosis.sections),
                [Text(["more with -v: every check"])],
            ],
            "verbose": [[*_checks(section, STATUSES)] for section in diagnosis.sections],
        },
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


def _checks(section: Section, told: Sequence[CheckStatus]) -> Iterator[Block]:
    """How many ended how, the checks of some states by urgency, and what does not apply."""
    yield Facts([(section.subject, total(section.checks))])
    for outcome in sorted(section.checks, key=lambda outcome: STATUSES.index(outcome.status)):
        if outcome.status in told and outcome.status != "not-applicable":
            found = f"{outcome.id}: {outcome.found}"
            yield Text([found], WORDS[outcome.status], _TONES.get(outcome.status, "plain"))
            if outcome.meaning:
                yield Text([f"means: {outcome.meaning}", f"fix: {outcome.fix}"], "-")
    idle = _ids(section, "not-applicable") if "not-applicable" in told else []
    if idle:
        yield Text([", ".join(idle)], f"{WORDS['not-applicable']}:")


def _ids(section: Section, status: CheckStatus) -> list[str]:
    return [outcome.id for outcome in section.checks if outcome.status == status]
