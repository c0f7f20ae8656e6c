"""The chain from traces to a report: each input to its part, all parts to ranks and a verdict.

Parts are made one by one, so only one trace at a time need be accounted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from os import PathLike

from msgspec import UNSET
from msgspec.structs import replace

from traceprobe.errors import DamagedInput, InternalError, UsageError
from traceprobe.findings import Evidence, examine
from traceprobe.findings.profiler_distortion import REMEASURE
from traceprobe.findings.recorded_clock import recorded_clock
from traceprobe.model.events import Trace
from traceprobe.model.sidecar import MOST_FLOPS, Sidecar
from traceprobe.options import Options
from traceprobe.pipeline import calibration
from traceprobe.pipeline.build_floors import floors
from traceprobe.pipeline.build_operators import build_operators
from traceprobe.pipeline.build_overview import FEWEST, survey
from traceprobe.pipeline.build_rank import completed_rank
from traceprobe.pipeline.build_run import run_record
from traceprobe.pipeline.invariants import verify
from traceprobe.pipeline.join_pictures import RankPicture, joined
from traceprobe.pipeline.one_run import missing_ranks, of_one_run, unmatched
from traceprobe.pipeline.played import with_predictions
from traceprobe.pipeline.rank_numbers import overruled_ranks, rank_numbers
from traceprobe.pipeline.trace_part import Lost, TracePart, part_of
from traceprobe.records.ablation import Ablation
from traceprobe.records.cleaning import cleaned
from traceprobe.records.memory import Memory, read
from traceprobe.records.rank import DeviceInfo, Rank, mean_step_ms
from traceprobe.records.recording import Recording
from traceprobe.records.report import LostInput, Message, ObserverEffect, Quality, Report, Verdict
from traceprobe.records.roofline import Roofline
from traceprobe.timeline import collectives
from traceprobe.timeline.capture_alignment import aligned
from traceprobe.timeline.collective_matching import match_transfers
from traceprobe.timeline.collective_waits import CollectiveWaits, collective_waits
from traceprobe.timeline.operator_time import OperatorTime
from traceprobe.timeline.stage_waits import IS_MESSAGE, stage_waits
from traceprobe.verdict import agreement, judge
from traceprobe.verdict.confidence import RANK_DOUBTS
from traceprobe.verdict.correction import HEAVY
from traceprobe.verdict.links import links
from traceprobe.verdict.outliers import with_outlier, with_recurring
from traceprobe.verdict.roofline import FILLED, roofline, with_limit
from traceprobe.version import __version__

MAX_NAMED = 5
"""Lost inputs that the warning names; `quality.lost` has all."""


def analyze(traces: Trace | Sequence[Trace], options: Options | None = None) -> Report:
    """Analyse one trace, or the rank files of one run.

    Returns:
        The report, as described in `docs/report-json.md`: times in ns, shares as fractions.

    Raises:
        UsageError: an option is invalid, or the inputs are of several runs.
    """
    inputs = [traces] if isinstance(traces, Trace | str | PathLike) else list(traces)
    if not all(isinstance(trace, Trace) for trace in inputs):
        raise UsageError(
            "analyze() takes what load() returns: traceprobe.analyze(traceprobe.load(path))"
        )
    chosen = options or Options()
    if not inputs:
        raise UsageError("no input")
    return merge([part_of(trace, chosen) for trace in inputs], chosen)


def merge(parts: Sequence[TracePart | Lost], options: Options) -> Report:
    """The report of a run from the parts of its inputs, in the order of the inputs.

    Args:
        options: those that the parts were made with.

    Raises:
        UsageError: an option is invalid, or the inputs are of several runs.
        DamagedInput: no input could be read.
        InternalError: none could, for reasons that are traceprobe's own, or the report contradicts
            itself.
    """
    lost = [part for part in parts if isinstance(part, Lost)]
    kept = [part for part in parts if isinstance(part, TracePart)]
    if not kept:
        if all(part.internal for part in lost):
            raise InternalError(lost[0].reason)
        more = f" (and {len(lost) - 1} more inputs that cannot be read)" if len(lost) > 1 else ""
        raise DamagedInput(f"{lost[0].reason}{more}")
    inputs = of_one_run(kept)
    kept = inputs.parts
    records, regular, matched, doubts = _records(kept)
    called = [found.operators for part in kept for found in part.devices]
    if options.rank is not None:
        known = ", ".join(str(record.rank) for record in records)
        called = [c for c, r in zip(called, records, strict=True) if r.rank == options.rank]
        records = [r for r in records if r.rank == options.rank]
        regular = [r for r in regular if r.rank == options.rank]
        if not records:
            raise UsageError(f"--rank {options.rank}: no such rank; the inputs hold {known}")
    world = max((part.metadata.get("world_size", 0) for part in kept), default=0) or None
    if options.rank is None:
        doubts |= missing_ranks([record.rank for record in records], world)
    doubts |= inputs.warnings
    together = run_record(
        records,
        matched if len(records) > 1 else None,
        world,
        doubtful=any(code in doubts for code in RANK_DOUBTS),
    )
    if together is not None and matched is not None:
        found = links(records, together.world_size)
        together = replace(together, links=UNSET if found is None else found)
    profiled = frozenset().union(*(part.profiled for part in kept))
    noted = calibration.unprofiled_ms(kept, options)
    unprofiled = None if calibration.unbelievable(noted, records, options) else noted
    if unprofiled != noted:
        doubts |= {
            "implausible-calibration": "The capture recorded a step time without a profiler that "
            "is no time of these steps; it was not used."
        }
    recording, doubt = calibration.recorded(kept)
    if options.unprofiled_step_ms is not None:
        doubt = None
    if doubt is not None:
        doubts |= {
            "unsteady-recording": f"The step without the profiler is in doubt: {doubt}. Record "
            "with more steps (`--warmup`, `--most-warmup`, `--calibrate`), alone on the machine."
        }
    clocks = [recorded_clock(b) for b in calibration.blocks(kept, records).values()]
    if options.unprofiled_step_ms is None and any(clock.changed for clock in clocks):
        doubt = (
            "the GPU's clock was not the same in the steps with and without the profiler, so one "
            "says less about the other"
        )
        doubts |= {"calibration-clock": f"{doubt[0].upper()}{doubt[1:]}."}
    quality = _quality(kept, lost, records, unprofiled, doubts, recording)

    wait_ns = calibration.recorded_wait_ns(kept) if unprofiled == noted else None

    def judged(ranks: Sequence[Rank], quality: Quality) -> Verdict:
        effect = quality.observer_effect
        step_ns = None if effect is None else effect.unprofiled_step_ms * 1e6
        load_ms = calibration.load_ms(kept)
        marks, limits = profiled, options.thresholds
        return judge(ranks, together, quality, marks, step_ns, limits, wait_ns, doubt, load_ms)

    if calibration.wait_recurs(kept, records, regular):
        regular = records = [replace(record, long=UNSET) for record in records]
    every = records
    verdict = usual = judged(records, quality)
    long, regular_quality = [r.long for r in records if r.long is not UNSET], quality
    if long:
        step_ms = calibration.regular_ms(kept, unprofiled, records, regular)
        regular_quality = _quality(kept, lost, regular, step_ms, doubts, recording)
        usual = judged(regular, regular_quality)
        if usual.bound != verdict.bound and any(each.once for each in long):
            verdict = usual = with_outlier(usual, verdict, long)
            quality, records = regular_quality, regular
        elif usual.bound != verdict.bound:
            among = max(record.summary.iterations_used for record in records)
            verdict = with_recurring(verdict, usual, long, among)
    quality = _with_warnings(quality, verdict, profiled, options.ablation)
    workload = _workload(kept)
    held = _memory(kept)
    hardware = _roofline(kept, records, called, quality, workload, options)
    loader = calibration.slowest_loader(kept)
    verdict = with_limit(verdict, hardware)
    evidence = Evidence(
        regular,
        together,
        regular_quality,
        usual,
        options.thresholds,
        profiled,
        workload,
        _capture(kept),
        held,
        long=long,
        whole=every,
        loader=loader,
        blocks=calibration.blocks(kept, regular),
        timed_wait_ms=None if wait_ns is None else wait_ns / 1e6,
    )
    answers = examine(evidence)
    whole = records
    if together is not None and len(records) >= FEWEST:
        overview, records = survey(records, together.straggler_rank)
        together = replace(together, overview=overview)
    report = Report(
        schema_version=Report.SCHEMA_VERSION,
        traceprobe_version=__version__,
        inputs=[part.input for part in kept],
        quality=quality,
        ranks=records,
        run=together,
        workload=workload,
        verdict=verdict,
        findings=answers.findings,
        ablation=options.ablation,
        causal=options.causal or UNSET,
        memory=held or UNSET,
        loader=loader or UNSET,
        roofline=UNSET if hardware is None else hardware,
    )
    usually = report
    if long:
        ranks = _of(regular, records)
        usually = replace(report, ranks=ranks, quality=regular_quality, verdict=usual)
    report = with_predictions(
        report,
        usually,
        answers.changes,
        floors(report, whole, called),
    )
    return verify(report, whole, regular, regular_quality)


def _of(ranks: Sequence[Rank], shown: Sequence[Rank]) -> list[Rank]:
    """Those of the ranks that keep their iterations in the report, which are what is played."""
    detailed = {rank.rank for rank in shown if rank.iterations}
    return [rank for rank in ranks if rank.rank in detailed]


def _records(
    parts: Sequence[TracePart],
) -> tuple[list[Rank], list[Rank], CollectiveWaits | None, dict[str, str]]:
    """The devices of all inputs, closed, and what their collectives say together.

    Returns:
        (all, regular, collectives, warnings): the devices with all used iterations, and without
        long ones.
    """
    devices = [(source, found) for source, part in enumerate(parts) for found in part.devices]
    footprints = aligned([found.footprint for _, found in devices])
    processes = rank_numbers(parts)
    numbers = [processes[source, found.record.pid] for source, found in devices]
    if len(processes) == 1 and len(devices) > 1 and not parts[0].rank_of:
        numbers = list(range(len(devices)))  # each GPU of the one program is a rank to NCCL
    shared = match_transfers(footprints)
    stages = stage_waits(footprints, shared)
    matched = collective_waits(footprints, stages)
    waits = matched.exposed_wait if matched else [None] * len(devices)
    between = stages.exposed if stages else [None] * len(devices)
    pictures = joined(
        [
            RankPicture(
                picture=found.picture,
                source=source,
                zero=int(parts[source].input.origin_ns),
                labels=[iteration.label for iteration in found.record.iterations],
                collectives=footprint,
                matched=mine,
            )
            for (source, found), footprint, mine in zip(devices, footprints, shared, strict=True)
        ]
    )
    every: list[Rank] = []
    regular: list[Rank] = []
    for (source, found), number, footprint, wait, stage, mine, shown in zip(
        devices, numbers, footprints, waits, between, shared, pictures, strict=True
    ):
        for records, part in ((every, found), (regular, found.regular)):
            if part is None:
                records.append(every[-1])
                continue
            counted = None if part is found else part.footprint.collectives
            groups = collectives.with_matches(part.groups, footprint.collectives, mine, counted)
            record = replace(part.record, picture=shown)
            records.append(
                completed_rank(record, number, source, wait, stage, part.footprint, groups)
            )
    warnings = unmatched(
        collectives=sum(len(f.collectives.filter(~IS_MESSAGE)) > 0 for f in footprints) > 1,
        found=any(mine is not None and len(mine.row) for mine in shared),
    )
    return every, regular, matched, warnings


def _roofline(
    parts: Sequence[TracePart],
    records: Sequence[Rank],
    called: Sequence[OperatorTime | None],
    quality: Quality,
    workload: Mapping[str, object] | None,
    options: Options,
) -> Roofline | None:
    if options.flops_per_step is not None and not 1 <= options.flops_per_step <= MOST_FLOPS:
        raise UsageError(
            f"--flops-per-step {str(options.flops_per_step)[:60]}: must be a positive number of "
            "operations, from 1 to 1e30"
        )
    if options.peaks is not None:
        names = {_device_name(rank.device) for rank in records}
        if names != {options.peaks.device}:
            raise UsageError(
                f"--peaks: they were measured on {options.peaks.device}, the trace has "
                f"{', '.join(sorted(names))}"
            )
    known = [part.metadata for part in parts if "occupancy" in part.metadata]
    filled = {
        name: sum(metadata[name] for metadata in known) / len(known) for name in FILLED if known
    }
    return roofline(
        records,
        quality,
        workload,
        filled,
        options.flops_per_step,
        options.peaks,
        build_operators(called),
    )


def _device_name(device: DeviceInfo) -> str:
    """As `traceprobe roofline --measure` names it."""
    return "CPU" if device.kind == "cpu" else cleaned(device.name) or "a GPU without a name"


def _workload(parts: Sequence[TracePart]) -> dict[str, object] | None:
    """What the capture said of the workload, from the first input that says anything."""
    recorded = (sidecar.workload for sidecar in calibration.sidecars(parts))
    return next((workload for workload in recorded if workload is not UNSET), None)


def _capture(parts: Sequence[TracePart]) -> dict[str, object]:
    """What the capture said of the machine and of PyTorch, from the first input that says it."""
    first = next(
        (sidecar for sidecar in calibration.sidecars(parts) if sidecar != Sidecar()), Sidecar()
    )
    facts = {"hardware": first.hardware, "flags": first.flags}
    return {name: fact for name, fact in facts.items() if fact is not UNSET}


def _memory(parts: Sequence[TracePart]) -> Memory | None:
    """The memory of the input that had the highest peak, as the capture recorded it."""
    found = [
        replace(recorded, input=number)
        for number, part in enumerate(parts)
        if part.sidecar is not None and (recorded := read(part.sidecar.memory)) is not None
    ]
    return max(found, key=lambda m: m.measured.allocated if m.measured else 0, default=None)


def _quality(
    parts: Sequence[TracePart],
    lost: Sequence[Lost],
    records: Sequence[Rank],
    unprofiled_ms: float | None,
    doubts: Mapping[str, str],
    recording: Recording | None,
) -> Quality:
    profiled = mean_step_ms(records)
    effect = None
    if unprofiled_ms is not None and profiled is not None:
        effect = ObserverEffect(
            profiled_step_ms=round(profiled, 6),
            unprofiled_step_ms=unprofiled_ms,
            ratio=round(profiled / unprofiled_ms, 4),
        )
    damage: Counter[str] = Counter()
    for part in parts:
        damage.update(part.quality.damage)
    contradicted = len(overruled_ranks(parts))
    if contradicted:
        damage["ranks-contradicted"] = contradicted
    warnings = {code: text for p in parts for code, text in p.quality.warnings.items()}
    warnings |= doubts
    if contradicted:
        warnings["ranks-contradicted"] = (
            f"{contradicted} files claim a rank that another one claims too; their ranks were "
            "taken from the names of the files."
        )
    return Quality(
        gpu_ops=sum(p.gpu_ops for p in parts),
        gpu_ops_linked=sum(p.gpu_ops_linked for p in parts),
        launches_without_gpu_op=sum(p.launches_without_gpu_op for p in parts),
        events_repaired=sum(p.quality.events_repaired for p in parts),
        events_lost=sum(p.quality.events_lost for p in parts),
        observer_effect=effect,
        warnings=[Message(code=c, message=m) for c, m in sorted(warnings.items())],
        damage=dict(sorted(damage.items())) or UNSET,
        recording=UNSET if recording is None else recording,
        lost=[LostInput(name=part.name, reason=part.reason) for part in lost] or UNSET,
        nccl_records=sorted((r for p in parts for r in p.nccl_records), key=lambda r: r.rank)
        or UNSET,
    )


def _with_warnings(
    quality: Quality,
    verdict: Verdict,
    profiled: frozenset[str],
    ablation: Ablation | None,
) -> Quality:
    """Add what only the verdict shows to matter."""
    warnings = {}
    if any(term.name == "observer-effect" for term in verdict.confidence_terms):
        marks = ", ".join(sorted(profiled & HEAVY))
        warnings["observer-effect"] = (
            f"Overhead decides this verdict, and the trace records {marks}: a profiler that does "
            f"so slows the host, often more than the run itself does. {REMEASURE}"
        )
    if quality.events_lost:
        warnings["events-lost"] = (
            f"{quality.events_lost} damaged events could not be read and are missing."
        )
    if quality.lost is not UNSET:
        named = "; ".join(entry.reason for entry in quality.lost[:MAX_NAMED])
        more = len(quality.lost) - MAX_NAMED
        warnings["rank-lost"] = (
            f"{len(quality.lost)} inputs could not be read and are missing from every number: "
            f"{named}{f'; and {more} more' if more > 0 else ''}"
        )
    if ablation is not None:
        compared = agreement.compare(verdict, ablation)
        if compared.state == "disagree":
            warnings["ablation-disagrees"] = (
                f"By ablation, which needs no profiler: {compared.words}."
            )
    added = [Message(code=code, message=text) for code, text in warnings.items()]
    merged = sorted([*quality.warnings, *added], key=lambda warning: warning.code)
    return replace(quality, warnings=merged)
