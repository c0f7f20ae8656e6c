"""What the checks of one input look at, each part of it computed once."""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np
import polars as pl

from traceprobe.ingest.audit_rows import AuditRows
from traceprobe.model.codes import UNKNOWN, Bools, Kind
from traceprobe.model.events import Trace
from traceprobe.pipeline.build_rank import origin
from traceprobe.pipeline.trace_part import TracePart
from traceprobe.records.rank import Rank
from traceprobe.records.report import Report
from traceprobe.verdict.thresholds import Thresholds

THRESHOLDS = Thresholds()


class Evidence(msgspec.Struct, frozen=True, dict=True):
    """One input: its columns, its part of the report, and the rows beside both."""

    trace: Trace
    part: TracePart
    audit: AuditRows

    @cached_property
    def records(self) -> list[Rank]:
        """The devices as in the report."""
        return [device.record for device in self.part.devices]

    @cached_property
    def on_gpu(self) -> bool:
        """Whether GPU work is in the file; else the report describes a CPU run."""
        return any(device.kind == "gpu" for device in self.trace.devices)

    @cached_property
    def collectives(self) -> int:
        """GPU ops that communicate."""
        return int((self.trace.gpu_ops["kind"] == int(Kind.COMM)).sum())

    @cached_property
    def summarised(self) -> Bools:
        """Which GPU ops start between the first and the last window of their device's summary."""
        ops = self.trace.gpu_ops
        pid, device, t0 = (ops[c].to_numpy() for c in ("pid", "device", "t0"))
        inside = np.zeros(len(ops), dtype=bool)
        zero = origin(self.trace)
        for record in self.records:
            of_device = (pid == record.pid) & (device == record.device.index)
            used = [i for i in record.iterations if i.used and i.start_ns is not None]
            if used:
                first, last = used[0].start_ns, used[-1].end_ns
                assert first is not None
                assert last is not None
                of_device &= (t0 >= zero + first) & (t0 < zero + last)
            inside |= of_device
        return inside

    @cached_property
    def launched(self) -> pl.DataFrame:
        """GPU ops with the launch of the same correlation."""
        return self.trace.gpu_ops.filter(
            pl.col("linked") & (pl.col("launch_t0") != UNKNOWN) & (pl.col("correlation") != UNKNOWN)
        )

    @cached_property
    def whole_microseconds(self) -> bool:
        """Whether the file's clock has no finer steps than 1 µs."""
        ops = self.trace.gpu_ops
        return bool(((ops["t0"] % 1000 == 0) & (ops["t1"] % 1000 == 0)).all())

    def warned(self, *codes: str) -> list[str]:
        """Those of the codes that the reader of the file has warned of."""
        return [code for code in codes if code in self.trace.quality.warnings]


class Whole(msgspec.Struct, frozen=True):
    """All inputs together: the report, and what was noted in the files."""

    report: Report
    profiled: frozenset[str]
    calibrated: bool
