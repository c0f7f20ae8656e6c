"""What every run checks of its own report before anybody sees it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from msgspec import UNSET

from traceprobe.errors import InternalError
from traceprobe.records.class_bound import class_bound_ms
from traceprobe.records.numbers import SHARE_ROUNDING
from traceprobe.records.prediction import PredictedSaving
from traceprobe.records.rank import Rank
from traceprobe.records.report import Finding, Input, Quality, Report, Verdict
from traceprobe.records.run import straggler_of
from traceprobe.system import shell
from traceprobe.verdict.bounds import agrees, deciding


def verify(
    report: Report,
    ranks: Iterable[Rank],
    regular: Sequence[Rank] | None = None,
    quality: Quality | None = None,
    shares: Mapping[str, float] | None = None,
) -> Report:
    """The same report.

    Args:
        ranks: with all their details those that have none in the report, and any others.
        regular, quality, shares: what the findings are about, where that is not the ranks, the
            quality and the shares of the verdict of the report.

    Raises:
        InternalError: something in it contradicts something else.
    """
    kept = set(map(id, report.ranks))
    details = (
        f"rank {rank.rank}: {problem}"
        for rank in ranks
        if id(rank) not in kept
        for problem in rank.problems()
    )
    problems = list(
        chain(
            details,
            report.problems(),
            _verdict_problems(report.verdict),
            _saving_problems(
                report.findings,
                straggler_of(report.run),
                report.ranks if regular is None else regular,
                quality or report.quality,
                report.verdict.shares if shares is None else shares,
            ),
        )
    )
    if problems:
        raise InternalError(message(problems, report.inputs))
    return report


def _verdict_problems(verdict: Verdict) -> Iterator[str]:
    """Not part of the record, so that reports of versions that did not check this can be read."""
    if not agrees(deciding(verdict.bound, verdict.secondary), verdict.shares):
        yield f"the verdict says {verdict.bound}, which its shares contradict"


def _saving_problems(
    findings: Sequence[Finding],
    straggler: int | None,
    ranks: Sequence[Rank],
    quality: Quality,
    shares: Mapping[str, float],
) -> Iterator[str]:
    """Nothing saves more of a class than there is; what a short capture hides comes on top."""
    for finding in findings:
        saving, classes = finding.saving_ms_per_step, finding.saving_of
        if saving is None or classes is UNSET or not classes:
            continue
        most = class_bound_ms(ranks, classes, straggler, quality.observer_effect, shares)
        told = [saving]
        if isinstance(finding.predicted, PredictedSaving):
            told.append(finding.predicted.high_ms)
        if max(told) > most * (1 + SHARE_ROUNDING) + 1e-3:
            yield f"{finding.id} saves {max(told)} ms of {most:.6f} in {', '.join(classes)}"


def message(problems: Sequence[str], inputs: Sequence[Input]) -> str:
    """What is said of a report that contradicts itself: what is wrong, and how to report it."""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    commands = "".join(f"\n  {_anonymise(each)}" for each in inputs)
    return (
        f"internal error: {problems[0]}{more}\n"
        "this is a bug of traceprobe; no report was written. Please report it and attach "
        f"what this writes, a copy of the trace without private names:{commands}"
    )


def _anonymise(source: Input) -> str:
    suffix = "sqlite" if source.format == "nsys" else "json"
    return f"traceprobe inspect --anonymise {shell.file(source.name)} -o bug.{suffix}.gz"
