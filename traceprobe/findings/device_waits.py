"""What calls that wait for the device cost a step."""

from __future__ import annotations

from statistics import fmean
from typing import NamedTuple

from traceprobe.findings.evidence import HOST_IDLE, Evidence
from traceprobe.replay.reads import find_reads
from traceprobe.replay.tasks import Tasks
from traceprobe.verdict.thresholds import FIXED


class DeviceWaits(NamedTuple):
    """Calls that wait for the device, as the mean of the ranks.

    Args:
        per_step: how many. seen_ms: idle time in them and until the host is ahead again, per step.
        most_ms: that, and what the host does only to read values, and what the profiler slowed it
            by, without which it would wait for longer. reading_ms: the second of these.
        preparing_ms: time of kernels of `PREPARING` that only compute what is read.
        late_ms: of `seen_ms` what is late launches, after the calls. matters: whether they come in
            most steps. explain: whether they are most of what is overhead.
    """

    per_step: float
    seen_ms: float
    most_ms: float
    reading_ms: float
    preparing_ms: float
    late_ms: float
    matters: bool
    explain: bool


def device_waits(evidence: Evidence) -> DeviceWaits:
    """What calls that wait cost the run."""
    hosts = [(r.summary.host, r.summary.steps) for r in evidence.ranks]
    count = fmean(host.syncs_per_step for host, _ in hosts)
    cost = fmean(host.sync_cost_ns / steps for host, steps in hosts) / 1e6
    after = fmean(host.idle_after_sync_ns / steps for host, steps in hosts) / 1e6
    matters = count >= FIXED.syncs
    inside = evidence.exclusive_ms("idle_sync") - evidence.fed_ms("idle_sync")
    late = evidence.exclusive_ms("idle_host") - evidence.fed_ms("idle_host")
    idle = min(inside + late, evidence.overhead_ms())
    # Calls after which no GPU idles would not make the host wait for longer either.
    waits = min(max(cost, inside + after), idle) > 0
    reading, preparing = _reads(evidence) if matters and waits else (0.0, 0.0)
    most = min(cost + reading + evidence.slowed_ms(), idle) if waits else 0.0
    seen = max(min(inside + after, most), min(cost, idle))
    overhead = inside + evidence.exclusive_ms(*HOST_IDLE) - evidence.fed_ms(*HOST_IDLE)
    explain = matters and seen > FIXED.mostly_waits * overhead
    late = max(seen - inside, 0.0)
    return DeviceWaits(count, seen, most, reading, preparing, late, matters, explain)


def _reads(evidence: Evidence) -> tuple[float, float]:
    """Host time, and that of kernels, that there is only to read values, ms per step."""

    def totals(tasks: Tasks) -> tuple[float, float]:
        reads = find_reads(tasks)
        kernels = tasks.duration[reads.preparing]
        return float((tasks.host - reads.host).sum()), float(kernels.sum())

    host, kernels = evidence.played_ms(totals) or (0.0, 0.0)
    return host, kernels
