"""The chain from traces to a report: timeline, ranks, verdict, findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from traceprobe import __version__
from traceprobe.api import Options
from traceprobe.assemble import origin, rank_record, run_record
from traceprobe.model import Call, Device, Trace, UsageError
from traceprobe.report import agreement, result
from traceprobe.report.ablation import Ablation
from traceprobe.timeline import collectives, device, phases, process, ranks
from traceprobe.timeline.device import Account
from traceprobe.verdict import judge
from traceprobe.verdict.correction import HEAVY
from traceprobe.verdict.findings import Evidence, run_all
from traceprobe.verdict.findings.profiler_distortion import REMEASURE


def run(traces: Sequence[Trace], options: Options) -> result.Report:
    """Analyse the inputs of one run. See `traceprobe.analyze`."""
    if not traces:
        raise UsageError("no input")
    accounts = list(_accounts(traces, options))
    matched = ranks.match([account for account, *_ in accounts])
    shared = collectives.transfers([account for account, *_ in accounts])
    records = [
        rank_record(account, traces[source], device_, rank, wait, mine, source)
        for (account, source, device_, rank), wait, mine in zip(
            accounts,
            matched.exposed_wait if matched else [None] * len(accounts),
            shared,
            strict=True,
        )
    ]
    if options.rank is not None:
        records = [r for r in records if r.rank == options.rank]
        if not records:
            known = ", ".join(str(rank) for *_, rank in accounts)
            raise UsageError(f"--rank {options.rank}: no such rank; the inputs hold {known}")
    world = max((t.metadata.get("world_size", 0) for t in traces), default=0) or None
    together = run_record(records, matched if len(records) > 1 else None, world)
    profiled = frozenset().union(*(t.profiled for t in traces))
    unprofiled = _unprofiled_ms(traces, options)
    quality = _quality(traces, records, unprofiled)
    verdict = judge(
        records,
        together,
        quality,
        profiled,
        None if unprofiled is None else unprofiled * 1e6,
        options.thresholds,
        _recorded_wait_ns(traces),
    )
    quality = _with_warnings(quality, verdict, profiled, options.ablation)
    workload = _workload(traces)
    evidence = Evidence(records, together, quality, verdict, options.thresholds, profiled, workload)
    return result.Report(
        schema_version=result.SCHEMA_VERSION,
        traceprobe_version=__version__,
        inputs=[_input(trace) for trace in traces],
        quality=quality,
        ranks=records,
        run=together,
        workload=workload,
        verdict=verdict,
        findings=run_all(evidence),
        ablation=options.ablation,
    )


def _accounts(
    traces: Sequence[Trace], options: Options
) -> Iterator[tuple[Account, int, Device, int]]:
    names = phases.compile_names(options.phases)
    numbers = rank_numbers(traces)
    for source, trace in enumerate(traces):
        prepared: dict[int, process.Process] = {}
        for found in trace.devices:
            if found.pid not in prepared:
                prepared[found.pid] = process.prepare(trace, found.pid, options.step, names)
            account = device.account(prepared[found.pid], found.index)
            if options.steps is not None:
                account = _limit(account, options.steps)
            yield account, source, found, numbers[source, found.pid]


def rank_numbers(traces: Sequence[Trace]) -> dict[tuple[int, int], int]:
    """Rank of each (input, process): from the file, else by position.

    Raises:
        UsageError: two inputs claim the same rank.
    """
    processes = [
        (s, pid) for s, t in enumerate(traces) for pid in sorted({d.pid for d in t.devices})
    ]
    claimed = {(s, pid): traces[s].rank_of[pid] for s, pid in processes if pid in traces[s].rank_of}
    owner: dict[int, tuple[int, int]] = {}
    for key, rank in claimed.items():
        if rank in owner:
            first, second = traces[owner[rank][0]].origin.name, traces[key[0]].origin.name
            raise UsageError(
                f"{first} and {second} both say that they are rank {rank}; give the files of "
                "one run"
            )
        owner[rank] = key
    free = iter(r for r in range(len(processes) + len(owner) + 1) if r not in owner)
    return {key: claimed[key] if key in claimed else next(free) for key in processes}


def _limit(account: Account, steps: tuple[int, int]) -> Account:
    """Leave iterations outside of the user's range out of the summary."""
    first, last = steps
    reasons = [
        reason if first <= k < last else reason or "outside of --steps"
        for k, reason in enumerate(account.reasons)
    ]
    used = account.used & (account.index >= first) & (account.index < last)
    if account.used.any() and not used.any():
        raise UsageError(
            f"--steps {first}:{last} leaves no usable iteration; usable are "
            f"{', '.join(str(k) for k in account.index[account.used].tolist())}"
        )
    return replace(account, reasons=reasons, used=used)


def _input(trace: Trace) -> result.Input:
    o = trace.origin
    return result.Input(
        name=o.name,
        sha256=o.sha256,
        format="nsys" if o.format == "nsys" else "kineto",
        dialect=o.dialect,
        producer=o.producer,
        bytes=o.bytes,
        origin_ns=str(origin(trace)),
        base_ns=str(o.base_ns),
    )


def _unprofiled_ms(traces: Sequence[Trace], options: Options) -> float | None:
    """The user's number, else what the capture recorded."""
    if options.unprofiled_step_ms is not None:
        if not 0 < options.unprofiled_step_ms < float("inf"):
            raise UsageError("--unprofiled-step-ms must be a positive number of milliseconds")
        return options.unprofiled_step_ms
    recorded = [t.metadata.get("traceprobe", {}).get("unprofiled_step_ms") for t in traces]
    known = [float(ms) for ms in recorded if isinstance(ms, (int, float)) and ms > 0]
    return max(known) if known else None


def _recorded_wait_ns(traces: Sequence[Trace]) -> float | None:
    """Mean over the inputs of the loader wait that the capture timed without a profiler."""
    recorded = [t.metadata.get("traceprobe", {}).get("unprofiled_data_wait_ms") for t in traces]
    known = [ms for ms in recorded if isinstance(ms, (int, float)) and ms >= 0]
    return 1e6 * sum(known) / len(known) if known else None


def _workload(traces: Sequence[Trace]) -> dict[str, object] | None:
    """What the capture said of the workload, from the first input that says anything."""
    for trace in traces:
        workload = trace.metadata.get("traceprobe", {}).get("workload")
        if isinstance(workload, dict):
            return workload
    return None


def _quality(
    traces: Sequence[Trace], records: Sequence[result.Rank], unprofiled_ms: float | None
) -> result.Quality:
    means = [r.summary.step_ms.mean for r in records if r.summary.step_ms is not None]
    effect = None
    if unprofiled_ms is not None and means:
        profiled = sum(means) / len(means)
        effect = result.ObserverEffect(
            profiled_step_ms=round(profiled, 6),
            unprofiled_step_ms=unprofiled_ms,
            ratio=round(profiled / unprofiled_ms, 4),
        )
    warnings = {code: text for t in traces for code, text in t.quality.warnings.items()}
    launches = [t.host_calls.filter(~t.host_calls["recorded"])["call"].to_numpy() for t in traces]
    asks = [int(Call.LAUNCH), int(Call.GRAPH_LAUNCH), int(Call.COPY)]
    return result.Quality(
        gpu_ops=sum(len(t.gpu_ops) for t in traces),
        gpu_ops_linked=sum(int(t.gpu_ops["linked"].sum()) for t in traces),
        launches_without_gpu_op=sum(int(np.isin(c, asks).sum()) for c in launches),
        events_repaired=sum(t.quality.events_repaired for t in traces),
        events_lost=sum(t.quality.events_lost for t in traces),
        observer_effect=effect,
        warnings=[result.Message(code=c, message=m) for c, m in sorted(warnings.items())],
    )


def _with_warnings(
    quality: result.Quality,
    verdict: result.Verdict,
    profiled: frozenset[str],
    ablation: Ablation | None,
) -> result.Quality:
    """Add what only the verdict shows to matter."""
    added = []
    if any(term.name == "observer-effect" for term in verdict.confidence_terms):
        marks = ", ".join(sorted(profiled & HEAVY))
        added.append(
            result.Message(
                code="observer-effect",
                message=(
                    f"Overhead decides this verdict, and the trace records {marks}: a profiler "
                    "that does "
                    f"so slows the host, often more than the run itself does. {REMEASURE}"
                ),
            )
        )
    if quality.events_lost:
        added.append(
            result.Message(
                code="events-lost",
                message=f"{quality.events_lost} damaged events could not be read and are missing.",
            )
        )
    if ablation is not None:
        compared = agreement.compare(verdict, ablation)
        if compared.state == "disagree":
            added.append(
                result.Message(
                    code="ablation-disagrees",
                    message=f"By ablation, which needs no profiler: {compared.words}.",
                )
            )
    merged = sorted([*quality.warnings, *added], key=lambda m: m.code)
    return result.Quality(
        **{f: getattr(quality, f) for f in quality.__struct_fields__ if f != "warnings"},
        warnings=merged,
    )
