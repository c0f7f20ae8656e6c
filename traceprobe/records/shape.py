"""What a report must have before its numbers can be compared: keys, lengths, indices, signs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from traceprobe.model import taxonomy
from traceprobe.records import memory
from traceprobe.records import report as result
from traceprobe.records.checks import of_ablation, of_roofline
from traceprobe.records.replay import Replay

ROUNDING = 1e-5
_CLOCK = re.compile(r"-?\d{1,20}")
_COLUMNS = (
    *("iteration", "kind", "stream", "first_host_ns", "host_ns", "duration_ns", "lag_ns"),
    *("tail_ns", "data_wait_ns", "awaits", "needs", "bytes"),
)
"""Of a replay."""
Problems = Iterator[str]


def of_report(report: result.Report, ranks: Sequence[result.Rank] | None = None) -> Problems:
    """What a report lacks.

    Args:
        ranks: those of the report with all their details, where it does not hold them itself.
    """
    for number, source in enumerate(report.inputs):
        if not (_CLOCK.fullmatch(source.origin_ns) and _CLOCK.fullmatch(source.base_ns)):
            yield f"input {number}: its clock is no number"
    if any(not 0 <= rank.input < len(report.inputs) for rank in report.ranks):
        yield "a rank has no input"
    for rank in ranks if ranks is not None else report.ranks:
        for problem in _rank(rank):
            yield f"rank {rank.rank}: {problem}"
    yield from _verdict(report.verdict)
    yield from _quality(report.quality)
    if report.run is not None:
        yield from _run(report.run)
    if report.ablation is not None:
        yield from of_ablation(report.ablation)
    if not isinstance(report.roofline, msgspec.UnsetType):
        yield from of_roofline(report.roofline)
    if not isinstance(report.memory, msgspec.UnsetType):
        yield from _memory(report.memory, len(report.inputs))


def _rank(rank: result.Rank) -> Problems:
    summary = rank.summary
    yield from _classes("summary", summary.partition_ns, summary.busy_ns)
    for i in rank.iterations:
        if i.partition_ns is not None and i.busy_ns is not None:
            yield from _classes(f"iteration {i.index}", i.partition_ns, i.busy_ns)
    if set(summary.share) != set(taxonomy.SHARES):
        yield "summary: shares differ from the contract"
    if min(summary.iterations_used, summary.window_ns, summary.collectives_left_out) < 0:
        yield "summary: a count is negative"
    if summary.step_ms is not None and not _ascending(summary.step_ms):
        yield "summary: the step times are out of order"
    if any(ns < 0 for ns in (summary.kernel_ns or {}).values()):
        yield "summary: a class of kernels takes less than no time"
    if any(min(k.count - 1, k.total_ns, k.mean_ns) < 0 for k in summary.top_kernels):
        yield "summary: a kernel takes less than no time"
    if any(min(g.count, g.total_ns, g.duration_ns, g.matched) < 0 for g in summary.collectives):
        yield "summary: a group of collectives takes less than no time"
    for picture in (rank.timeline, rank.worst):
        if picture is not None:
            yield from _picture(picture)
    if isinstance(rank.replay, Replay):
        yield from _replay(rank.replay)


def _classes(name: str, part: result.Nanoseconds, busy: result.Nanoseconds) -> Problems:
    if set(part) != set(taxonomy.PARTITION) or set(busy) != set(taxonomy.BUSY):
        yield f"{name}: classes differ from the contract"


def _ascending(step: result.StepTimes) -> bool:
    return 0 < step.p10 <= step.p50 <= step.p90 and step.mean > 0


def _picture(picture: result.Timeline) -> Problems:
    if picture.duration_ns <= 0:
        yield "a timeline is empty"
    for lane in picture.lanes:
        if (
            len(
                {
                    len(column)
                    for column in (lane.start_ns, lane.duration_ns, lane.label, lane.detail)
                }
            )
            > 1
        ):
            yield "a lane of a timeline has columns of different lengths"
        if any(ns < 0 for ns in (*lane.start_ns, *lane.duration_ns)):
            yield "a lane of a timeline leaves it"


def _replay(replay: Replay) -> Problems:
    try:
        columns = {name: [*map(int, getattr(replay, name).split())] for name in _COLUMNS}
    except ValueError:
        yield "a column of the replay is no column of numbers"
        return
    if len({len(column) for column in columns.values()}) > 1 or not columns["kind"]:
        yield "the replay has columns of different lengths"
    elif not all(0 <= kind < len(replay.kinds) for kind in columns["kind"]):
        yield "the replay has an unknown kind"
    elif replay.iterations != 1 + max(columns["iteration"]):
        yield "the replay has other iterations than it says"


def _verdict(verdict: result.Verdict) -> Problems:
    if set(verdict.shares) - set(taxonomy.SHARES):
        yield "verdict.shares are not those of the contract"
    if not all(-ROUNDING <= share <= 1 + ROUNDING for share in verdict.shares.values()):
        yield "verdict.shares are no parts of 1"
    if not 0 <= verdict.confidence <= 1:
        yield "verdict.confidence is no part of 1"


def _quality(quality: result.Quality) -> Problems:
    counts = (
        *(quality.gpu_ops, quality.gpu_ops_linked, quality.launches_without_gpu_op),
        *(quality.events_repaired, quality.events_lost),
    )
    if min(counts) < 0:
        yield "quality: a count is negative"
    effect = quality.observer_effect
    if effect is not None and min(effect.profiled_step_ms, effect.unprofiled_step_ms) <= 0:
        yield "quality: a step takes no time"


def _run(run: result.Run) -> Problems:
    if run.world_size < 1 or run.collectives_matched < 0:
        yield "run: a count is negative"
    if min(run.transfer_ns or 0, run.skew_ns or 0) < 0:
        yield "run: a time is negative"
    overview = run.overview
    if isinstance(overview, result.Overview) and (
        overview.steps.iterations_per_bin < 1
        or len(overview.steps.step_ms) != len(overview.steps.ranks)
        or not all(group.members for group in overview.groups)
    ):
        yield "run.overview: its matrix or its groups are incomplete"


def _memory(held: memory.Memory, inputs: int) -> Problems:
    if not memory.plausible(held):
        yield "memory: its parts do not add up, or their lengths differ"
    if held.input is not None and not 0 <= held.input < inputs:
        yield "memory: it has no input"
