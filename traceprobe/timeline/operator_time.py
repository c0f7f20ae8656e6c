"""Time of a device by operator and what it was called with, beside the work of the calls.

A kernel, a copy inside the device or a memset belongs to the innermost operator around its launch.
A call counts where its first kernel begins, with all its kernels, each with its whole duration:
what runs beside another is no less busy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import polars as pl
from msgspec.structs import replace

from traceprobe.model.codes import UNKNOWN, Bools, Int64s, Kind
from traceprobe.model.kernel_classes import kernel_class
from traceprobe.model.operands import Operands
from traceprobe.model.taxonomy import Phase
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.intervals import union
from traceprobe.timeline.operator_work import work_of
from traceprobe.timeline.operators import launching_rows
from traceprobe.timeline.rank_collectives import summary_windows

MOST_ROWS = 2_000
"""Operators with sizes that are kept of a device, those of most time; a model has some hundreds."""
MOST_TENSORS = 4
"""Tensors of a call whose sizes are kept."""
_KINDS = [int(Kind.KERNEL), int(Kind.D2D), int(Kind.MEMSET)]
_FP32 = {"matmul_tf32": "tf32", "matmul_3xtf32": "tf32", "matmul_fp32": "fp32"}
"""What elements of fp32 were multiplied in, by the class of the kernels."""
_COUNTED = (Phase.FORWARD, Phase.BACKWARD)
"""Whose operations are those of the model."""


class CalledOperator(msgspec.Struct, frozen=True):
    """Calls of an operator with the same sizes.

    Args:
        shape: sizes of its first tensors.
        precision: of its factors, "" where there are none or they are of no known type; "fp32" may
            have run as TF32 unless `fp32` says how it ran.
        calls, ns: in the windows of the summary.
        flops, bytes: of one call.
        least: of its operations, those that no other way to compute the same leaves out.
    """

    operator: str
    shape: tuple[tuple[int, ...], ...]
    precision: str
    calls: int
    ns: int
    flops: int
    bytes: int
    least: int = 0


class OperatorTime(msgspec.Struct, frozen=True):
    """One device.

    Args:
        steps: iterations that the summary covers.
        rows: operators whose work is known, those of most time first.
        ns: of all kernels. known_ns: of those of the rows, also of rows that were left out.
        least: operations by precision that every way to compute the same takes, of forward and
            backward pass, without what is computed again.
    """

    steps: int
    rows: list[CalledOperator]
    ns: int
    known_ns: int
    least: Mapping[str, int] = msgspec.field(default_factory=dict)


def operator_time(
    account: DeviceTimeline, names: Sequence[str], operands: Sequence[Operands]
) -> OperatorTime | None:
    """Time by operator and sizes; None where the trace has no sizes.

    Args:
        names, operands: of the trace.
    """
    operators = account.process.operators
    if not (operators["operands"] != UNKNOWN).any():
        return None
    columns = ("kind", "t0", "t1", "name", "phase", "thread", "launch_t0")
    ops = account.ops.select(columns).filter(pl.col("kind").is_in(_KINDS))
    inside = begins_inside(account, ops["t0"].to_numpy())
    row = launching_rows(ops, operators)
    calls = (
        ops.select(
            "t0",
            "name",
            "phase",
            ns=pl.col("t1") - pl.col("t0"),
            inside=pl.Series(inside),
            call=pl.Series(row),
        )
        .with_row_index("row")
        .with_columns(call=pl.when(pl.col("call") < 0).then(-1 - pl.col("row")).otherwise("call"))
        .group_by("call")
        .agg(
            pl.col("ns").sum(),
            pl.col("inside").get(pl.col("t0").arg_min()),
            pl.col("phase").get(pl.col("ns").arg_max()),
            kernel=pl.col("name").get(pl.col("ns").arg_max()),
        )
        .filter("inside")
    )
    called = operators.select("name", "operands").with_row_index("call")
    groups = (
        calls.join(called.with_columns(pl.col("call").cast(pl.Int64)), on="call")
        .filter(pl.col("operands") != UNKNOWN)
        .group_by("name", "operands", "kernel", "phase")
        .agg(pl.col("ns").sum(), calls=pl.len())
        .sort("name", "operands", "kernel", "phase")
    )
    rows: dict[tuple[object, ...], CalledOperator] = {}
    least: dict[int, Counter[str]] = {int(phase): Counter() for phase in _COUNTED}
    for name, place, kernel, phase, ns, count in groups.iter_rows():
        found = _called(names[name], operands[place], names[kernel], count, ns)
        if found is not None:
            key = (found.operator, found.shape, found.precision, found.flops, found.bytes)
            rows[key] = _together(rows.get(key), found)
            if phase in least and found.least:
                least[phase][found.precision] += count * found.least
    ordered = sorted(rows.values(), key=lambda found: (-found.ns, found.operator, found.shape))
    return OperatorTime(
        steps=len(summary_windows(account)),
        rows=ordered[:MOST_ROWS],
        ns=int(calls["ns"].sum()),
        known_ns=sum(found.ns for found in ordered),
        least=_least(*(least[int(phase)] for phase in _COUNTED)),
    )


def _least(forward: Mapping[str, int], backward: Mapping[str, int]) -> dict[str, int]:
    """Of both passes; of the backward pass no more than twice the forward pass.

    Each product has two gradients. What is beyond that is computed again, where the trace does not
    tell it from the backward pass.
    """
    known, most = sum(backward.values()), 2 * sum(forward.values())
    share = min(1.0, most / known) if known else 1.0
    names = sorted({*forward, *backward})
    return {name: forward.get(name, 0) + int(share * backward.get(name, 0)) for name in names}


def begins_inside(account: DeviceTimeline, instants: Int64s) -> Bools:
    """Which instants are in the windows of the summary."""
    chosen = summary_windows(account)
    windows = union(account.edges[:-1][chosen], account.edges[1:][chosen])
    at = np.searchsorted(windows.t0, instants, "right") - 1
    ends = np.append(windows.t1, np.iinfo(np.int64).min)
    return np.asarray((at >= 0) & (instants < ends[at]), dtype=np.bool_)


def _called(
    name: str, operands: Operands, kernel: str, calls: int, ns: int
) -> CalledOperator | None:
    work = work_of(name, operands)
    if work is None:
        return None
    precision = work.precision
    if work.flops and precision == "fp32":
        precision = _FP32.get(kernel_class(kernel), "fp32 or tf32")
    shapes = [dims for operand in operands for dims in operand.dims if dims]
    return CalledOperator(
        operator=name,
        shape=tuple(shapes[:MOST_TENSORS]),
        precision=precision,
        calls=calls,
        ns=ns,
        flops=work.flops,
        bytes=work.bytes,
        least=work.least,
    )


def _together(one: CalledOperator | None, other: CalledOperator) -> CalledOperator:
    """Calls of the same work as one; the largest kernel may differ."""
    if one is None:
        return other
    return replace(other, calls=one.calls + other.calls, ns=one.ns + other.ns)
