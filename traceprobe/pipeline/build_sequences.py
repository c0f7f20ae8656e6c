"""Short kernels that a device is given in a row, to the record of the report."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from traceprobe.formatting import truncated
from traceprobe.model.codes import MODULE, UNKNOWN
from traceprobe.model.taxonomy import COMPUTE_PHASES, Level
from traceprobe.pipeline.rank_summary import MAX_KERNEL
from traceprobe.records.launches import MOST_SEQUENCES, KernelSequence
from traceprobe.timeline.attribution import Attribution
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.kernel_sequences import (
    FoundSequence,
    each_column,
    frequent_sequences,
    most_frequent,
)
from traceprobe.timeline.rank_collectives import summary_windows
from traceprobe.verdict.thresholds import FIXED


def build_sequences(
    account: DeviceTimeline, owners: Attribution
) -> list[KernelSequence] | UnsetType:
    """The sequences of the summary; UNSET without any.

    Args:
        owners: what encloses the launches.
    """
    short_ns = int(FIXED.short_kernel_us * 1e3)
    found = frequent_sequences(account, owners.names, short_ns, MOST_SEQUENCES)
    windows = summary_windows(account)
    late_ns = int(account.exclusive["idle_host"][windows].sum())
    return [_record(account, owners, each, late_ns) for each in found] or UNSET


def _record(
    account: DeviceTimeline, owners: Attribution, found: FoundSequence, late_ns: int
) -> KernelSequence:
    """One sequence.

    Launched at once, the kernels of a repetition have no latency between them, and the host is
    earlier by the time from the first launch to the last, of which the device gains no more than it
    idled for late launches.

    Args:
        late_ns: time of the summary in which the device idles for late launches.
    """
    name, phase, t0, t1 = (account.ops[c].to_numpy() for c in ("name", "phase", "t0", "t1"))
    names = owners.names
    paths = list(each_column(found, owners.above))
    around = _steps(owners, most_frequent(owners.above[found.ops[:, 0]]))
    within = around.get(Level.MODULE, around.get(Level.RANGE))
    operators = [_fitting(_steps(owners, path).get(Level.OPERATOR)) for path in paths]
    return KernelSequence(
        kernels=[truncated(names[int(name[row])], MAX_KERNEL) for row in found.ops[0]],
        operators=operators,
        phase=COMPUTE_PHASES[int(phase[found.ops[0, 0]])],
        count=len(found.ops),
        total_ns=int((t1[found.ops] - t0[found.ops]).sum()),
        gap_ns=found.gap_ns,
        launch_ns=found.launch_ns,
        bound_ns=found.latency_ns + min(found.launch_ns, late_ns),
        line=_fitting(around.get(Level.LINE)),
        within=_fitting(within),
    )


def _steps(owners: Attribution, path: int) -> dict[int, str]:
    """Name of the innermost step of each level to a path."""
    found: dict[int, str] = {}
    while path != UNKNOWN:
        level, name = owners.paths.level[path], owners.names[owners.paths.name[path]]
        found.setdefault(level, name.removeprefix(MODULE))
        path = owners.paths.parent[path]
    return found


def _fitting(text: str | None) -> str | None:
    return None if text is None else truncated(text, MAX_KERNEL)
