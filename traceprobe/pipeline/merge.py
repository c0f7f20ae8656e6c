"""The chain from traces to a report: each input to its part, all parts to ranks and a verdict.

Parts are made one by one, so only one trace at a time need be accounted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike

from msgspec import UNSET
from msgspec.structs import replace

from traceprobe.errors import DamagedInput, InternalError, UsageError
from traceprobe.findings import Evidence, examine
from traceprobe.model.events import Trace
from traceprobe.model.sidecar import CompilerNotes, Sidecar
from traceprobe.options import Options
from traceprobe.pipeline import calibration
from traceprobe.pipeline.build_floors import floors
from traceprobe.pipeline.build_operators import build_operators
from traceprobe.pipeline.build_overview import FEWEST, survey
from traceprobe.pipeline.build_quality import build_quality, with_warnings
from traceprobe.pipeline.build_run import run_record
from traceprobe.pipeline.invariants import verify
from traceprobe.pipeline.judgement import judgement
from traceprobe.pipeline.one_run import missing_ranks, of_one_run
from traceprobe.pipeline.played import with_predictions
from traceprobe.pipeline.run_ranks import RunRanks, run_ranks
from traceprobe.pipeline.trace_part import Lost, TracePart, part_of
from traceprobe.records.cleaning import cleaned
from traceprobe.records.memory import Memory, read
from traceprobe.records.rank import DeviceInfo, Rank
from traceprobe.records.report import Quality, Report
from traceprobe.records.roofline import Roofline
from traceprobe.records.run import Run
from traceprobe.timeline.operator_time import OperatorTime
from traceprobe.verdict.confidence import RANK_DOUBTS
from traceprobe.verdict.late_loader import with_late_loader
from traceprobe.verdict.links import links
from traceprobe.verdict.no_training import runs_on_cpu
from traceprobe.verdict.other_conditions import other_conditions
from traceprobe.verdict.roofline import FILLED, roofline, with_limit
from traceprobe.version import __version__


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
    inputs = of_one_run(_readable(parts, lost))
    kept = inputs.parts
    ranks = run_ranks(kept)
    doubts = dict(ranks.warnings)
    world = max((part.metadata.get("world_size", 0) for part in kept), default=0) or None
    if options.rank is None:
        doubts |= missing_ranks([rank.rank for rank in ranks.every], world)
    else:
        ranks = ranks.only(options.rank)
    doubts |= inputs.warnings
    profiled = frozenset().union(*(part.profiled for part in kept))
    timed = calibration.timed(kept, ranks.every, options)
    doubts |= timed.warnings
    ranks = ranks.with_timed_waits(timed.waits_ns, timed.other_waits_ns)
    if timed.doubt is None:
        ranks = ranks.with_mean_step(timed.step_ms, options.thresholds.notable)
    together = _together(ranks, world, doubtful=any(code in doubts for code in RANK_DOUBTS))

    def qualities(records: Sequence[Rank], unprofiled_ms: float | None) -> Quality:
        elsewhere = other_conditions(records, unprofiled_ms, timed.load_ms, options.thresholds)
        return build_quality(kept, lost, records, unprofiled_ms, elsewhere, doubts, timed.recording)

    found = judgement(kept, ranks, together, timed, qualities, profiled, options)
    quality = with_warnings(
        found.quality,
        found.verdict,
        profiled,
        options.ablation,
        on_cpu=runs_on_cpu(found.ranks),
    )
    workload, held = _workload(kept), _memory(kept)
    hardware = _roofline(kept, found.ranks, ranks.operators, quality, workload, options)
    effect = found.quality.observer_effect
    evidence = Evidence(
        ranks.regular,
        together,
        found.usual_quality,
        found.usual,
        options.thresholds,
        profiled,
        workload,
        _capture(kept),
        held,
        long=found.long,
        whole=ranks.every,
        whole_step_ms=None if effect is None else effect.unprofiled_step_ms,
        loader=timed.loader,
        compiler=_compiler(kept),
        blocks=calibration.blocks(kept, ranks.regular),
        replays=ranks.regular_replays,
        called=ranks.called_by_latest_host,
    )
    answers = examine(evidence)
    details = ranks.details_of(found.ranks)
    shown, hidden = found.ranks, set[int]()
    if together is not None and len(shown) >= FEWEST:
        overview, shown = survey(shown, together.straggler_rank)
        together = replace(together, overview=overview)
        hidden = {rank.rank for rank in shown} - set(overview.detailed_ranks)
    shown = [
        rank if rank.rank in hidden else packed.put_back(rank)
        for rank, packed in zip(shown, details, strict=True)
    ]
    report = Report(
        schema_version=Report.SCHEMA_VERSION,
        traceprobe_version=__version__,
        inputs=[part.input for part in kept],
        quality=quality,
        ranks=shown,
        run=together,
        workload=workload,
        verdict=with_limit(found.verdict, hardware),
        findings=answers.findings,
        ablation=options.ablation,
        causal=options.causal or UNSET,
        memory=held or UNSET,
        loader=timed.loader or UNSET,
        roofline=UNSET if hardware is None else hardware,
    )
    usually = report
    if found.long:
        played = _of(ranks, shown)
        usually = replace(report, ranks=played, quality=found.usual_quality, verdict=found.usual)
    least = floors(report, found.ranks, ranks.operators)
    report = with_predictions(report, usually, answers.changes, least)
    unseen = (
        packed.without_picture(rank)
        for rank, packed in zip(found.ranks, details, strict=True)
        if rank.rank in hidden
    )
    return verify(report, unseen, ranks.regular, found.usual_quality, found.usual.shares)


def _readable(parts: Sequence[TracePart | Lost], lost: Sequence[Lost]) -> list[TracePart]:
    """The inputs that could be read; errors are those of `merge`."""
    kept = [part for part in parts if isinstance(part, TracePart)]
    if kept:
        return kept
    if all(part.internal for part in lost):
        raise InternalError(lost[0].reason)
    more = f" (and {len(lost) - 1} more inputs that cannot be read)" if len(lost) > 1 else ""
    raise DamagedInput(f"{lost[0].reason}{more}")


def _together(ranks: RunRanks, world: int | None, *, doubtful: bool) -> Run | None:
    """What the ranks do together, with the speed of the links between them."""
    matched = ranks.collectives
    several = matched if len(ranks.every) > 1 else None
    together = run_record(ranks.every, several, world, doubtful=doubtful)
    together = with_late_loader(together, ranks.every)
    if together is None or matched is None:
        return together
    found = links(ranks.every, together.world_size)
    return replace(together, links=UNSET if found is None else found)


def _of(ranks: RunRanks, shown: Sequence[Rank]) -> list[Rank]:
    """The regular iterations of the ranks that keep theirs in the report, which are played."""
    detailed = {rank.rank for rank in shown if rank.iterations}
    return [
        packed.put_back(rank)
        for rank, packed in zip(ranks.regular, ranks.regular_details, strict=True)
        if rank.rank in detailed
    ]


def _roofline(
    parts: Sequence[TracePart],
    records: Sequence[Rank],
    called: Sequence[OperatorTime | None],
    quality: Quality,
    workload: Mapping[str, object] | None,
    options: Options,
) -> Roofline | None:
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


def _compiler(parts: Sequence[TracePart]) -> CompilerNotes | None:
    """What the capture said of torch.compile, from the input with most breaks of graphs."""
    told = [s.compiler for s in calibration.sidecars(parts) if s.compiler is not UNSET]
    return max(told, key=lambda notes: notes.breaks, default=None)


def _memory(parts: Sequence[TracePart]) -> Memory | None:
    """The memory of the input that had the highest peak, as the capture recorded it."""
    found = [
        replace(recorded, input=number)
        for number, part in enumerate(parts)
        if part.sidecar is not None and (recorded := read(part.sidecar.memory)) is not None
    ]
    return max(found, key=lambda m: m.measured.allocated if m.measured else 0, default=None)
