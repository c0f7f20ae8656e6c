"""What a check is: a rule with a name, what it means when it is broken, and how to mend that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from traceprobe.records.diagnosis import TROUBLE, CheckStatus, Outcome

Subject = TypeVar("Subject")
Judgement = tuple[CheckStatus, str]
"""How it is, and the fact that says so."""


class Check(msgspec.Struct, Generic[Subject], frozen=True):
    """One rule; `docs/doctor.md` has the same texts.

    Args:
        tests: what is looked at, and from where on it warns and fails.
        meaning: which number or command suffers when it does not hold, and in which direction.
        fix: what to do.
    """

    id: str
    tests: str
    meaning: str
    fix: str
    judge: Callable[[Subject], Judgement]

    def __call__(self, subject: Subject) -> Outcome:
        """The outcome for one subject."""
        status, found = self.judge(subject)
        if status not in TROUBLE:
            return Outcome(id=self.id, status=status, found=found)
        return Outcome(id=self.id, status=status, found=found, meaning=self.meaning, fix=self.fix)


class Checks(list[Check[Subject]]):
    """The checks of a kind of subject, in the order in which they are listed."""

    def add(
        self, id: str, *, tests: str, meaning: str, fix: str
    ) -> Callable[[Callable[[Subject], Judgement]], Callable[[Subject], Judgement]]:
        """Register a function as the check of that id."""

        def register(judge: Callable[[Subject], Judgement]) -> Callable[[Subject], Judgement]:
            self.append(Check(id, tests, meaning, fix, judge))
            return judge

        return register

    def run(self, subject: Subject) -> list[Outcome]:
        """All outcomes for one subject."""
        return [check(subject) for check in self]


def absent(reason: str) -> Judgement:
    """A check that has nothing to look at."""
    return "not-applicable", reason
