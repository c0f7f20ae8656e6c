"""Tables of plain text, filled from the report and laid out by the outputs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from traceprobe.formatting import (
    NOT_OBSERVED,
    clean,
    counted,
    duration,
    ms,
    number,
    percent,
    shorten,
    significant,
    size,
)
from traceprobe.model.taxonomy import BUSY, BUSY_LABELS
from traceprobe.records.launches import Launches
from traceprobe.records.rank import Rank
from traceprobe.records.report import Report
from traceprobe.records.run import Run
from traceprobe.records.summary import Summary
from traceprobe.render.document import Table

MAX_RANK_COLUMNS = 4
"""With more ranks than this a rank is a row, so that the table grows downwards."""
MAX_COLLECTIVES = 2
"""Kinds of collectives in the outputs that are short."""


def window(rank: Rank) -> str:
    """The time that a rank's 100 % stand for."""
    unit = rank.summary.per
    return f"{duration(rank.summary.window_ns / rank.summary.steps)} {unit}"


def metrics_tables(ranks: Sequence[Rank]) -> list[Table]:
    """The numbers of every rank by subject; times per step, or per capture for one without steps.

    A metric that no rank could observe is left out, and so is a kind of work that no rank did.
    """
    busy = {key for rank in ranks for key, value in rank.summary.busy_ns.items() if value}
    every = [_metrics(rank, busy) for rank in ranks]
    tables: list[Table] = []
    for caption in every[0] if every else ():
        # A rank without communication or copies has no such numbers; one with them has all labels.
        labels = max((metrics[caption] for metrics in every), key=len)
        cells = {
            label: [metrics[caption].get(label, NOT_OBSERVED) for metrics in every]
            for label in labels
        }
        seen = {label: row for label, row in cells.items() if set(row) != {NOT_OBSERVED}}
        if seen:
            tables.append(_by_rank(caption, seen, [f"rank {rank.rank}" for rank in ranks]))
    return tables


def _by_rank(caption: str, metrics: dict[str, list[str]], ranks: list[str]) -> Table:
    if len(ranks) <= MAX_RANK_COLUMNS:
        rows = [[label, *cells] for label, cells in metrics.items()]
        # The only rank needs no title: the page says whose the numbers are.
        head = ["", *(ranks if len(ranks) > 1 else [""])]
        return Table(caption, head, rows, frozenset(range(1, len(head))))
    rows = [[rank, *cells] for rank, *cells in zip(ranks, *metrics.values(), strict=True)]
    return Table(caption, ["", *metrics], rows, frozenset(range(1, len(metrics) + 1)))


def _metrics(rank: Rank, busy: set[str]) -> dict[str, dict[str, str]]:
    """The numbers of a rank by subject and label; busy times of the kinds of work in `busy`."""
    summary, host, step = rank.summary, rank.summary.host, rank.summary.step_ms

    def per_step(total_ns: int | None) -> str:
        return ms(None if total_ns is None else total_ns / summary.steps)

    communication, copies = {}, {}
    if summary.communication is not None:
        communication = {
            "exposed (ms)": per_step(summary.communication.exposed_ns),
            "of that, waiting for other ranks (ms)": per_step(
                summary.communication.skew_exposed_ns
            ),
            "hidden by kernels": percent(summary.communication.overlap_pct / 100),
        }
    if summary.h2d is not None:
        copies = {
            "exposed (ms)": per_step(summary.h2d.exposed_ns),
            "hidden by kernels": percent(summary.h2d.overlap_pct / 100),
            "copied": size(summary.h2d.bytes // summary.steps),
            "from pageable memory": size(summary.h2d.pageable_bytes // summary.steps),
            "rate (GB/s)": number(summary.h2d.gbps),
        }
    return {
        "Steps": {
            "device": shorten(rank.device.name or rank.device.kind, 60),
            "iterations used": f"{summary.iterations_used} of {rank.iteration_count}",
            "launches with a GPU row": percent(summary.coverage),
            "mean (ms)": number(step.mean if step else None),
            "p10 (ms)": number(step.p10 if step else None),
            "median (ms)": number(step.p50 if step else None),
            "p90 (ms)": number(step.p90 if step else None),
        },
        "Busy time, overlap included": {
            **{
                f"{BUSY_LABELS[key]} (ms)": per_step(summary.busy_ns.get(key))
                for key in BUSY
                if key in busy
            },
            "kernel time with a known phase": percent(summary.attributed_share),
        },
        "Communication": {**communication, "collectives": number(summary.collectives_per_step)},
        "Host to device": copies,
        "Host": {
            "launches": number(host.launches_per_step),
            "kernels": number(host.kernels_per_step),
            "mean kernel (µs)": number(host.mean_kernel_us),
            "launch to start, median (µs)": number(host.launch_to_start_us_p50),
            **_launches(summary),
            "synchronisations": number(host.syncs_per_step),
            "idle after a synchronisation (ms)": per_step(host.idle_after_sync_ns),
            "data wait inferred (ms)": per_step(host.data_wait_inferred_ns),
        },
    }


def _launches(summary: Summary) -> dict[str, str]:
    """Launch calls and the launch queue; empty where no launch is known."""
    found = summary.launches
    if not isinstance(found, Launches):
        return {}
    queue = found.queue
    return {
        "launch call, median (µs)": number(found.call_us_p50),
        "launch calls longer than their kernel or copy": percent(found.outlasting / found.count),
        "launches outstanding, median": f"{queue.p50:,}",
        "launches outstanding, most": f"{queue.longest:,}",
        "idle with nothing launched": percent(queue.starved_ns / max(summary.window_ns, 1)),
    }


def collectives_table(rank: Rank) -> Table:
    """The communication of one rank by operation and message size; times per step."""
    divisor = rank.summary.steps
    groups = rank.summary.collectives
    rows = [
        [
            operation_word(group.operation),
            NOT_OBSERVED if group.bytes is None else significant(group.bytes / 1e6),
            NOT_OBSERVED if group.group_size is None else str(group.group_size),
            significant(group.count / divisor),
            ms(group.exposed_ns / divisor),
            ms(group.overlapped_ns / divisor),
            _each(group.duration_ns, group.count),
            _each(group.transfer_ns, group.matched),
            _each(group.skew_ns, group.matched),
            bandwidth(group.algbw_gbps, group.algbw_at_least_gbps),
            bandwidth(group.busbw_gbps, group.busbw_at_least_gbps),
        ]
        for group in groups
    ]
    unit = rank.summary.per
    header = ["operation", "MB", "ranks", "count", "exposed ms", "overlapped ms"]
    header += ["each ms", "transfer ms", "waiting ms", "algbw GB/s", "busbw GB/s"]
    kinds = "kind" if len(rows) == 1 else "kinds"
    caption = f"{len(rows)} {kinds} of collectives; count, exposed and overlapped {unit}"
    if rank.summary.collectives_left_out:
        caption += f" ({rank.summary.collectives_left_out} more left out)"
    return Table(caption, header, rows, frozenset(range(1, len(header))))


def collectives_lines(report: Report) -> list[str]:
    """What the first detailed rank sends and how fast, where communication is notable."""
    notable = report.verdict.thresholds.get("notable", 1.0)
    if not report.ranks or report.verdict.shares.get("communication", 0.0) < notable:
        return []
    rank = next((r for r in report.ranks if r.summary.collectives), report.ranks[0])
    divisor = rank.summary.steps
    unit = "a step" if rank.summary.iterations_used else "in the capture"
    lines = []
    for group in rank.summary.collectives[:MAX_COLLECTIVES]:
        each = "" if group.bytes is None else f" of {significant(group.bytes / 1e6)} MB"
        line = (
            f"rank {rank.rank}: {significant(group.count / divisor)} ×"
            f" {operation_word(group.operation)}{each} {unit}:"
            f" {duration(group.exposed_ns / divisor)} exposed,"
            f" {duration(group.overlapped_ns / divisor)} hidden"
        )
        if group.busbw_at_least_gbps is not None:
            line += f"; bus {bandwidth(group.busbw_gbps, group.busbw_at_least_gbps)} GB/s"
        lines.append(line)
    communication = rank.summary.communication
    if lines and communication is not None and communication.sizes:
        lines.append(communication.sizes)
    if lines and links_line(report.run):
        lines.append(f"links: {links_line(report.run)}")
    return lines


def links_line(run: Run | None) -> str:
    """How fast the ranks' links are by their messages, beside NVLink; empty where not known."""
    if run is None or isinstance(run.links, msgspec.UnsetType):
        return ""
    links = run.links
    text = f"{significant(links.gbps)} GB/s bus bandwidth for large messages"
    if links.latency_us is not None:
        text += f", {significant(links.latency_us)} µs a hop"
    kinds, error = counted(links.messages, "kind"), percent(links.fit_error)
    text += f" (fitted to {kinds} of messages, error {error})"
    if links.nvlink_gbps is not None:
        part = percent(links.gbps / links.nvlink_gbps)
        text += f"; {part} of the {significant(links.nvlink_gbps)} GB/s of these GPUs' NVLink"
    return text


def operation_word(operation: str) -> str:
    """The operation of a collective as a reader writes it."""
    return clean(operation).replace("_", "-")


def bandwidth(measured: float | None, at_least: float | None) -> str:
    """A bandwidth; a lower bound, from durations that may hold waiting, says so by its sign."""
    if measured is not None:
        return significant(measured)
    return NOT_OBSERVED if at_least is None else f"≥ {significant(at_least)}"


def _each(total_ns: int | None, count: int) -> str:
    return NOT_OBSERVED if total_ns is None or not count else ms(total_ns / count)
