"""What a recording noted of its steps without a profiler, for whole iterations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from statistics import fmean, median

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from traceprobe.errors import UsageError
from traceprobe.findings.recorded_clock import recorded_clock
from traceprobe.findings.recorded_cores import recorded_cores
from traceprobe.formatting import percent, plain, significant
from traceprobe.model.accounting import LONG_ITERATION
from traceprobe.model.sidecar import Block, Sidecar
from traceprobe.model.step_names import OWN_MARKS
from traceprobe.model.taxonomy import BUSY
from traceprobe.options import Options
from traceprobe.pipeline.trace_part import TracePart
from traceprobe.records import loader as loaders
from traceprobe.records.loader import Loader
from traceprobe.records.rank import Rank, mean_step_ms
from traceprobe.records.recording import RecordedBlock, Recording
from traceprobe.verdict.calibration_doubt import calibration_doubt
from traceprobe.verdict.made_before import made_before
from traceprobe.verdict.thresholds import FIXED

_WHOLE = 0.125
"""Part of a whole number by which the steps that last as long as an iteration may miss it: of four
and more the nearest one is near enough."""


class Timed(msgspec.Struct, frozen=True):
    """What is known of the step without a profiler.

    Args:
        step_ms: None where it is not known, or not believed.
        waits_ns: of it, waiting for the loader, by rank, of those where that was timed.
        other_waits_ns: for loaders that do not feed the steps. loader: the slowest one.
        recording: how the steps were recorded. doubt: why the step is in doubt, as a clause.
        warnings: by code.
    """

    step_ms: float | None
    waits_ns: dict[int, float]
    other_waits_ns: dict[int, float]
    loader: Loader | None
    recording: Recording | None
    doubt: str | None
    warnings: dict[str, str]

    @property
    def load_ms(self) -> float | None:
        """Time in which the loader makes the batches of a step, if known."""
        return None if self.loader is None else self.loader.load_ms


def timed(parts: Sequence[TracePart], records: Sequence[Rank], options: Options) -> Timed:
    """What the user or the recordings say of the step without a profiler.

    Raises:
        UsageError: the number of the user is none of such a step.
    """
    own = options.unprofiled_step_ms is not None
    noted, warnings = unprofiled_ms(parts, options), {}
    believed = not unbelievable(noted, records, options)
    if not believed:
        warnings["implausible-calibration"] = (
            "The capture recorded an unprofiled step time that does not belong to these steps; it "
            "was not used."
        )
    recording, doubt = recorded(parts)
    doubt = None if own else doubt
    if doubt is not None:
        warnings["unsteady-recording"] = (
            f"The step without the profiler is in doubt: {doubt}. Record with more steps "
            "(`--warmup`, `--most-warmup`, `--calibrate`), alone on the machine."
        )
    timed = blocks(parts, records)
    busy = _busy_machine(timed)
    if busy is not None:
        warnings["busy-machine"] = busy
    clocks = [recorded_clock(each) for each in timed.values()]
    if not own and any(clock.changed for clock in clocks):
        doubt = (
            "the GPU's clock was not the same in the steps with and without the profiler, so one "
            "says less about the other"
        )
        warnings["calibration-clock"] = f"{doubt[0].upper()}{doubt[1:]}."
    waits_ns, others_ns = (
        recorded_waits_ns(parts, records, name) if believed else {}
        for name in ("unprofiled_data_wait_ms", "unprofiled_other_wait_ms")
    )
    known = noted if believed else None
    return Timed(known, waits_ns, others_ns, slowest_loader(parts), recording, doubt, warnings)


def _busy_machine(timed: Mapping[int, Sequence[Block]]) -> str | None:
    """That other programs had the cores while this one was recorded, of the worst rank."""
    each = [found for read in timed.values() if (found := recorded_cores(read)) is not None]
    worst = max(
        (found for found in each if found.busy), key=lambda found: found.loop_waited, default=None
    )
    if worst is None:
        return None
    return (
        "The machine was busy: the loop's thread could run and had no core "
        f"{percent(worst.loop_waited)} of the time, while other programs used "
        f"{worst.others or 0.0:.1f} of the {worst.cores} cores. Times, and what limits "
        "the step, are those of a busy machine: record again when it is free."
    )


def sidecars(parts: Sequence[TracePart]) -> list[Sidecar]:
    """What the recordings say about themselves, of the inputs that are recordings of ours."""
    return [part.sidecar for part in parts if part.sidecar is not None]


def unprofiled_ms(parts: Sequence[TracePart], options: Options) -> float | None:
    """The user's number, else what the capture recorded."""
    if options.unprofiled_step_ms is not None:
        return options.unprofiled_step_ms
    known = _per_iteration(parts, "unprofiled_step_ms")
    return max(known) if known else None


def unbelievable(unprofiled_ms: float | None, records: Sequence[Rank], options: Options) -> bool:
    """Whether no profiler can make so much of a difference: another unit, or another run.

    Raises:
        UsageError: the number is the user's.
    """
    profiled = mean_step_ms(records)
    if unprofiled_ms is None or profiled is None:
        return False
    ratio = max(profiled / unprofiled_ms, unprofiled_ms / profiled)
    if ratio > FIXED.implausible_ratio and options.unprofiled_step_ms is not None:
        several = (
            f"; it is as long as {ratio:.0f} of the steps found: if a step is more than one of "
            "them, name its range with --step"
            if unprofiled_ms > profiled
            else ""
        )
        raise UsageError(
            f"--unprofiled-step-ms {plain(unprofiled_ms)}: a step in the trace lasts "
            f"{significant(profiled)} ms, and no profiler makes so much of a difference; give "
            f"milliseconds of one step{several}"
        )
    return ratio > FIXED.implausible_ratio


def regular_ms(
    parts: Sequence[TracePart],
    unprofiled_ms: float | None,
    records: Sequence[Rank],
    regular: Sequence[Rank],
) -> float | None:
    """The unprofiled step without long iterations.

    It is the whole one where the loader needs longer for its batches than a regular iteration is:
    then all of them wait for it in the long run, some longer than others.

    From the steps of the calibration that are not long, where the recording lists them; else a
    profiler makes regular and long ones longer in the same proportion. It lists when the host was
    done with each: after a wait for data these are shorter than what the device still has to do,
    and then they do not tell.
    """
    with_long, without_long = mean_step_ms(records), mean_step_ms(regular)
    if unprofiled_ms is None or with_long is None or without_long is None:
        return unprofiled_ms
    waits_ns = recorded_waits_ns(parts, records)
    # Where the loop was timed and did not wait, its long iterations are none of the loader's.
    waits = max(waits_ns.values(), default=inf) / 1e6 >= FIXED.reported_idle * unprofiled_ms
    if waits and made_before(load_ms(parts), without_long, unprofiled_ms) is not None:
        return unprofiled_ms
    known, least = [], _device_ms(regular) / FIXED.clock_changed
    for sidecar in sidecars(parts):
        steps = sidecar.calibration_step_ms
        if steps is not UNSET and sidecar.unprofiled_step_ms == unprofiled_ms:
            most = LONG_ITERATION * median(steps)
            told = fmean(step for step in steps if step <= most)
            known += [told] if told >= least else []
    return round(max(known, default=unprofiled_ms * without_long / with_long), 6)


def _device_ms(records: Sequence[Rank]) -> float:
    """The most that a GPU works in an iteration: no loop is faster. 0 without any."""
    each = [record.summary for record in records if record.device.kind != "cpu"]
    used = [summary for summary in each if summary.iterations_used]
    worked = [sum(s.partition_ns[name] or 0 for name in BUSY) / s.iterations_used for s in used]
    return max(worked, default=0.0) / 1e6


def _per_iteration(parts: Sequence[TracePart], name: str) -> list[float]:
    """A time per step that recordings noted, for whole iterations, of which each may be steps."""
    found = []
    for part in parts:
        ms = None if part.sidecar is None else getattr(part.sidecar, name)
        if isinstance(ms, float):
            found.append(_steps(part) * ms)
    return found


def _steps(part: TracePart) -> float:
    """Steps of the recording that an iteration is; a part of one where micro-batches are marked."""
    records = [device.record for device in part.devices]
    markers = [record.step_marker for record in records if record.step_marker]
    marks = max((marker.per_iteration for marker in markers), default=1)
    if all(marker.pattern in OWN_MARKS for marker in markers):
        return marks
    return _steps_by_time(part.sidecar, mean_step_ms(records)) or marks


def _steps_by_time(sidecar: Sidecar | None, iteration_ms: float | None) -> float | None:
    """The same where something else marks the iterations; None where the times do not tell.

    The steps under the profiler were timed while the trace was made of them.
    """
    timed = UNSET if sidecar is None else sidecar.blocks
    steps = [] if timed is UNSET else [b.step_ms for b in timed if b.profiled and b.kept]
    if not steps or not steps[-1] or not iteration_ms:
        return None
    ratio = iteration_ms / steps[-1]
    longer = max(ratio, 1 / ratio)
    count = round(longer)
    if abs(longer - count) > _WHOLE * count:
        return None
    return float(count) if ratio > 1 else 1 / count


def recorded(parts: Sequence[TracePart]) -> tuple[Recording | None, str | None]:
    """How the steps were recorded, and why the calibration is in doubt: of the worst rank.

    Recordings of older versions say nothing of it; they and numbers of the user's are believed.
    """
    told = [found for s in sidecars(parts) if (found := _recording(s)) is not None]
    doubts = [(recording, calibration_doubt(recording)) for recording in told]
    return max(doubts, key=lambda each: each[1] is not None, default=(None, None))


def _recording(sidecar: Sidecar) -> Recording | None:
    if sidecar.warmup is UNSET or sidecar.blocks is UNSET:
        return None
    return Recording(
        warmup_steps=sidecar.warmup.steps,
        steady=sidecar.warmup.steady,
        period=sidecar.warmup.period,
        reason=sidecar.warmup.reason,
        blocks=[
            RecordedBlock(
                profiled=block.profiled,
                steps=block.steps,
                step_ms=block.step_ms,
                kept=block.kept,
                sm_mhz=None if block.clock is UNSET else block.clock.sm_mhz,
            )
            for block in sidecar.blocks
        ],
    )


def blocks(parts: Sequence[TracePart], records: Sequence[Rank]) -> dict[int, list[Block]]:
    """Blocks of steps that recordings noted, by rank; a process with several has one device."""
    found: dict[int, list[Block]] = {}
    seen = set()
    for record in records:
        sidecar = parts[record.input].sidecar
        if sidecar is not None and sidecar.blocks is not UNSET and record.input not in seen:
            seen.add(record.input)
            found[record.rank] = sidecar.blocks
    return found


def slowest_loader(parts: Sequence[TracePart]) -> Loader | None:
    """The loader that needs most time for the batches of an iteration; None where none is known."""
    found = [
        replace(loader, batches_per_step=_steps(part) * loader.batches_per_step)
        for part in parts
        if part.sidecar is not None and (loader := loaders.read(part.sidecar.loader)) is not None
    ]
    return max(found, key=lambda loader: loader.worker_ms, default=None)


def load_ms(parts: Sequence[TracePart]) -> float | None:
    """Time in which the workers of the slowest loader make the batches of an iteration.

    None where none is known, or batches are made within the iteration.
    """
    loader = slowest_loader(parts)
    return None if loader is None else loader.load_ms


def recorded_waits_ns(
    parts: Sequence[TracePart], records: Sequence[Rank], name: str = "unprofiled_data_wait_ms"
) -> dict[int, float]:
    """Waiting for a loader per iteration that recordings timed without a profiler, by rank."""
    found = {}
    for record in records:
        known = _per_iteration([parts[record.input]], name)
        if known:
            found[record.rank] = 1e6 * known[0]
    return found
