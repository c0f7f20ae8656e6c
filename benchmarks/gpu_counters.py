"""Sampled counters of a GPU held against the kernels of the same export.

    python benchmarks/gpu_counters.py EXPORT ... --software TEXT   # writes the page

An export of Nsight Systems has both: `GR Active` is the part of a sample in which the GPU had
work, and so is what the kernels, timed by CUPTI, take of it. That tells what time a sample stands
for, and whether its unit is read as it is meant.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import traceprobe  # noqa: E402
from traceprobe.ingest.detect_format import detect_format  # noqa: E402
from traceprobe.ingest.nsight.open_export import unpacked_export  # noqa: E402
from traceprobe.records.gpu_metrics import GpuMetrics  # noqa: E402

PAGE = ROOT / "docs" / "validation" / "gpu-counters.md"
BUSY, ACTIVE = "GR Active [Throughput %]", "SMs Active [Throughput %]"
REGISTERS = 65536
"""Of a multiprocessor, for how many blocks of a kernel it holds at once."""


@dataclass(frozen=True)
class Comparison:
    """What one export says. Shares are percent of the time from the first kernel to the last.

    Args:
        kernels: what kernels take. counted: `GR Active`, the mean of the samples in that time.
        apart: mean distance of a sample from the kernels' share of its time, points.
        since, until: correlation of both, if a sample is of the time since the one before, or of
            that until the next.
        sms: `SMs Active`, the mean. waves: what blocks, multiprocessors and time let expect.
        reported: `sm_active` of the step in the report.
    """

    name: str
    gpu: str
    version: str
    samples: int
    interval_us: float
    kernels: float
    counted: float
    apart: float
    since: float
    until: float
    sms: float
    waves: float
    reported: float


def compare(path: Path) -> Comparison:
    """Read one export, whose kernels are all of one stream and one shape."""
    with (
        unpacked_export(path, detect_format(path).gzipped) as plain,
        closing(sqlite3.connect(f"{plain.resolve().as_uri()}?mode=ro", uri=True)) as db,
    ):
        kernels = np.array(
            db.execute(
                "SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start"
            ).fetchall()
        )
        blocks, threads, registers = db.execute(
            "SELECT gridX * gridY * gridZ, blockX * blockY * blockZ, registersPerThread "
            "FROM CUPTI_ACTIVITY_KIND_KERNEL"
        ).fetchone()
        gpu, sms = db.execute("SELECT name, smCount FROM TARGET_INFO_GPU").fetchone()
        (version,) = db.execute(
            "SELECT value FROM META_DATA_EXPORT WHERE name = 'EXPORT_PRODUCT_VERSION'"
        ).fetchone()
        busy, active = (_samples(db, name) for name in (BUSY, ACTIVE))
    first, last = kernels[0, 0], kernels[-1, 1]
    t0, t1 = busy[:-1, 0], busy[1:, 0]
    inside = (t0 >= first) & (t1 <= last)
    share = _share(kernels, t0[inside], t1[inside])
    until, since = busy[:-1, 1][inside], busy[1:, 1][inside]
    held = sms * (REGISTERS // (threads * -(-registers // 8) * 8))
    whole = 100 * (kernels[:, 1] - kernels[:, 0]).sum() / (last - first)
    metrics = traceprobe.analyze(traceprobe.load(path)).ranks[0].summary.gpu_metrics
    assert isinstance(metrics, GpuMetrics)
    assert metrics.step.sm_active is not None
    return Comparison(
        name=path.name,
        gpu=gpu,
        version=version,
        samples=len(busy),
        interval_us=float(np.median(np.diff(busy[:, 0]))) / 1e3,
        kernels=whole,
        counted=float(until.mean()),
        apart=float(np.abs(until - share).mean()),
        since=float(np.corrcoef(since, share)[0, 1]),
        until=float(np.corrcoef(until, share)[0, 1]),
        sms=float(active[:-1, 1][inside].mean()),
        waves=whole * blocks / held / -(-blocks // held),
        reported=100 * metrics.step.sm_active,
    )


def _samples(db: sqlite3.Connection, name: str) -> np.typing.NDArray[np.int64]:
    """Rows of time and value, in order."""
    rows = db.execute(
        "SELECT timestamp, value FROM GPU_METRICS JOIN TARGET_INFO_GPU_METRICS "
        "USING (typeId, metricId) WHERE metricName = ? ORDER BY timestamp",
        (name,),
    )
    return np.array(rows.fetchall())


def _share(
    kernels: np.typing.NDArray[np.int64],
    t0: np.typing.NDArray[np.int64],
    t1: np.typing.NDArray[np.int64],
) -> np.typing.NDArray[np.float64]:
    """Percent of each stretch of time in which a kernel runs."""
    ends = np.minimum(kernels[:, 1], t1[:, None])
    starts = np.maximum(kernels[:, 0], t0[:, None])
    found: np.typing.NDArray[np.float64] = 100 * np.clip(ends - starts, 0, None).sum(1) / (t1 - t0)
    return found


def page(found: list[Comparison], software: str) -> str:
    """The page."""
    rows = [
        ("export", *(f"`{each.name}`" for each in found)),
        ("---", *("---:" for _ in found)),
        ("samples", *(f"{each.samples}, each {each.interval_us:.0f} µs" for each in found)),
        ("time with a kernel, CUPTI", *(f"{each.kernels:.2f} %" for each in found)),
        ("`GR Active`, mean", *(f"{each.counted:.2f} %" for each in found)),
        ("a sample and the kernels in it, apart", *(f"{each.apart:.2f} points" for each in found)),
        ("their correlation, a sample lasts until the next", *(f"{x.until:.4f}" for x in found)),
        ("... lasts since the one before", *(f"{each.since:.4f}" for each in found)),
        ("`SMs Active`, mean", *(f"{each.sms:.2f} %" for each in found)),
        ("... expected by blocks and multiprocessors", *(f"{x.waves:.2f} %" for x in found)),
        ("`sm_active` of the step in the report", *(f"{x.reported:.2f} %" for x in found)),
    ]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"""<!-- written by benchmarks/gpu_counters.py -->
# Sampled counters and the kernels under them

{found[0].gpu}, Nsight Systems {found[0].version}, {software}.

A loop of products of two 4096 × 4096 matrices in fp32, each with a range and a synchronisation,
recorded with `--gpu-metrics-devices`. CUPTI's times of the kernels and the sampled counters are in
the same export and know nothing of each other.

{table}

So a sample is the mean from its time to that of the next, `GR Active` is the part of the time with
work, and both clocks are one. The SMs are less active than the GPU for the last wave of blocks,
which does not fill them. A GPU at rest shows 1 % of `GR Active` and of `PCIe TX Throughput`. The
counters of the clocks, named `[MHz]`, are in Hz; they are not read.

One GPU of one generation: how `typeId` tells several apart, and the counters of NVLink, which this
machine did not grant, were not seen in a real export.
"""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("exports", type=Path, nargs="+")
    parser.add_argument("--software", required=True, help="what else ran, for people")
    given = parser.parse_args()
    found = [compare(path) for path in given.exports]
    PAGE.write_text(page(found, given.software), encoding="utf-8")


if __name__ == "__main__":
    main()
