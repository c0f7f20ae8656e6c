"""What every run checks of its own report before anybody sees it."""

from __future__ import annotations

from collections.abc import Sequence

from traceprobe.records import report as result
from traceprobe.records.soundness import problems_of
from traceprobe.system import shell


class InternalError(Exception):
    """A result contradicts itself: the fault is traceprobe's, not the user's.

    Args:
        problems: what is violated. inputs: those of the report.
    """

    def __init__(self, problems: Sequence[str], inputs: Sequence[result.Input]) -> None:
        self.problems = list(problems)
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        commands = "".join(f"\n  {_anonymise(each)}" for each in inputs)
        super().__init__(
            f"internal error: {self.problems[0]}{more}\n"
            "this is a bug of traceprobe; no report was written. Please report it and attach "
            f"what this writes, a copy of the trace without private names:{commands}"
        )


def _anonymise(each: result.Input) -> str:
    suffix = "sqlite" if each.format == "nsys" else "json"
    return f"traceprobe inspect --anonymise {shell.file(each.name)} -o bug.{suffix}.gz"


def verify(report: result.Report, ranks: Sequence[result.Rank]) -> result.Report:
    """The same report.

    Args:
        ranks: those of the report with all their details.

    Raises:
        InternalError: something in it contradicts something else.
    """
    problems = problems_of(report, ranks)
    if problems:
        raise InternalError(problems, report.inputs)
    return report
