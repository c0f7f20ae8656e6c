"""What the GPU does only because ranks exchange data, and what runs while they do.

DistributedDataParallel copies every gradient into a bucket, divided by the number of ranks, and
after the all-reduce back again; FSDP packs and unpacks what it gathers and scatters. Without
communication nothing of that is left. A trace of torch.profiler names the operators around these
launches. Nsight Systems records no operators: there the copies are found by their number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import polars as pl

from traceprobe.model.codes import UNKNOWN, Bools, Int64s, Kind
from traceprobe.model.contention import SLOW_GBPS, SLOWDOWN, SLOWDOWN_OF_OTHERS
from traceprobe.model.kernel_classes import kernel_class
from traceprobe.model.taxonomy import Phase
from traceprobe.timeline.device_timeline import DeviceTimeline
from traceprobe.timeline.intervals import Intervals, measure_between, union

PACKING = re.compile(
    r"^(torch::distributed::reducer::(mul_out|copy_)|torch\.distributed\.ddp\.reducer::copy_bucket"
    r"|fsdp::(all_gather_copy_in|split_with_sizes_copy|chunk_cat)$|c10d::)"
)
"""Operators whose launches are for communication: DDP's reducer (torch/csrc/distributed/c10d/
reducer.cpp), FSDP2's copies (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py), and what a
collective itself launches beside its kernel."""
MULTIPLICATION = ("elementwise_kernel<", "AUnaryFunctor<", "MulFunctor<")
"""In the name of PyTorch's kernel of a tensor times a number, with which DDP divides by the number
of ranks."""
SAME = ("name", "grid", "phase", "before", "after")
"""What kernels that do the same have in common; the last two are names of their neighbours."""
ALONE, COVERED = 0.05, 0.95
"""Shares of a kernel's time beside collectives up to which it counts as alone, and from which on as
beside them."""
LEAST = 4
"""Kernels that there must be of either kind, for their medians to be compared; and sets of kernels
that are compared, for their class to be known."""
SPREAD = 1.25
"""Ratio of the slowest tenth to the fastest of the same kernels, alone or beside collectives, up to
which they do the same work: one name and grid may stand for several sizes."""
MOST = 4.0
"""Slowdown above which something else is the reason."""


def communication_columns(account: DeviceTimeline, names: Sequence[str]) -> pl.DataFrame:
    """What communication costs the operations of a device, which are the rows, in their order.

    Columns slowed_ns and packing_ns, as `traceprobe.records.replay.Replay` has them, and `since`:
    when the host began with what packs, ns, UNKNOWN where that is not known.
    """
    ops = account.ops
    packing, since = for_communication(ops, account.process.operators, names)
    slowed = slowed_ns(ops, names, beside_ns(ops, account.sets["communication"]))
    took = (ops["t1"] - ops["t0"]).to_numpy()
    return pl.DataFrame(
        {
            "slowed_ns": np.where(packing, 0, slowed),
            "packing_ns": np.where(packing, took, 0),
            "since": since,
        }
    )


def packing_host_ns(columns: pl.DataFrame, launched: Int64s, host: Int64s) -> Int64s:
    """Of the host time before each operation, that for packing.

    Args:
        columns: of `communication_columns`. launched: end of each launch. host: host time before.
    """
    since = columns["since"].to_numpy()
    spent = np.where(since == UNKNOWN, host, np.minimum(launched - since, host))
    return np.where(columns["packing_ns"].to_numpy() > 0, np.maximum(spent, 0), 0)


def beside_ns(ops: pl.DataFrame, communication: Intervals) -> Int64s:
    """Of each operation's time, that during which a collective of its device ran; 0 for those.

    Args:
        ops: columns kind, t0, t1. communication: all collectives of the device.
    """
    t0, t1 = ops["t0"].to_numpy(), ops["t1"].to_numpy()
    found = measure_between(communication, t0, t1)
    return np.where(ops["kind"].to_numpy() == int(Kind.COMM), 0, found)


def for_communication(
    ops: pl.DataFrame, operators: pl.DataFrame, names: Sequence[str]
) -> tuple[Bools, Int64s]:
    """Operations, other than collectives, that there would not be without communication.

    Args:
        ops: of a device, columns of GPU_OPS and `iteration` and `phase`.
        operators: of its process, columns of HOST_OPERATORS. names: of the trace.

    Returns:
        (which, since): `since` is when the host began with it, ns: the operator around the launch,
        or the launch of a copy into a bucket; UNKNOWN where nothing tells.
    """
    others = ops["kind"].to_numpy() != int(Kind.COMM)
    since = np.full(len(ops), UNKNOWN, dtype=np.int64)
    if others.all():
        return np.zeros(len(ops), dtype=bool), since
    if not len(operators):
        into, back = _ddp_copies(ops, names)
        return into | back, np.where(into, ops["launch_t0"].to_numpy(), UNKNOWN)
    used = [i for i in operators["name"].unique().to_list() if PACKING.search(names[i])]
    packing = operators.filter(pl.col("name").is_in(used)).select("thread", "t0", "t1")
    launch, thread = ops["launch_t0"].to_numpy(), ops["thread"].to_numpy()
    which = np.zeros(len(ops), dtype=bool)
    for (number,), mine in packing.group_by("thread"):
        outer = union(mine["t0"].to_numpy(), mine["t1"].to_numpy())
        at = np.searchsorted(outer.t0, launch, "right") - 1
        inside = (thread == number) & (at >= 0) & (launch < outer.t1[np.maximum(at, 0)])
        which |= inside
        since[inside] = outer.t0[at[inside]]
    which &= others
    return which, np.where(which, since, UNKNOWN)


def _ddp_copies(ops: pl.DataFrame, names: Sequence[str]) -> tuple[Bools, Bools]:
    """DDP's copies by number: k multiplications of the backward pass, k copies once all is reduced.

    DDP launches them in its last hook, after the backward pass has launched everything else. Where
    the numbers differ, nothing is said.

    Returns:
        (into, back): copies into buckets and out of them.
    """
    kind, phase = ops["kind"].to_numpy(), ops["phase"].to_numpy()
    iteration, launch = ops["iteration"].to_numpy(), ops["launch_t0"].to_numpy()
    launched = (launch != UNKNOWN) & (iteration >= 0)
    message = launched & (kind == int(Kind.COMM))
    last = np.full(int(iteration.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    last[iteration[message]] = UNKNOWN
    np.maximum.at(last, iteration[message], launch[message])
    multiplies = np.array([all(word in name for word in MULTIPLICATION) for name in names])
    times = multiplies[ops["name"].to_numpy()] & (kind == int(Kind.KERNEL))
    backward = launched & (phase == int(Phase.BACKWARD))
    into = np.flatnonzero(backward & times)
    into = into[launch[into] < last[iteration[into]]]
    back = np.flatnonzero(backward & (kind == int(Kind.D2D)))
    back = back[launch[back] > last[iteration[back]]]
    counts = [np.bincount(iteration[some], minlength=len(last)) for some in (into, back)]
    fits = counts[0] == counts[1]
    marked = np.zeros((2, len(ops)), dtype=bool)
    marked[0, into[fits[iteration[into]]]] = True
    marked[1, back[fits[iteration[back]]]] = True
    return marked[0], marked[1]


def slowed_ns(ops: pl.DataFrame, names: Sequence[str], beside: Int64s) -> Int64s:
    """Of each kernel's time, what collectives beside it cost.

    The same kernel alone and beside collectives in this trace tells by what factor it is slower:
    the same name, grid and phase, between kernels of the same names. Else it is kernels of its
    class that do; else what was measured of the class.

    Args:
        ops: columns of GPU_OPS and `phase`. names: of the trace. beside: of `beside_ns`.
    """
    kernels = np.flatnonzero((ops["kind"].to_numpy() == int(Kind.KERNEL)) & (beside > 0))
    found = np.zeros(len(ops), dtype=np.int64)
    if not len(kernels):
        return found
    used = {i: kernel_class(names[i]) for i in ops["name"].unique().to_list()}
    of_class = pl.col("name").replace_strict(used, return_dtype=pl.String)
    known = _known(ops, beside)
    seen = _seen(known, of_class)
    rows = (
        known.filter(pl.col("beside") > 0)
        .sort("row")
        .with_columns(of_class=of_class)
        .join(seen, on=SAME, how="left", maintain_order="left")
        .join(_by_class(seen), on="of_class", how="left", maintain_order="left")
    )
    column = int(_slow_wire(ops))
    table = {name: factors[column] for name, factors in SLOWDOWN.items()}
    measured = pl.col("of_class").replace_strict(table, default=SLOWDOWN_OF_OTHERS[column])
    factor = rows.select(
        pl.coalesce("slowdown", "class_slowdown", measured.cast(pl.Float64))
    ).to_series()
    found[kernels] = np.round(beside[kernels] * (1 - 1 / factor.to_numpy())).astype(np.int64)
    return found


def _known(ops: pl.DataFrame, beside: Int64s) -> pl.DataFrame:
    """Kernels in the order of their launch on each stream, with what tells which do the same."""
    kernels = (
        ops.select("kind", "stream", "launch_t0", *("name", "grid", "phase"))
        .with_columns(
            row=pl.int_range(pl.len()),
            ns=ops["t1"] - ops["t0"],
            beside=beside,
        )
        .filter(pl.col("kind") == int(Kind.KERNEL))
    )
    # Launches are nearly in order, which numpy makes use of.
    order = np.lexsort([kernels[c].to_numpy() for c in ("launch_t0", "stream")])
    return kernels[order].with_columns(
        before=pl.col("name").shift(1, fill_value=UNKNOWN),
        after=pl.col("name").shift(-1, fill_value=UNKNOWN),
    )


def _seen(known: pl.DataFrame, of_class: pl.Expr) -> pl.DataFrame:
    """Slowdowns that this trace shows, one row for each set of kernels that do the same.

    Columns `SAME`, slowdown, `alone_ns`, what those beside collectives would take alone, and
    `seen_class`, which is `of_class`.
    """
    share = pl.col("beside") / pl.col("ns")
    alone, covered = (pl.col("ns").filter(which) for which in (share <= ALONE, share >= COVERED))
    spreads = [some.quantile(0.9) / some.quantile(0.1) for some in (alone, covered)]
    return (
        known.filter(pl.col("ns") > 0)
        .group_by(SAME, maintain_order=True)
        .agg(
            count=pl.min_horizontal(alone.len(), covered.len()),
            spread=pl.max_horizontal(*spreads),
            slowdown=(covered.median() / alone.median()).clip(1.0, MOST),
            alone_ns=covered.len() * alone.median(),
        )
        .filter((pl.col("count") >= LEAST) & (pl.col("spread") <= SPREAD))
        .drop("count", "spread")
        .with_columns(seen_class=of_class)
    )


def _slow_wire(ops: pl.DataFrame) -> bool:
    """Whether data of collectives crosses the host, by their sizes; False where none is known."""
    sized = ops.filter((pl.col("kind") == int(Kind.COMM)) & (pl.col("bytes") > 0))
    took = float((sized["t1"] - sized["t0"]).sum())
    return len(sized) > 0 and sized["bytes"].sum() < SLOW_GBPS * took


def _by_class(seen: pl.DataFrame) -> pl.DataFrame:
    """Mean slowdown of classes of which several kernels are seen, weighted by their time alone."""
    weighted = (pl.col("slowdown") * pl.col("alone_ns")).sum() / pl.col("alone_ns").sum()
    means = seen.group_by(of_class="seen_class").agg(pl.len(), class_slowdown=weighted)
    return means.filter(pl.col("len") >= LEAST).drop("len")
