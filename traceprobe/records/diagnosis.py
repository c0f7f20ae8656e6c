"""The result of `traceprobe doctor`: checks of a machine or of traces, each with what it means.

Plain records that serialise to JSON. They hold counts, versions and base names of files only, so
that the output can go into a public issue as it is.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from traceprobe.records.base import Saved
from traceprobe.records.texts import Sentence, Word

CheckStatus = Literal["fail", "warn", "unknown", "ok", "not-applicable"]
STATUSES: tuple[CheckStatus, ...] = ("fail", "warn", "unknown", "ok", "not-applicable")
"""Most urgent first."""
TROUBLE: tuple[CheckStatus, ...] = ("fail", "warn")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One check. `meaning` and `fix` are empty where there is nothing to mend."""

    id: Word
    status: CheckStatus
    found: Sentence
    meaning: Sentence = ""
    fix: Sentence = ""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """The checks of one thing: the environment, an input by its base name, or the whole run."""

    subject: Word
    checks: list[Outcome]


class Diagnosis(Saved, frozen=True, kw_only=True):
    """Everything that was checked. See `docs/doctor.md` for the checks."""

    sections: list[Section]

    @property
    def failed(self) -> bool:
        """Whether any check failed."""
        return any(c.status == "fail" for section in self.sections for c in section.checks)
