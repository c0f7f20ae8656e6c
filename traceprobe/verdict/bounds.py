"""The bound: what holds the run back, from corrected shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from traceprobe.formatting import counted, duration, percent
from traceprobe.model.taxonomy import SHARE_LABELS, SHARES
from traceprobe.records.numbers import SHARE_ROUNDING
from traceprobe.records.rank import Rank
from traceprobe.records.report import Bound, Quality
from traceprobe.verdict.correction import Corrected
from traceprobe.verdict.no_training import is_cut, runs_on_cpu, why_no_training
from traceprobe.verdict.thresholds import Thresholds
from traceprobe.verdict.unexplained import either, unexplained

PROFILE_MORE = "profile at least five consecutive steps (`schedule(wait=1, warmup=2, active=6)`)"
CANDIDATES: tuple[Bound, ...] = ("io", "communication", "overhead")


class Decision(msgspec.Struct, frozen=True):
    """The bound, the runner-up, and by how much the nearest threshold was missed (a share)."""

    bound: Bound
    secondary: str | None
    margin: float
    missing: tuple[str, ...] = ()

    @property
    def deciding(self) -> tuple[str, ...]:
        """What decides: the bound, the two causes of `mixed`, nothing where it is inconclusive."""
        return deciding(self.bound, self.secondary)


def deciding(bound: Bound, secondary: str | None) -> tuple[str, ...]:
    """What decides: the bound, the two causes of `mixed`, nothing where it is inconclusive."""
    if bound == "mixed":
        return tuple((secondary or "").split("+"))
    return () if bound == "inconclusive" else (bound,)


def undecided(*missing: str) -> Decision:
    """No verdict, and what is missing for one."""
    return Decision("inconclusive", None, 0.0, missing)


def decide(
    corrected: Corrected, ranks: Sequence[Rank], quality: Quality, thresholds: Thresholds
) -> Decision:
    """Judge the shares, or say what is missing to judge them."""
    missing = _missing(corrected, ranks, quality, thresholds)
    if missing:
        return undecided(*missing)
    decision = _by_steps(corrected, ranks, quality, thresholds)
    if decision.bound == "compute":
        unseen = _unseen_head(ranks, thresholds)
        if unseen is not None:
            return undecided(unseen)
    return _with_unexplained(decision, corrected, ranks, thresholds)


def _by_steps(
    corrected: Corrected, ranks: Sequence[Rank], quality: Quality, thresholds: Thresholds
) -> Decision:
    """The decision as if all time were explained.

    One or two iterations that leave it open what steps are like are judged as more are where steps
    were timed without the profiler: the work of the GPU is in the capture, and those steps tell how
    long it takes them.
    """
    steps = fewest_steps(ranks)
    if steps >= thresholds.min_iterations:
        return _by_shares(corrected, thresholds)
    decision = _whole_capture(corrected.shares, ranks, thresholds)
    timed = quality.observer_effect is not None and corrected.calibration_doubt is None
    if decision.bound != "inconclusive" or not steps or not timed:
        return decision
    known = _by_shares(corrected, thresholds)
    return decision if known.bound == "inconclusive" else known


def _by_shares(corrected: Corrected, thresholds: Thresholds) -> Decision:
    """The decision of several steps."""
    shares = {
        name: corrected.shares[name]
        for name in CANDIDATES
        if not (name == "overhead" and corrected.overhead_ruled_out)
    }
    decision = by_threshold(shares, thresholds)
    lead = _lead(decision.deciding, corrected.shares)
    if lead >= 0:
        return replace(decision, margin=min(decision.margin, lead))
    return undecided(_disagreement(decision, corrected, thresholds))


def _with_unexplained(
    decision: Decision, corrected: Corrected, ranks: Sequence[Rank], thresholds: Thresholds
) -> Decision:
    """The decision, unless time of unknown cause could make another one of it.

    Such time may be waiting for data as well as work of the host. Where a bound could be made of a
    candidate of which no more is known than is unknown, the run is not known to be bound by
    compute; where it could make another cause as large as the one that is named, or bring one
    that is known to the threshold, that is not far from another answer.
    """
    idle, waiting = corrected.unexplained_idle, corrected.unexplained_wait
    largest = max(corrected.shares[name] for name in CANDIDATES if name not in decision.deciding)
    if decision.bound == "compute":
        room = thresholds.bound - largest - idle - waiting
        if room <= 0 and idle + waiting >= largest:
            # What is unexplained may be enough for a bound by itself, or only beside a candidate.
            if idle + waiting >= thresholds.bound:
                return undecided(unexplained(idle, waiting, ranks))
            rival = max(CANDIDATES, key=lambda name: corrected.shares[name])
            told = either(corrected.shares, rival, idle, waiting, ranks, thresholds)
            return undecided(told)
    elif decision.bound in CANDIDATES:
        room = corrected.shares[decision.bound] - largest - idle - waiting
    else:
        return decision
    if not idle + waiting:
        return decision
    return replace(decision, margin=min(decision.margin, max(room, 0.0)))


def _unseen_head(ranks: Sequence[Rank], thresholds: Thresholds) -> str | None:
    """Why the window of a single iteration does not show what a step is; None where it does.

    Loading a batch comes before the first work of the GPU, with which the window begins.
    """
    for rank in ranks:
        head = rank.summary.host.head_idle_ns
        if head is UNSET or head < thresholds.bound * (head + rank.summary.window_ns):
            continue
        return (
            f"only one iteration is recorded whole, and the GPU idles for {duration(head)} before "
            f"its first work there, as it may before each step; {PROFILE_MORE}"
        )
    return None


def agrees(deciding: Sequence[str], shares: Mapping[str, float]) -> bool:
    """Whether shares allow a bound: nobody believes a verdict that its own numbers contradict.

    I/O, communication and overhead are named only where no other of the three is larger, compute
    only where nothing is.

    Args:
        deciding: the bound, the two causes of `mixed`, nothing where it is inconclusive.
        shares: all five, fractions of the step.
    """
    return not deciding or _lead(deciding, shares) >= 0


def _lead(deciding: Sequence[str], shares: Mapping[str, float]) -> float:
    """By how much what decides is larger than the largest share that it has to exceed."""
    rivals = SHARES if "compute" in deciding else CANDIDATES
    others = [shares[name] for name in rivals if name not in deciding]
    lead = min(shares[name] for name in deciding) - max(others)
    return 0.0 if abs(lead) <= SHARE_ROUNDING else lead


def _disagreement(decision: Decision, corrected: Corrected, thresholds: Thresholds) -> str:
    """Which evidence says something else than the shares, and what would settle it."""
    shares = corrected.shares
    largest = max(shares, key=lambda name: shares[name])
    named = " and ".join(SHARE_LABELS[name] for name in decision.deciding)
    if corrected.overhead_ruled_out and shares["overhead"] >= max(
        shares[name] for name in CANDIDATES
    ):
        return (
            f"overhead takes {percent(shares['overhead'], 0)} of the profiled step, but the step "
            "is no longer than without a profiler, which speaks against the host as the limit; "
            "record more steps, and time the unprofiled ones right before and after them"
        )
    if largest in CANDIDATES:
        return (
            f"{SHARE_LABELS[largest]} takes {percent(shares[largest], 0)}, more than {named}, and "
            f"yet less than the threshold of {percent(thresholds.bound, 0)}; judge by a lower "
            "threshold"
        )
    return (
        f"{SHARE_LABELS[largest]} takes {percent(shares[largest], 0)}, more than {named}, and no "
        "cause reaches its threshold; capture again with fewer kinds of events, so that the "
        "profiler and copies to the host fill less of the step"
    )


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


def fewest_steps(ranks: Sequence[Rank]) -> int:
    """Used iterations of the rank with the fewest; those of several marks or passes count more.

    0 without step markers. Two rollouts with four updates each show eight steps of training, and
    two updates of four micro-batches each eight forward and backward passes.
    """
    return min(
        (
            rank.summary.iterations_used
            * max(rank.step_marker.per_iteration, rank.summary.micro_batches or 1)
            for rank in ranks
            if rank.step_marker is not None
        ),
        default=0,
    )


def _whole_capture(
    shares: dict[str, float], ranks: Sequence[Rank], thresholds: Thresholds
) -> Decision:
    """Without a step marker, or with one or two iterations, only a majority decides.

    Where most is computation, and yet a candidate takes what makes a bound of steps, it depends on
    what the steps are.
    """
    answers: tuple[Bound, ...] = (*CANDIDATES, "compute")
    first = max(answers, key=lambda name: shares[name])
    rival = max(CANDIDATES, key=lambda name: shares[name])
    room = thresholds.bound - shares[rival] if first == "compute" else 1.0
    margin = shares[first] - thresholds.whole_capture
    if margin >= 0 and room > 0:
        return Decision(first, None, min(margin, room))
    steps = fewest_steps(ranks)
    reason, remedy = (
        (_only(steps), PROFILE_MORE)
        if steps
        else (
            "there is no step marker",
            "call prof.step() each iteration, annotate steps (`step 0`, `step 1`, …) or name them "
            "with --step",
        )
    )
    why = (
        f"no cause accounts for {percent(thresholds.whole_capture, 0)} of the capture (the largest "
        f"is {SHARE_LABELS[first]} with {percent(shares[first], 0)})"
        if margin < 0
        else f"{SHARE_LABELS[rival]} takes {percent(shares[rival], 0)} beside "
        f"{percent(shares[first], 0)} of computation, which makes it the bound if the steps are "
        "like that"
    )
    return undecided(f"{reason}, and {why}; {remedy}")


def _only(steps: int) -> str:
    return f"there {'is' if steps == 1 else 'are'} only {counted(steps, 'usable iteration')}"


_CUT_OFF = (
    "a trace file was cut off, and what is left of it does not tell: copy it again, or record again"
)


def _missing(
    corrected: Corrected, ranks: Sequence[Rank], quality: Quality, thresholds: Thresholds
) -> list[str]:
    missing = _missing_of_capture(corrected, ranks, quality, thresholds)
    return [_CUT_OFF] if missing and is_cut(quality) else missing


def _missing_of_capture(
    corrected: Corrected, ranks: Sequence[Rank], quality: Quality, thresholds: Thresholds
) -> list[str]:
    missing = why_no_training(ranks, quality)
    if missing:  # whatever else is missing, it would not help
        return missing
    if any(warning.code == "clocks-disagree" for warning in quality.warnings):
        missing.append(
            "the clocks of host and GPU disagree in this file, by no constant offset: what the GPU "
            "waits for cannot be told; capture again, with another version of the profiler if need "
            "be"
        )
    marked = [rank for rank in ranks if rank.step_marker is not None]
    if marked and not fewest_steps(marked):
        missing.append(f"no usable iteration; {PROFILE_MORE}")
    few = fewest_steps(ranks) < thresholds.min_iterations
    if few and quality.gpu_ops < thresholds.min_gpu_ops:
        what = counted(quality.gpu_ops, "operator" if runs_on_cpu(ranks) else "GPU op")
        missing.append(f"{what}, at least {thresholds.min_gpu_ops} are needed; profile more work")
    # Of a whole capture nothing is known of its borders: there low coverage costs confidence only.
    covered = min(
        (r.summary.coverage for r in marked if r.summary.coverage is not None), default=1.0
    )
    if covered < thresholds.coverage:
        missing.append(
            f"only {percent(covered, 0)} of the launches have a GPU row: the capture lost GPU "
            "work; synchronise before stopping the profiler, or capture fewer steps"
        )
    idle, waiting = corrected.unexplained_idle, corrected.unexplained_wait
    if idle + waiting > thresholds.unexplained:
        missing.append(unexplained(idle, waiting, ranks))
    return missing
