"""The verdict and what asks for attention, as instants where a person would look for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import UNSET

from traceprobe.formatting import significant
from traceprobe.model.taxonomy import BOUND_LABELS, STATUS_LABELS
from traceprobe.records.prediction import PredictedSaving
from traceprobe.records.report import Finding, Report
from traceprobe.verdict.finding_order import ATTENTION


class Instant(NamedTuple):
    """Something at one time, ns on the trace's clock."""

    at: int
    name: str
    arguments: dict[str, Any]


def instants(report: Report, starts: Sequence[int], longest: Mapping[str, int]) -> list[Instant]:
    """The verdict, then the findings that ask for attention, the most urgent first.

    A finding stands where the longest stretch begins of what it is about. One that is about no
    stretch stands, like the verdict, at the beginning of an iteration, of which each has its own
    as long as there are enough.

    Args:
        starts: of the iterations; one at least. longest: by class of the partition, where its
            longest stretch begins.
    """
    verdict = report.verdict
    found = [
        Instant(
            starts[0],
            f"verdict: {BOUND_LABELS[verdict.bound]}",
            {
                "bound": verdict.bound,
                "confidence": verdict.confidence,
                "headline": verdict.headline,
                **{f"share_{name}": share for name, share in verdict.shares.items()},
                "step_ms": report.step_ms,
            },
        )
    ]
    homeless = 0
    for finding in report.findings:
        if finding.status not in ATTENTION:
            continue
        classes = [] if finding.saving_of is UNSET else finding.saving_of
        places = [longest[name] for name in classes if name in longest]
        homeless += not places
        at = places[0] if places else starts[min(homeless, len(starts) - 1)]
        found.append(Instant(at, _title(finding), _arguments(finding, verdict.confidence)))
    return sorted(found, key=lambda instant: instant.at)


def _title(finding: Finding) -> str:
    saving = finding.gain_ms
    return f"{finding.title} (-{significant(saving)} ms)" if saving else finding.title


def _arguments(finding: Finding, confidence: float) -> dict[str, Any]:
    predicted = finding.predicted
    played = (
        {
            "predicted_saving_ms": predicted.ms,
            "predicted_from_ms": predicted.low_ms,
            "predicted_to_ms": predicted.high_ms,
        }
        if isinstance(predicted, PredictedSaving)
        else {}
    )
    return {
        "finding": finding.id,
        "status": STATUS_LABELS[finding.status],
        "saving_ms_per_step": finding.saving_ms_per_step,
        **played,
        "confidence_of_verdict": confidence,
        "advice": finding.advice,
        "evidence": "; ".join(finding.evidence),
    }
