"""The bound: what holds the run back, from corrected shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from traceprobe.model.taxonomy import SHARE_LABELS
from traceprobe.records.rank import Rank
from traceprobe.records.report import Bound, Quality
from traceprobe.verdict.correction import Corrected
from traceprobe.verdict.no_training import why_no_training
from traceprobe.verdict.thresholds import Thresholds

CANDIDATES: tuple[Bound, ...] = ("io", "communication", "overhead")


@dataclass(frozen=True)
class Decision:
    """The bound, the runner-up, and by how much the nearest threshold was missed (a share)."""

    bound: Bound
    secondary: str | None
    margin: float
    missing: tuple[str, ...] = ()

    @property
    def deciding(self) -> tuple[str, ...]:
        """What decides: the bound, the two causes of `mixed`, nothing where it is inconclusive."""
        if self.bound == "mixed":
            return tuple((self.secondary or "").split("+"))
        return () if self.bound == "inconclusive" else (self.bound,)


def decide(
    corrected: Corrected, ranks: Sequence[Rank], quality: Quality, thresholds: Thresholds
) -> Decision:
    """Judge the shares, or say what is missing to judge them."""
    missing = _missing(corrected, ranks, quality, thresholds)
    if missing:
        return Decision("inconclusive", None, 0.0, tuple(missing))
    if all(rank.step_marker is None for rank in ranks):
        return _whole_capture(corrected.shares, thresholds)
    shares = {
        name: corrected.shares[name]
        for name in CANDIDATES
        if not (name == "overhead" and corrected.overhead_ruled_out)
    }
    return by_threshold(shares, thresholds)


def by_threshold(shares: Mapping[Bound, float], thresholds: Thresholds) -> Decision:
    """The largest share decides if it reaches the threshold; two of about the same size are mixed.

    Args:
        shares: fractions of the step for at least two of `CANDIDATES`.
    """
    ordered = sorted(shares, key=lambda name: (-shares[name], name))
    first, second = ordered[0], ordered[1]
    lead = round(shares[first] - shares[second], 6)
    # Both conditions must change to make it mixed.
    unmixed = max(thresholds.mixed - shares[second], lead - thresholds.mixed_margin)
    if shares[second] >= thresholds.mixed and lead <= thresholds.mixed_margin:
        margin = min(shares[second] - thresholds.mixed, thresholds.mixed_margin - lead)
        return Decision("mixed", f"{first}+{second}", margin)
    if shares[first] >= thresholds.bound:
        margin = min(shares[first] - thresholds.bound, unmixed)
        return Decision(first, second if shares[second] >= thresholds.notable else None, margin)
    margin = min(thresholds.bound - shares[first], unmixed)
    return Decision("compute", first if shares[first] >= thresholds.notable else None, margin)


def _whole_capture(shares: dict[str, float], thresholds: Thresholds) -> Decision:
    """Without a step marker only a majority decides."""
    answers: tuple[Bound, ...] = (*CANDIDATES, "compute")
    first = max(answers, key=lambda name: shares[name])
    if shares[first] >= thresholds.whole_capture:
        return Decision(first, None, shares[first] - thresholds.whole_capture)
    return Decision(
        "inconclusive",
        None,
        0.0,
        (
            "there is no step marker, and no cause accounts for "
            f"{thresholds.whole_capture:.0%} of the capture (the largest is "
            f"{SHARE_LABELS[first]} with {shares[first]:.0%}); call prof.step() each iteration, "
            "annotate steps (`step 0`, `step 1`, …) or name them with --step",
        ),
    )


def _missing(
    corrected: Corrected, ranks: Sequence[Rank], quality: Quality, thresholds: Thresholds
) -> list[str]:
    missing = why_no_training(ranks)
    if missing:  # whatever else is missing, it would not help
        return missing
    if any(warning.code == "clocks-disagree" for warning in quality.warnings):
        missing.append(
            "the clocks of host and GPU disagree in this file, by no constant offset: what the GPU "
            "waits for cannot be told; capture again, with another version of the profiler if need "
            "be"
        )
    marked = [rank for rank in ranks if rank.step_marker is not None]
    fewest = min((rank.summary.iterations_used for rank in marked), default=0)
    if marked and fewest < thresholds.min_iterations:
        missing.append(
            f"{fewest} usable iterations, {thresholds.min_iterations} are needed; profile at least "
            f"{thresholds.min_iterations + 2} consecutive steps (`schedule(wait=1, warmup=2, "
            "active=6)`)"
        )
    if not marked and quality.gpu_ops < thresholds.min_gpu_ops:
        missing.append(
            f"{quality.gpu_ops} GPU ops, at least {thresholds.min_gpu_ops} are needed; profile "
            "more work"
        )
    # Of a whole capture nothing is known of its borders: there low coverage costs confidence only.
    covered = min(
        (r.summary.coverage for r in marked if r.summary.coverage is not None), default=1.0
    )
    if covered < thresholds.coverage:
        missing.append(
            f"only {covered:.0%} of the launches have a GPU row: the capture lost GPU work; "
            "synchronise before stopping the profiler, or capture fewer steps"
        )
    window = sum(rank.summary.window_ns for rank in ranks)
    unexplained = sum(rank.summary.partition_ns["idle_unexplained"] or 0 for rank in ranks)
    idle, waiting = unexplained / (window or 1), corrected.unexplained_wait
    if idle + waiting > thresholds.unexplained:
        missing.append(
            f"{idle:.0%} of the time is idle that no host rows explain; record the "
            "CPU too (`ProfilerActivity.CPU`, `nsys profile --trace=cuda,nvtx`)"
            if idle >= waiting
            else f"{waiting:.0%} of the time is ranks waiting for each other with no visible "
            "cause; analyze the files of all ranks together"
        )
    return missing
