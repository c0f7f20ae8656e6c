"""The result of an analysis: plain records that serialise to `report.json`.

Every output (HTML, Markdown, terminal) is a pure function of a `Report`. Units are in the field
names; a quantity that was not observed is `None`, never 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import UNSET

from traceprobe.errors import UsageError
from traceprobe.formatting import significant
from traceprobe.model.taxonomy import BOUND_LABELS, SHARES
from traceprobe.records.ablation import Ablation
from traceprobe.records.base import Rendered
from traceprobe.records.causal import Causal
from traceprobe.records.critical_path import CriticalPath
from traceprobe.records.headroom import Headroom
from traceprobe.records.loader import Loader
from traceprobe.records.memory import Memory
from traceprobe.records.nccl import NcclRecords
from traceprobe.records.numbers import SHARE_ROUNDING
from traceprobe.records.prediction import JointPrediction, PredictedSaving
from traceprobe.records.rank import Rank, mean_step_ms
from traceprobe.records.recording import Recording
from traceprobe.records.roofline import Limit, Roofline
from traceprobe.records.run import Overview, Run
from traceprobe.records.site import Site
from traceprobe.records.texts import PRIVATE, Checksum, Digits, Name, Sentence, Word
from traceprobe.records.tree import Tree

if TYPE_CHECKING:
    import polars as pl

_CLOCK = re.compile(r"-?\d{1,20}")

Bound = Literal["io", "compute", "communication", "overhead", "mixed", "inconclusive"]
Status = Literal["fail", "warn", "pass", "not-applicable", "inconclusive"]


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was analysed."""

    name: Name
    sha256: Checksum
    format: Literal["kineto", "nsys"]
    dialect: Sentence
    producer: Sentence
    bytes: int
    origin_ns: Digits
    """Trace clock at the report's time zero, as a decimal string (beyond 2**53 in UTC traces)."""
    base_ns: Digits = "0"
    """What the file's own time stamps leave out of that clock, as a decimal string."""

    def problems(self) -> Iterator[str]:
        """What of it cannot be."""
        if not (_CLOCK.fullmatch(self.origin_ns) and _CLOCK.fullmatch(self.base_ns)):
            yield "its clock is no number"


class Message(msgspec.Struct, frozen=True):
    """A warning or caution; `code` stays the same between versions."""

    code: Word
    message: Sentence


class ObserverEffect(msgspec.Struct, frozen=True, kw_only=True):
    """The step with and without a profiler."""

    profiled_step_ms: float
    unprofiled_step_ms: float
    ratio: float
    other_conditions: bool = False
    """The second is far longer, for no reason that is known: it was timed when something else was
    different. Predictions are then of the first."""

    @property
    def step_ms(self) -> float:
        """The step that savings are parts of: without the profiler, unless that is another one."""
        return self.profiled_step_ms if self.other_conditions else self.unprofiled_step_ms


class LostInput(msgspec.Struct, frozen=True, kw_only=True):
    """An input that could not be read, and why."""

    name: Name
    reason: Sentence


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """What of the inputs could be used, and what of it to be careful with."""

    gpu_ops: int
    gpu_ops_linked: int
    launches_without_gpu_op: int
    events_repaired: int
    events_lost: int
    observer_effect: ObserverEffect | None
    warnings: list[Message]
    damage: dict[Word, int] | msgspec.UnsetType = UNSET
    """Kinds of damage, by the code of their warning; not there where there was none."""
    recording: Recording | msgspec.UnsetType = UNSET
    """How the steps were recorded, of the rank that leaves most doubt; not there where no
    recording of traceprobe's says so."""
    lost: list[LostInput] | msgspec.UnsetType = UNSET
    """Inputs that the report had to be made without; not there where all could be read."""

    nccl_records: list[NcclRecords] | msgspec.UnsetType = UNSET
    """Dumps of PyTorch's flight recorder that sizes and groups of collectives were filled from, by
    rank; not there without."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        counts = (self.launches_without_gpu_op, self.events_repaired, self.events_lost)
        if min(self.gpu_ops, self.gpu_ops_linked, *counts) < 0:
            yield "quality: a count is negative"
        if not self.gpu_ops_linked <= self.gpu_ops:
            yield "more linked ops than ops"
        effect = self.observer_effect
        if effect is not None and min(effect.profiled_step_ms, effect.unprofiled_step_ms) <= 0:
            yield "quality: a step takes no time"
        if self.recording is not UNSET:
            yield from self.recording.problems()
        for joined in () if self.nccl_records is UNSET else self.nccl_records:
            yield from joined.problems()


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """One term of the confidence; the terms add up to it (before clamping to [0, 1])."""

    name: Word
    value: float
    why: Sentence


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds the run, how sure that is, and why."""

    bound: Bound
    secondary: Word | None
    headline: Sentence
    confidence: float
    confidence_terms: list[Term]
    shares: dict[Word, float]
    """After corrections for the observer effect and for waiting in collectives; sums to 1."""
    reasons: list[Sentence]
    missing: list[Sentence]
    thresholds: dict[Word, float]
    limit: Limit | msgspec.UnsetType = UNSET
    """Of a run that is bound by compute: what its kernels' time mostly goes to. Not there for
    others, and where it is not known."""
    skew: float | msgspec.UnsetType = UNSET
    """Part of the shares that is waiting for other ranks; it counts in them by `skew_causes`. Not
    there where one rank cannot tell it from transfer."""

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        shares = self.shares.values()
        if set(self.shares) - set(SHARES):
            yield "verdict.shares are not those of the contract"
        if not all(-SHARE_ROUNDING <= share <= 1 + SHARE_ROUNDING for share in shares):
            yield "verdict.shares are no parts of 1"
        if set(self.shares) != set(SHARES) or not abs(sum(shares) - 1) <= SHARE_ROUNDING:
            yield "verdict.shares do not sum to 1"
        if not 0 <= self.confidence <= 1:
            yield "verdict.confidence is no part of 1"
        total = sum(term.value for term in self.confidence_terms)
        if not abs(self.confidence - min(max(total, 0), 1)) <= 5e-4 + SHARE_ROUNDING:
            yield "the terms do not add up to the confidence"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One check of the run: what it found, what mending it saves, and how."""

    id: Word
    status: Status
    title: Sentence
    saving_ms_per_step: float | None
    evidence: list[Sentence]
    advice: Sentence
    rule: Sentence = ""
    """How the finding and its saving are computed."""
    verify: Sentence = ""
    """How to check it without traceprobe."""
    saving_of: list[Word] | msgspec.UnsetType = UNSET
    """Classes of the partition, or of kernels, whose time the saving is at most; not there where
    nothing is saved."""
    sites: list[Site] | msgspec.UnsetType = UNSET
    """Where in the program most of it is, at most three; not there where no owner is known."""
    predicted: PredictedSaving | msgspec.UnsetType = UNSET
    """By how much mending it makes a step shorter, which is no more than `saving_ms_per_step`; not
    there where the iterations cannot be played without it."""

    @property
    def gain_ms(self) -> float:
        """What mending it is expected to save: as predicted, else at most."""
        if isinstance(self.predicted, PredictedSaving):
            return self.predicted.ms
        return self.saving_ms_per_step or 0.0

    @property
    def by_gain(self) -> tuple[float, float]:
        """Sorts what gains more first; of what gains nothing by itself, what may gain more."""
        return -round(self.gain_ms, 2), -(self.saving_ms_per_step or 0.0)


class Report(Rendered, frozen=True, kw_only=True):
    """A whole analysis. See `docs/report-json.md` for the meaning of every field."""

    inputs: list[Input]
    quality: Quality
    ranks: list[Rank]
    run: Run | None
    workload: Annotated[dict[str, Any] | None, PRIVATE]
    verdict: Verdict
    findings: list[Finding]
    ablation: Ablation | None = None
    """The same loop with parts taken out, measured without a profiler; None where nobody did."""
    causal: Causal | msgspec.UnsetType = UNSET
    """The same program with delays put in; not there where nobody did."""
    memory: Memory | msgspec.UnsetType = UNSET
    """What the device held in a step, and what for; not there where the capture does not say."""
    loader: Loader | msgspec.UnsetType = UNSET
    """What feeds the steps; not there where the capture does not say."""
    roofline: Roofline | msgspec.UnsetType = UNSET
    """The step beside what the hardware could do; not there where neither is known."""
    critical_path: CriticalPath | msgspec.UnsetType = UNSET
    """What a step is as long as; not there where no iterations can be played."""
    joint: JointPrediction | msgspec.UnsetType = UNSET
    """A step with the first findings mended; not there with fewer than two predictions."""
    headroom: Headroom | msgspec.UnsetType = UNSET
    """Between which bounds the shortest step is; not there where no floor is known."""

    @property
    def step_ms(self) -> float | None:
        """The step that savings are parts of: without the profiler where that is known."""
        effect = self.quality.observer_effect
        return mean_step_ms(self.ranks) if effect is None else effect.step_ms

    def __repr__(self) -> str:
        """Bound, step time, ranks and steps, on one line."""
        steps = [rank.summary.step_ms.mean for rank in self.ranks if rank.summary.step_ms]
        time = f"{significant(max(steps))} ms a step" if steps else "no steps"
        used = max((rank.summary.iterations_used for rank in self.ranks), default=0)
        bound = BOUND_LABELS[self.verdict.bound]
        ranks = f"{len(self.ranks)} rank{'s' if len(self.ranks) != 1 else ''}"
        return f"<Report: {bound}, {time}, {ranks}, {used} steps>"

    def tree(self, rank: int | None = None) -> pl.DataFrame:
        """Who owns the time of a rank, a node a row; `docs/library.md` has the columns.

        Args:
            rank: its number; the first that has a tree.

        Raises:
            UsageError: the report has no such rank, or nothing of who owns its time.
        """
        return self.rank_with_tree(rank)[1]

    def rank_with_tree(self, rank: int | None = None) -> tuple[Rank, pl.DataFrame]:
        """The rank that `tree` is of, and the same. Errors are those of `tree`."""
        for found in self.ranks:
            if rank in (None, found.rank) and isinstance(found.tree, Tree):
                summary = found.summary
                return found, found.tree.frame(summary.window_ns, summary.steps)
        known = [str(r.rank) for r in self.ranks if isinstance(r.tree, Tree)]
        which = "of any rank" if rank is None else f"of rank {rank}"
        advice = f"there is one of rank {', '.join(known)}" if known else "analyse the traces again"
        raise UsageError(f"the report does not say who owns the time {which}; {advice}")

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        for number, source in enumerate(self.inputs):
            yield from (f"input {number}: {problem}" for problem in source.problems())
        yield from self._rank_problems()
        yield from self.verdict.problems()
        yield from self.quality.problems()
        if self.run is not None:
            yield from self.run.problems([rank.rank for rank in self.ranks])
        elif len(self.ranks) > 1:
            yield "several ranks and no run"
        if self.ablation is not None:
            yield from self.ablation.problems()
        if isinstance(self.roofline, Roofline):
            yield from self.roofline.problems()
        if isinstance(self.memory, Memory):
            yield from self.memory.problems(len(self.inputs))
        if isinstance(self.loader, Loader):
            yield from self.loader.problems()
        for part in (self.causal, self.critical_path, self.joint, self.headroom):
            if not isinstance(part, msgspec.UnsetType):
                yield from part.problems()
        yield from self._saving_problems()
        for finding in self.findings:
            for site in () if isinstance(finding.sites, msgspec.UnsetType) else finding.sites:
                yield from (f"{finding.id}: {problem}" for problem in site.problems())

    def _rank_problems(self) -> Iterator[str]:
        places = [(rank.input, rank.pid, rank.device.index) for rank in self.ranks]
        if places != sorted(set(places)) or not places:
            yield "ranks are out of order or repeated"
        if any(not 0 <= rank.input < len(self.inputs) for rank in self.ranks):
            yield "a rank has no input"
        overview = UNSET if self.run is None else self.run.overview
        for rank in self.ranks:
            detailed = not isinstance(overview, Overview) or rank.rank in overview.detailed_ranks
            problems = rank.problems() if detailed else rank.problems_without_details()
            yield from (f"rank {rank.rank}: {problem}" for problem in problems)

    def _saving_problems(self) -> Iterator[str]:
        """Nothing saves more than the longest step, with a profiler or without."""
        steps = [r.summary.step_ms.mean for r in self.ranks if r.summary.step_ms is not None]
        effect = self.quality.observer_effect
        unseen = effect.step_ms - effect.profiled_step_ms if effect is not None else 0.0
        longest = max(steps, default=math.inf) + max(unseen, 0.0)
        for finding in self.findings:
            saving = finding.saving_ms_per_step
            if saving is not None and not 0 < saving <= longest * (1 + SHARE_ROUNDING) + 1e-3:
                yield f"{finding.id} saves {saving} of {longest} ms"
            predicted = finding.predicted
            if isinstance(predicted, PredictedSaving):
                yield from predicted.problems()
                if predicted.ms > (saving or 0.0) + 1e-3:
                    yield f"{finding.id} is predicted to save more than it can"
        if isinstance(self.joint, JointPrediction):
            yield from self._joint_problems(self.joint)

    def _joint_problems(self, joint: JointPrediction) -> Iterator[str]:
        """Together findings save as much as the best of them, and no more than all of them can."""
        by_id = {f.id: f for f in self.findings if isinstance(f.predicted, PredictedSaving)}
        findings = [by_id[name] for name in joint.findings if name in by_id]
        gain = joint.now_ms - joint.step_ms
        if len(findings) < len(joint.findings):
            yield "a joint prediction is of a finding without one"
        elif gain > sum(f.saving_ms_per_step or 0.0 for f in findings) + 1e-3:
            yield "findings are predicted to save more together than they can"
        elif gain < max((f.gain_ms for f in findings), default=0.0) - 1e-3:
            yield "findings are predicted to save less together than one of them alone"
