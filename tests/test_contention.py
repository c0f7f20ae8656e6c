"""What communication costs beside its own time: kernels that it slows, copies that are for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

import traceprobe
from tests.analyses import report_of
from tests.schedules import schedule, task
from traceprobe.model.codes import UNKNOWN, Kind
from traceprobe.model.contention import GRAPH_GAP_NS, SLOWDOWN
from traceprobe.model.events import GPU_OPS, HOST_OPERATORS
from traceprobe.model.taxonomy import Phase
from traceprobe.replay.contention import LIKELY, LITTLE, MUCH, period_of_more
from traceprobe.replay.predict import predict, prepare
from traceprobe.replay.scenario import Changes, apply
from traceprobe.replay.simulate import simulate
from traceprobe.timeline.beside_communication import beside_ns, for_communication, slowed_ns
from traceprobe.timeline.device_timeline import device_timeline
from traceprobe.timeline.intervals import union
from traceprobe.timeline.phases import compile_phase_names
from traceprobe.timeline.process_timeline import process_timeline

SAMPLES = Path(__file__).parents[1] / "sample_traces"
WIDE = SAMPLES / "profile_wide_mlp.rank0.json.gz"
NAMES = ["sm80_xmma_gemm_bf16bf16", "at::native::relu", "ncclDevKernel_AllReduce", "gemm_half_b"]
MATMUL, RELU, NCCL, OTHER_MATMUL = range(4)
NO_COMMUNICATION = Changes(removed=frozenset({"communication"}))


def operations(*rows, **columns):
    """GPU ops of (kind, name, start, end) in the order of their launch, of the backward pass."""
    count = len(rows)
    found = {name: [UNKNOWN] * count for name in GPU_OPS}
    for name in ("pageable", "graph", "linked"):
        found[name] = [False] * count
    found |= {
        "kind": [int(row[0]) for row in rows],
        "stream": [9 if row[0] == Kind.COMM else 7 for row in rows],
        "name": [row[1] for row in rows],
        "t0": [row[2] for row in rows],
        "t1": [row[3] for row in rows],
        "launch_t0": list(range(count)),
        "launch_t1": list(range(count)),
        "thread": [1] * count,
        **columns,
    }
    frame = pl.DataFrame(found, schema=GPU_OPS)
    return frame.with_columns(phase=pl.lit(int(Phase.BACKWARD)), iteration=pl.lit(0))


def beside(ops):
    """Time beside collectives, of all of them."""
    messages = ops.filter(pl.col("kind") == int(Kind.COMM))
    return beside_ns(ops, union(messages["t0"].to_numpy(), messages["t1"].to_numpy()))


# Beside


def test_time_beside_collectives_counts_once_and_not_for_them():
    ops = operations(
        (Kind.COMM, NCCL, 100, 200),
        (Kind.COMM, NCCL, 150, 300),
        (Kind.KERNEL, RELU, 0, 100),
        (Kind.KERNEL, RELU, 120, 180),
        (Kind.KERNEL, RELU, 250, 400),
    )
    assert beside(ops).tolist() == [0, 0, 0, 60, 50]


def layers(*, alone, covered, count=6):
    """A matrix product and a ReLU per layer; the second half of the layers beside a collective."""
    rows, now = [], 0
    for layer in range(2 * count):
        if layer == count:
            rows.append((Kind.COMM, NCCL, now, now + count * (covered + 10)))
        took = covered if layer >= count else alone
        rows += [
            (Kind.KERNEL, MATMUL, now, now + took),
            (Kind.KERNEL, RELU, now + took, now + took + 10),
        ]
        now += took + 10
    return operations(*rows, bytes=[1_000_000 if row[0] == Kind.COMM else -1 for row in rows])


def test_the_same_kernel_alone_in_the_trace_tells_how_much_slower_it_is():
    ops = layers(alone=1000, covered=1700)
    found = slowed_ns(ops, NAMES, beside(ops))
    matmul = (ops["name"] == MATMUL).to_numpy()
    covered = matmul & (beside(ops) > 0)
    # The first and the last layer have other neighbours; they are slowed as the class is.
    inner = np.flatnonzero(covered)[1:-1]
    assert found[inner] == pytest.approx(700, abs=1)
    assert not found[matmul & ~covered].any()


def test_kernels_of_other_sizes_are_not_compared():
    # Alone the sizes alternate: it may be that only the long ones are beside the collective.
    ops = layers(alone=1000, covered=1700)
    longer = (ops["name"] == MATMUL).to_numpy() & (np.arange(len(ops)) % 4 == 0)
    ops = ops.with_columns(t1=pl.col("t1") + pl.Series(np.where(longer, 500, 0)))
    found = slowed_ns(ops, NAMES, beside(ops))
    covered = np.flatnonzero((ops["name"] == MATMUL).to_numpy() & (beside(ops) > 0))
    table = 1 - 1 / SLOWDOWN["matmul_half"][0]
    expected = np.round(beside(ops)[covered] * table)
    assert found[covered].tolist() == expected.tolist()


@pytest.mark.parametrize(("size", "column"), [(1_000_000, 0), (10, 1), (UNKNOWN, 0)])
def test_the_table_counts_where_the_trace_shows_nothing(size, column):
    ops = operations(
        (Kind.COMM, NCCL, 0, 1000), (Kind.KERNEL, MATMUL, 0, 1000), bytes=[size, UNKNOWN]
    )
    factor = SLOWDOWN["matmul_half"][column]
    assert slowed_ns(ops, NAMES, beside(ops)).tolist() == [0, round(1000 * (1 - 1 / factor))]


# Copies for communication


def timeline(path, *, operators=True):
    trace = traceprobe.load(path)
    if not operators:
        trace = replace(trace, host_operators=pl.DataFrame(schema=HOST_OPERATORS))
    pid = trace.gpu_ops["pid"][0]
    process = process_timeline(trace, pid, None, compile_phase_names({}))
    return trace, device_timeline(process, process.ops["device"][0])


def test_ddps_copies_are_found_by_their_operators_and_by_their_number():
    trace, account = timeline(WIDE)
    which, since = for_communication(account.ops, account.process.operators, trace.names)
    steady = account.ops["iteration"].is_in(account.index[account.used].tolist()).to_numpy()
    kinds = account.ops["kind"].to_numpy()[which & steady]
    # One copy into a bucket and one back for each parameter: four layers of weight and bias.
    assert (kinds == int(Kind.KERNEL)).sum() == (kinds == int(Kind.D2D)).sum()
    assert len(kinds) == 2 * 8 * int(account.used.sum())
    assert (since[which] <= account.ops["launch_t0"].to_numpy()[which]).all()
    blind, without = timeline(WIDE, operators=False)
    guessed, _ = for_communication(without.ops, without.process.operators, blind.names)
    assert (guessed & steady == which & steady).all()


def test_without_collectives_nothing_is_for_them():
    ops = operations((Kind.KERNEL, RELU, 0, 10), (Kind.D2D, RELU, 10, 20))
    operators = pl.DataFrame(
        {"pid": 0, "thread": 1, "t0": 0, "t1": 9, "name": 0, "sequence": 0, "forward_thread": 0,
         "operands": 0}, schema=HOST_OPERATORS,
    )  # fmt: skip
    which, _ = for_communication(ops, operators, ["torch::distributed::reducer::mul_out"])
    assert not which.any()


def test_copies_of_another_number_than_multiplications_are_left_alone():
    names = [
        "elementwise_kernel<4, AUnaryFunctor<float, MulFunctor<float>>>",
        "Memcpy DtoD",
        "nccl",
    ]
    rows = [(Kind.KERNEL, 0, 0, 10), (Kind.COMM, 2, 10, 20), (Kind.D2D, 1, 20, 30)]
    nothing = pl.DataFrame(schema=HOST_OPERATORS)
    assert for_communication(operations(*rows), nothing, names)[0].tolist() == [True, False, True]
    more = operations(*rows, (Kind.D2D, 1, 30, 40))
    assert not for_communication(more, nothing, names)[0].any()


# Played


def test_without_communication_its_copies_and_slowdowns_go_too():
    rows = (
        task("backward", host=10, duration=50, alone=0.8, alone_host=0.5),
        task("communication", duration=40, stream=1, needs=(1,), collective=True),
        task("optimizer", duration=10, needs=(1,)),
    )
    assert simulate([schedule(*rows)]) == 50 + 40 + 10
    assert simulate([apply(schedule(*rows), NO_COMMUNICATION)]) == pytest.approx(40 + 10)
    host = replace(rows[0], duration=1.0, tail=1.0, first_host=100.0, host=100.0)
    assert simulate([apply(schedule(host, *rows[1:]), NO_COMMUNICATION)]) == pytest.approx(50 + 1)


def test_a_graph_leaves_the_gap_between_its_kernels():
    rows = (task(host=90_000, duration=10_000, ops=10), task("backward", duration=20_000, ops=10))
    graph = apply(schedule(*rows), Changes(removed=frozenset({"host"})))
    assert simulate([graph]) == 30_000 + 20 * GRAPH_GAP_NS
    # Time between operations that was there anyway is not there twice.
    late = [replace(row, lag=15_000.0, tail=row.tail + 1_500) for row in rows]
    assert simulate([apply(schedule(*late), Changes(removed=frozenset({"host"})))]) == 60_000


def test_more_workers_share_most_of_the_work_and_a_slower_loader_is_slower():
    likely, least, most = (period_of_more(800, 8, 1, left) for left in (LIKELY, LITTLE, MUCH))
    assert least == pytest.approx(100)
    assert least < likely < most < 800
    # Of two workers the part that is not shared is larger already.
    assert period_of_more(800, 8, 2, LIKELY) > likely
    assert period_of_more(800, 1, 4, LIKELY) == pytest.approx(800)
    assert period_of_more(800, 0.5, 1, LIKELY) == 1600


def test_a_replay_holds_what_communication_costs():
    report = report_of(WIDE, WIDE.with_name("profile_wide_mlp.rank1.json.gz"))
    replay = report.ranks[0].replay
    assert sum(replay.packing_ns) > 0
    assert all(
        0 <= s + p <= d
        for s, p, d in zip(replay.slowed_ns, replay.packing_ns, replay.duration_ns, strict=True)
    )
    assert all(0 <= p <= h for p, h in zip(replay.packing_host_ns, replay.host_ns, strict=True))
    run = prepare(report)
    told = predict(run, NO_COMMUNICATION)
    kept = [
        replace(p, tasks=replace(p.tasks, alone=np.ones(len(p.tasks)))) for p in run.base.schedules
    ]
    slower = predict(replace(run, base=replace(run.base, schedules=kept)), NO_COMMUNICATION)
    assert told.low <= told.predicted < slower.predicted
