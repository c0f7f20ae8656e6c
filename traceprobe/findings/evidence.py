"""What findings look at: the records of the run, and means over its ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from statistics import fmean
from typing import Any

import msgspec
import polars as pl
from msgspec import UNSET

from traceprobe.formatting import per, percent, significant
from traceprobe.model.sidecar import Block, CompilerNotes
from traceprobe.model.taxonomy import COMPUTE_PHASES, IDLE_CAUSES, KERNEL_PHASES, TRANSFERS
from traceprobe.records.class_bound import DATA_WAIT, UNSEEN, unseen_wait_ms
from traceprobe.records.loader import Loader
from traceprobe.records.memory import Memory
from traceprobe.records.operator_calls import OperatorPace
from traceprobe.records.rank import LongIterations, Rank, Vendor, mean_class_ms, removable_ms
from traceprobe.records.replay import Replay
from traceprobe.records.report import Quality, Status, Verdict
from traceprobe.records.run import Run, straggler_of
from traceprobe.records.site import Site
from traceprobe.records.sites import find_sites, owners_of
from traceprobe.replay.scenario import Changes
from traceprobe.replay.tasks import Tasks, schedule_of
from traceprobe.verdict import gpu_specs as gpus
from traceprobe.verdict.compared_steps import fed_before, timed_waits_ns
from traceprobe.verdict.drift import Drift, find_drift
from traceprobe.verdict.gpu_specs import Gpu
from traceprobe.verdict.made_before import MadeBefore
from traceprobe.verdict.no_training import runs_on_cpu, unrecorded_ranks, why_no_training
from traceprobe.verdict.thresholds import FIXED, Thresholds

HOST_IDLE = ("idle_host", "idle_latency")
"""What `Evidence.host_ms` is part of."""
_OF_TRAINING = ("backward", "recompute", "optimizer", "graph")
"""Phases of which a step of training has some; a graph may have any."""
_UPDATE = r"(^| / )Optimizer\.step#"
"""Ranges that PyTorch writes around an update, among those around an owner."""


class Saving(msgspec.Struct, frozen=True):
    """What a step gets shorter by at most, ms, and the classes whose time that is."""

    ms: float
    classes: tuple[str, ...] = ()


def factor_without(ms: float, of: float) -> float:
    """By which work of `of` ms gets faster where `ms` of it go, as far as that is believed."""
    return round(of / max(of - ms, of / FIXED.most_faster), 3)


class Evidence(msgspec.Struct, frozen=True, dict=True):
    """Records of a run; `*_ms` methods are means over ranks, per used step, or say what else.

    Args:
        ranks: their regular iterations.
        workload: what the capture recorded of the program, if anything.
        capture: what it recorded of the machine (`hardware`) and of PyTorch's switches (`flags`).
        memory: what it recorded of the device's memory, if anything.
        long: the iterations of each rank that do more than the regular ones, where there are any.
        whole: the ranks with these; as `ranks` where there are none.
        whole_step_ms: step with these and without a profiler, where that is known.
        loader: what it recorded of the loader that feeds the steps, of the rank whose is slowest.
        compiler: what it recorded of torch.compile, if anything was compiled.
        blocks: what it recorded of its blocks of steps, by rank.
        replays: iterations to be played, of each of `ranks` that has any: one after the other,
            since those of all ranks are more than all else.
        called: operators and their calls per step, of the rank that its host holds up most.
    """

    ranks: Sequence[Rank]
    run: Run | None
    quality: Quality
    verdict: Verdict
    thresholds: Thresholds
    profiled: frozenset[str]
    workload: Mapping[str, Any] | None = None
    capture: Mapping[str, Any] = msgspec.field(default_factory=dict)
    memory: Memory | None = None
    long: Sequence[LongIterations] = ()
    whole: Sequence[Rank] = ()
    whole_step_ms: float | None = None
    loader: Loader | None = None
    compiler: CompilerNotes | None = None
    blocks: Mapping[int, Sequence[Block]] = msgspec.field(default_factory=dict)
    replays: Callable[[], Iterable[Replay]] = tuple
    called: Callable[[], Mapping[str, OperatorPace]] = dict

    @property
    def per(self) -> str:
        """What times refer to: "per step", or "in the capture" where there is no step marker."""
        return per(self.has_steps)

    @property
    def has_steps(self) -> bool:
        """Whether any rank has a step marker, so that something can be saved in each step."""
        return any(r.summary.iterations_used for r in self.ranks)

    @property
    def on_cpu(self) -> bool:
        """Whether the run used no GPU; one whose GPU rows are missing did."""
        return runs_on_cpu(self.ranks) and not unrecorded_ranks(self.ranks, self.quality)

    @property
    def vendor(self) -> Vendor | None:
        """Whose GPUs the run used; AMD's where any is, None without."""
        vendors = {rank.device.vendor for rank in self.ranks} - {None}
        return min(vendors, default=None, key=str)

    @property
    def idle(self) -> str:
        """What it is called when the device does nothing."""
        return "time without an operator" if self.on_cpu else "idle GPU"

    @cached_property
    def infers(self) -> bool:
        """Whether nothing trains, as the file says, or as steps of forward passes alone do."""
        if any(w.code in ("inference", "inference-server") for w in self.quality.warnings):
            return True
        return bool(self.busy_ms("forward")) and not self.busy_ms(*_OF_TRAINING)

    @cached_property
    def operators(self) -> Mapping[str, OperatorPace]:
        """Operators by name, as `called` gives them; they are unpacked once."""
        return self.called()

    @cached_property
    def no_training(self) -> str:
        """Why nothing that the capture shows of a step is true of training; else empty."""
        return next(iter(why_no_training(self.ranks, self.quality)), "")

    def sites(self, *classes: str) -> list[Site]:
        """Where in the program the time of these classes of the partition is, the most first."""
        return find_sites(self.owners, pl.col("class").is_in(classes))

    @cached_property
    def cpu_update_ms(self) -> float:
        """Idle time in `Optimizer.step` where it updates parameters in host memory; else 0.

        Such an optimizer launches no kernel. Gradients are copied to it, and parameters back.
        """
        if self.on_cpu or self.busy_ms("optimizer"):
            return 0.0
        inside = (pl.col("class") == "idle_host") & pl.col("within").cast(pl.String).str.contains(
            _UPDATE
        )
        ms = float(self.owners.filter(inside)["ms"].sum())
        return 0.0 if self.flag(ms) == "pass" else ms

    @cached_property
    def owners(self) -> pl.DataFrame:
        """Owners of the ranks' time, as `owners_of` has them."""
        return owners_of(self.ranks)

    @property
    def made_before(self) -> MadeBefore | None:
        """That the recorded steps were fed from batches made before them, where they were."""
        effect, loader = self.quality.observer_effect, self.loader
        if effect is None:
            return None
        load_ms = None if loader is None else loader.load_ms
        return fed_before(self.ranks, load_ms, effect.profiled_step_ms, effect.unprofiled_step_ms)

    @cached_property
    def timed_waits_ms(self) -> dict[int, float]:
        """Waiting for the loader in a step without a profiler, of the ranks where it was timed."""
        return {rank: ns / 1e6 for rank, ns in timed_waits_ns(self.ranks).items()}

    @property
    def timed_wait_share(self) -> float:
        """Part of a step without a profiler in which it waits for data, where that was timed.

        As far as the verdict found room for it beside the work on the device; else 0.
        """
        if not self.timed_waits_ms or self.quality.observer_effect is None:
            return 0.0
        copied = self.exclusive_ms("h2d") / self.corrected_step_ms()
        return max(self.verdict.shares.get("io", 0.0) - copied, 0.0)

    @property
    def drift(self) -> Drift | None:
        """The loader's queue that ran dry within the capture, if one did."""
        return find_drift(self.ranks, self.thresholds)

    def saving(self, ms: float, *classes: str) -> Saving | None:
        """An upper bound as it is reported: None where nothing is saved, or there are no steps.

        Args:
            ms: what a rule holds to be the most that a step gets shorter by.
            classes: what that time is now, of the partition or of `KERNEL_CLASSES`: nothing saves
                more of a class than there is of it.
        """
        steps = [r.summary.step_ms.mean for r in self.ranks if r.summary.step_ms is not None]
        most = max(steps, default=ms)
        if classes:
            most = min(most, self.most_ms(*classes))
        bounds = [name for name, names in UNSEEN.items() if not classes or names & set(classes)]
        unseen = [self.unseen_ms(bound) for bound in bounds]
        most += max([*unseen, self.unseen_wait_ms() if DATA_WAIT in classes else 0.0])
        if self.quality.observer_effect is not None:
            step_ms = self.corrected_step_ms()
            most = min(most, step_ms)
            if set(classes) & UNSEEN["io"]:
                most = min(most, self.verdict.shares.get("io", 1.0) * step_ms + self.unseen_ms())
        rounded = round(min(ms, most), 6)
        if rounded <= 0 or not self.has_steps:
            return None
        return Saving(rounded, classes)

    def amount(self, ms: float) -> str:
        """A time in a sentence, with its share of the step."""
        return f"{significant(ms)} ms {self.per} ({percent(self.share(ms))})"

    def observed(self, *classes: str) -> bool:
        """Whether any rank shows any of these classes of the partition."""
        return any(r.summary.partition_ns[c] is not None for r in self.ranks for c in classes)

    def exclusive_ms(self, *classes: str) -> float:
        """Exclusive time in these classes of the partition."""
        return self._mean(
            [sum(r.summary.partition_ns[c] or 0 for c in classes) for r in self.ranks]
        )

    def most_ms(self, *classes: str) -> float:
        """What a step can get shorter by, at most, where the time of classes goes."""
        return removable_ms(self.ranks, classes, straggler_of(self.run))

    @cached_property
    def straggler(self) -> Rank | None:
        """The rank that all others wait for; None without one."""
        number = straggler_of(self.run)
        return next((rank for rank in self.ranks if rank.rank == number), None)

    def delaying_ms(self, spent: Callable[[Rank], float]) -> float:
        """What a step can get shorter by where a rank spares itself something, ms.

        The mean of the ranks. A straggler is late by all of its own: the others have as much less
        to wait, so that is not shared among the ranks.

        Args:
            spent: ns of it in all steps of a rank.
        """
        mean = self._mean([spent(rank) for rank in self.ranks])
        if self.straggler is None:
            return mean
        return max(mean, spent(self.straggler) / self.straggler.summary.steps / 1e6)

    def on_straggler(self, mean_ms: float, most_ms: float) -> str:
        """How much of a time the straggler has; empty where that is no more than the mean rank."""
        if self.straggler is None or most_ms <= mean_ms:
            return ""
        return f"{significant(most_ms)} ms on rank {self.straggler.rank}, which the others wait for"

    def idle_ms(self, *classes: str) -> float:
        """The same of idle time of these classes of the partition."""
        return self.delaying_ms(lambda r: sum(r.summary.partition_ns[c] or 0 for c in classes))

    def delaying_sites(self, *classes: str) -> list[Site]:
        """Where that is: on the straggler, where its own is what counts."""
        if self.straggler is None or self.idle_ms(*classes) <= self.exclusive_ms(*classes):
            return self.sites(*classes)
        return find_sites(owners_of([self.straggler]), pl.col("class").is_in(classes))

    def step_ms(self) -> float:
        """Length of a step, or of the whole capture without a step marker."""
        return self._mean([r.summary.window_ns for r in self.ranks])

    def corrected_step_ms(self) -> float:
        """The step that the verdict's shares are fractions of: without the profiler if known."""
        if self.quality.observer_effect is not None:
            return self.quality.observer_effect.step_ms
        return self.step_ms() if self.drift is None else self.drift.after.step_ns / 1e6

    def unseen_ms(self, bound: str = "io") -> float:
        """What a step lasts longer without a profiler than in the capture.

        The pace of loaders and of copies from pageable memory varies, and so do pauses of a GPU's
        host, so a short capture may have been lucky. An upper bound for them has to allow for what
        it did not show. Where a run has hardly any of it, a longer step has other reasons.

        Args:
            bound: of `UNSEEN`.
        """
        effect = self.quality.observer_effect
        if effect is None or self.verdict.shares.get(bound, 0.0) < self.thresholds.notable:
            return 0.0
        if bound == "overhead" and not self.has_kernels:  # a CPU computes in a longer step, too
            return 0.0
        return max(effect.step_ms - effect.profiled_step_ms, 0.0)

    def unseen_wait_ms(self) -> float:
        """Waiting for data in a step without a profiler that the capture does not show."""
        effect, straggler = self.quality.observer_effect, straggler_of(self.run)
        told = unseen_wait_ms(self.ranks, straggler, effect, self.verdict.shares)
        return max(self.unseen_ms(), told)

    def hideable_ms(self, exposed: str) -> float:
        """Upper bound for hiding `exposed` behind the rest of the step.

        A step stays at least as long as its longest other resource: computation, which claims time
        first and so is the sum of its exclusive parts, or any other transfer as a whole.
        """
        savings = []
        for rank in self.ranks:
            part, busy = rank.summary.partition_ns, rank.summary.busy_ns
            compute = sum(part[phase] or 0 for phase in COMPUTE_PHASES)
            others = (busy[name] or 0 for name in TRANSFERS if name != exposed)
            longest = max(compute, *others)
            savings.append(max(min(part[exposed] or 0, rank.summary.window_ns - longest), 0))
        return self._mean(savings)

    def busy_ms(self, *classes: str) -> float:
        """Busy time of these classes, hidden or not."""
        return self._mean([sum(r.summary.busy_ns[c] or 0 for c in classes) for r in self.ranks])

    def kernel_ms(self, *classes: str) -> float:
        """Time in these kinds of kernels of forward and backward pass."""
        return mean_class_ms(self.ranks, classes)

    def faster(self, ms: float, margin: float) -> Changes | None:
        """Kernels of forward and backward pass made so much faster that this time goes.

        Which of their phases the time is in is not known, so all get faster by one factor.

        Args:
            ms: what the kernels usually take less, per step.
            margin: relative error of that.
        """
        phases = [
            phase
            for phase in KERNEL_PHASES
            if all(rank.summary.busy_ns[phase] for rank in self.ranks)
        ]
        now = self.busy_ms(*phases)
        if ms <= 0 or not now:
            return None
        return Changes(speedup=dict.fromkeys(phases, factor_without(ms, now)), margin=margin)

    def share(self, ms: float) -> float:
        """A time as a fraction of the step."""
        step = self.step_ms()
        return ms / step if step else 0.0

    def grade(self, share: float) -> Status:
        """Fail from the bound threshold on, warn from the notable one."""
        if share >= self.thresholds.bound:
            return "fail"
        return "warn" if share >= self.thresholds.notable else "pass"

    def flag(self, ms: float) -> Status:
        """Warn where a time is a notable share of the step, without ever being what fails."""
        return "warn" if self.share(ms) >= self.thresholds.notable else "pass"

    @property
    def has_kernels(self) -> bool:
        """Whether any rank ran kernels on a GPU."""
        return any(r.summary.kernel_ns is not None for r in self.ranks)

    @property
    def device_name(self) -> str:
        """Of the first device, in a sentence."""
        return self.ranks[0].device.name or "this GPU"

    def devices(self) -> list[Gpu] | None:
        """The GPUs of the ranks as the table knows them; None where it does not know one."""
        devices = dict.fromkeys(rank.device for rank in self.ranks)
        known = [gpu for d in devices if (gpu := gpus.find_gpu(*d.facts)) is not None]
        return known if len(known) == len(devices) else None

    def host_ms(self) -> float:
        """Idle time because of late launches and latency, without the profiler's part."""
        return min(self.idle_ms(*HOST_IDLE) - self.fed_ms(*HOST_IDLE), self.overhead_ms())

    def held_ms(self) -> float:
        """Latency far longer than launches take: something held up a device that had its work."""
        return self.of_steps((r.summary.host.held_idle_ns, r.summary.steps) for r in self.ranks)

    def fed_ms(self, *causes: str) -> float:
        """Idle time of these causes that is no overhead: held up, or waiting for another device."""
        held = self.held_ms() if "idle_latency" in causes else 0.0
        hosts = [(r.summary.host, r.summary.steps) for r in self.ranks]
        return held + self.of_steps((host.awaiting_device_ns(*causes), n) for host, n in hosts)

    def spared_ms(self, ms: float) -> float:
        """The most that a step gets shorter where the host is spared what no profiler makes longer.

        It did make longer what is left of the host's time: without it, that takes as little as
        `host_kept` of what it took, but no less than the device's work.

        Args:
            ms: what the host is spared in the capture, per step.
        """
        if ms <= 0 or self.quality.observer_effect is None:
            return ms
        idle = self.exclusive_ms(*IDLE_CAUSES)
        rest = max(FIXED.host_kept * (self.step_ms() - ms), self.step_ms() - idle)
        most = self.host_ms() + self.unseen_ms("overhead")
        return min(max(self.corrected_step_ms() - rest, ms), max(most, ms))

    def skew_left_ms(self, ms: float) -> float:
        """What there is without the profiler, too, of some waiting for other ranks.

        As the verdict has it of the waiting beside no computation; with what is not in the capture.
        """
        if self.verdict.skew is UNSET or self.quality.observer_effect is None:
            return ms
        shown = self.of_steps(
            (r.summary.communication.skew_exposed_ns or 0, r.summary.steps)
            for r in self.ranks
            if r.summary.communication is not None
        )
        left = self.verdict.skew * self.corrected_step_ms()
        if self.run is not None and self.run.unseen_skew_ms is not UNSET:
            return left
        return ms * min(left / shown, 1.0) if shown else ms

    def overhead_ms(self) -> float:
        """Idle time of the bound `overhead`, without the profiler's part."""
        return self.verdict.shares.get("overhead", 0.0) * self.corrected_step_ms()

    def communication_ms(self) -> float:
        """Time of the bound `communication`, as the verdict has it."""
        return self.verdict.shares.get("communication", 0.0) * self.corrected_step_ms()

    @property
    def under_profiler(self) -> str:
        """That times of the host are those under a profiler, which makes steps much longer."""
        effect = self.quality.observer_effect
        slowed = effect is not None and effect.ratio >= FIXED.distortion
        return ", under the profiler" if slowed else ""

    def slowed_ms(self) -> float:
        """What a step lasts longer beside the profiler, which slows the host."""
        effect = self.quality.observer_effect
        return 0.0 if effect is None else max(effect.profiled_step_ms - self.corrected_step_ms(), 0)

    def played_ms(self, totals: Callable[[Tasks], Sequence[float]]) -> list[float]:
        """What the played iterations spend, ms per step, as means of the ranks; empty without any.

        Args:
            totals: of the tasks of a rank, ns; of one rank after the other, see `replays`.
        """
        each = [
            [ns / played.iterations / 1e6 for ns in totals(played.tasks)]
            for played in map(schedule_of, self.replays())
        ]
        return [fmean(column) for column in zip(*each, strict=True)]

    def launching_ms(self, phase: str) -> float:
        """Idle time because of the host that fewer launches of a phase can take away.

        The host cannot be earlier by more than it spends between them; of the optimizer, between
        those of its update, where names tell it.
        """
        each = [(r.summary.host.launching_ns(phase), r.summary.steps) for r in self.ranks]
        return min(self.host_ms(), fmean(ns / steps for ns, steps in each) / 1e6)

    def worst(self, *classes: str) -> str:
        """The rank with the largest share, as a phrase; empty for a single rank."""
        if len(self.ranks) < 2:
            return ""

        def share(rank: Rank) -> float:
            ns = sum(rank.summary.partition_ns[c] or 0 for c in classes)
            return ns / max(rank.summary.window_ns, 1)

        worst = max(self.ranks, key=share)
        return f"largest on rank {worst.rank}: {percent(share(worst))}"

    def _mean(self, ns: Sequence[float]) -> float:
        return self.of_steps(zip(ns, (r.summary.steps for r in self.ranks), strict=True))

    def of_steps(self, spent: Iterable[tuple[float, int]]) -> float:
        """Mean of the ranks, ms per step, of ns and the steps of those ranks that have any."""
        return sum(ns / steps for ns, steps in spent) / len(self.ranks) / 1e6
