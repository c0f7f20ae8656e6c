"""Calls of operators, to the record of the report."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from traceprobe.formatting import truncated
from traceprobe.pipeline.rank_summary import MAX_KERNEL
from traceprobe.records.operator_calls import MOST_OPERATORS, OperatorCalls
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.operator_calls import operator_calls


def build_operator_calls(
    account: DeviceTimeline, names: Sequence[str]
) -> list[OperatorCalls] | UnsetType:
    """The operators of most time; UNSET where the trace has none.

    Args:
        names: of the trace.
    """
    found = operator_calls(account).head(MOST_OPERATORS)
    return [
        OperatorCalls(
            name=truncated(names[name], MAX_KERNEL),
            count=count,
            host_ns=host_ns,
            operations=operations,
            device_ns=device_ns,
        )
        for name, count, host_ns, operations, device_ns in found.iter_rows()
    ] or UNSET
