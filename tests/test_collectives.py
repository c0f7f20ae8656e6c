"""Collectives by operation and size: bytes, bandwidth, exposed time, transfer against waiting.

A step lasts 10 ms; a collective is (arrival, end) within it in µs, and ends on all ranks at once.
"""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traceprobe
from tests.analyses import report_of, trace_of
from tests.builders import kineto, memory
from tests.builders.scenario import COMM_STREAM, Message, Process, Script
from traceprobe.capture.process import nsys_tool
from traceprobe.ingest import collective_metadata
from traceprobe.model.codes import UNKNOWN, Operation
from traceprobe.timeline.collectives import bus_factor

US = 1_000
PITCH = 10_000 * US
STEPS = 5  # the last has no end
PAIR = Message(elements_in=25_000_000, elements_out=25_000_000)
MB_100 = 100_000_000


def rank(number, *collectives, world=2, clock=0, compute=(1_000, 2_000)):
    """Each collective: (begin, end, message), launched in this order."""
    script = Script(Process(1_000 * (number + 1), rank=number), world_size=world)
    for k in range(STEPS):
        at = k * PITCH
        script.range(f"step {k}", at, at + PITCH)
        first, last = (at + t * US for t in compute)
        script.op("kernel", at + 600 * US, at + 610 * US, (at + 60, at + 70))
        script.op("kernel", first, last, (at + 100, at + 110))
        for i, (begin, end, message) in enumerate(collectives):
            call = at + 200 + 10 * i
            script.op(
                *("comm", at + begin * US, at + end * US, (call, call + 5)),
                stream=COMM_STREAM + i,
                message=message,
                bytes=None if message is None else 4 * message.elements_in,
            )
    return script.build().shifted(clock)


def summaries(*scenarios, **options):
    traces = [memory.trace(s) for s in scenarios]
    report = traceprobe.analyze(traces, traceprobe.Options(**options))
    return [r.summary for r in report.ranks]


def test_two_ranks_that_reduce_100_mb_in_1_ms_have_100_gb_per_second():
    early, late = summaries(rank(0, (3_000, 5_000, PAIR)), rank(1, (4_000, 5_000, PAIR)))
    (mine,), (other,) = early.collectives, late.collectives
    assert (mine.operation, mine.bytes, mine.group_size) == ("all_reduce", MB_100, 2)
    assert (mine.count, mine.count_per_step, mine.matched) == (4, 1.0, 4)
    assert (mine.duration_ns, mine.transfer_ns, mine.skew_ns) == (8e6, 4e6, 4e6)
    assert (other.duration_ns, other.transfer_ns, other.skew_ns) == (4e6, 4e6, 0)
    assert (mine.algbw_gbps, mine.busbw_gbps) == (100.0, 100.0)  # 2 (n - 1) / n is 1 for two
    assert (other.algbw_gbps, other.busbw_gbps) == (100.0, 100.0)
    assert early.communication.bytes_per_step == MB_100
    assert early.communication.sizes is None


def test_four_ranks_have_a_bus_bandwidth_of_one_and_a_half_times_the_rate():
    four = Message(elements_in=25_000_000, ranks=(0, 1, 2, 3))
    arrivals = (2_000, 3_000, 3_500, 4_000)
    found = summaries(*(rank(i, (a, 5_000, four), world=4) for i, a in enumerate(arrivals)))
    for summary in found:
        (group,) = summary.collectives
        assert (group.algbw_gbps, group.busbw_gbps) == (100.0, 150.0)


def test_one_rank_alone_gives_a_lower_bound_and_no_bandwidth():
    (summary,) = summaries(rank(0, (3_000, 5_000, PAIR)))
    (group,) = summary.collectives
    assert (group.matched, group.transfer_ns, group.skew_ns) == (0, None, None)
    assert (group.algbw_gbps, group.busbw_gbps) == (None, None)
    assert (group.algbw_at_least_gbps, group.busbw_at_least_gbps) == (50.0, 50.0)


def test_two_of_four_ranks_are_not_enough_for_a_bandwidth():
    four = Message(elements_in=25_000_000, ranks=(0, 1, 2, 3))
    found = summaries(*(rank(i, (a, 5_000, four), world=4) for i, a in enumerate((3_000, 4_000))))
    for summary in found:
        (group,) = summary.collectives
        assert (group.matched, group.transfer_ns, group.algbw_gbps) == (4, 4e6, None)
        assert (group.algbw_at_least_gbps, group.busbw_at_least_gbps) == (100.0, 150.0)


def test_exposed_and_overlapped_are_told_apart_group_by_group():
    small = Message(elements_in=250, elements_out=250)
    (summary,) = summaries(
        rank(0, (1_500, 2_500, PAIR), (4_000, 4_200, small), compute=(1_000, 2_000))
    )
    large, little = summary.collectives
    assert (large.bytes, large.exposed_ns, large.overlapped_ns) == (MB_100, 4 * 5e5, 4 * 5e5)
    assert (little.bytes, little.exposed_ns, little.overlapped_ns) == (1_000, 4 * 2e5, 0)
    assert summary.communication.total_ns == large.total_ns + little.total_ns
    assert summary.communication.bytes_per_step == MB_100 + 1_000


spans = st.lists(
    st.tuples(st.integers(700, 4_000), st.integers(1, 2_000), st.sampled_from([250, 500, None])),
    max_size=6,
)


@pytest.mark.slow
@settings(deadline=None)
@given(collectives=spans, compute=st.tuples(st.integers(700, 3_000), st.integers(1, 3_000)))
def test_exposed_and_overlapped_add_up_and_no_group_exceeds_all_of_them(collectives, compute):
    wanted = [
        (begin, begin + length, n and Message(elements_in=n)) for begin, length, n in collectives
    ]
    (summary,) = summaries(rank(0, *wanted, compute=(compute[0], sum(compute))))
    groups = summary.collectives
    assert all(g.exposed_ns + g.overlapped_ns == g.total_ns <= g.duration_ns for g in groups)
    assert sum(g.count for g in groups) == len(wanted) * (STEPS - 1)
    total = summary.communication.total_ns if summary.communication else 0
    assert max((g.total_ns for g in groups), default=0) <= total
    assert total <= sum(g.total_ns for g in groups)


def test_a_message_without_size_leaves_bytes_and_bandwidth_open():
    first, _ = summaries(rank(0, (3_000, 5_000, None)), rank(1, (4_000, 5_000, None)))
    (group,) = first.collectives
    assert (group.operation, group.bytes, group.group_size) == ("all_reduce", None, None)
    assert (group.matched, group.transfer_ns) == (4, 4e6)
    assert group.algbw_gbps is group.algbw_at_least_gbps is group.busbw_at_least_gbps is None
    assert first.communication.bytes_per_step is None
    assert first.communication.sizes.startswith("4 of 4 collectives have no size")


def of(group, ranks=(0, 1)):
    return Message(elements_in=25_000_000, ranks=ranks, group=group)


def test_groups_that_interleave_differently_are_matched_each_for_itself():
    """Launched a, b on one rank and b, a on the other: by order alone 1 ms would be the least."""
    found = summaries(
        rank(0, (3_000, 5_000, of("a")), (5_000, 9_000, of("b"))),
        rank(1, (5_000, 9_000, of("b")), (4_000, 5_000, of("a"))),
    )
    for summary in found:
        (both,) = summary.collectives
        assert both.transfer_ns == 4 * (1e6 + 4e6)
    run = traceprobe.analyze(
        [
            memory.trace(s)
            for s in (
                rank(0, (3_000, 5_000, of("a")), (5_000, 9_000, of("b"))),
                rank(1, (5_000, 9_000, of("b")), (4_000, 5_000, of("a"))),
            )
        ]
    ).run
    assert (run.collectives_matched, run.transfer_ns, run.skew_ns) == (8, 5e6, 5e5)


def test_a_group_is_matched_among_its_own_ranks():
    """Two pairs; the second is slow, which says nothing of the first."""
    found = summaries(
        rank(0, (3_000, 5_000, of("a")), world=4),
        rank(1, (4_000, 5_000, of("a")), world=4),
        rank(2, (2_000, 9_000, of("b", (2, 3))), world=4),
        rank(3, (4_000, 9_000, of("b", (2, 3))), world=4),
    )
    each = [s.collectives[0].transfer_ns / 4 for s in found]
    assert each == [1e6, 1e6, 5e6, 5e6]
    assert [s.collectives[0].algbw_gbps for s in found] == [100.0, 100.0, 20.0, 20.0]


def test_groups_beyond_the_twentieth_are_counted():
    many = [(1_000 + 300 * i, 1_100 + 300 * i, Message(elements_in=100 + i)) for i in range(23)]
    (summary,) = summaries(rank(0, *many))
    assert (len(summary.collectives), summary.collectives_left_out) == (20, 3)
    assert summary.communication.bytes_per_step == sum(4 * (100 + i) for i in range(23))


@pytest.mark.parametrize(
    ("operation", "ranks", "factor"),
    [
        (Operation.ALL_REDUCE, 2, 1.0),
        (Operation.ALL_REDUCE, 8, 1.75),
        (Operation.ALL_GATHER, 8, 0.875),
        (Operation.REDUCE_SCATTER, 4, 0.75),
        (Operation.ALL_TO_ALL, 2, 0.5),
        (Operation.BROADCAST, 8, 1.0),
        (Operation.REDUCE, 8, 1.0),
        (Operation.COPY, 2, None),
        (Operation.OTHER, 8, None),
        (Operation.ALL_REDUCE, None, None),
        (Operation.ALL_REDUCE, 1, None),
    ],
)
def test_bus_factors_are_those_of_nccl_tests(operation, ranks, factor):
    assert bus_factor(operation, ranks) == factor


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ALL_REDUCE"),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*)", "BROADCAST"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "REDUCE_SCATTER"),
        ("ncclDevKernel_AllGather_RING_LL", "ALL_GATHER"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "REDUCE"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", "SEND_RECV"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "OTHER"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(...)", "ALL_REDUCE"),
        ("Memcpy PtoP (Device -> Device)", "COPY"),
        ("Memcpy Peer-to-Peer", "COPY"),
        ("allreduce", "ALL_REDUCE"),
        ("_allgather_base", "ALL_GATHER"),
        ("_reduce_scatter_base", "REDUCE_SCATTER"),
        ("all_to_allv", "ALL_TO_ALL"),
        ("gloo:all_reduce", "ALL_REDUCE"),
        ("_reduce_oop", "REDUCE"),
        ("scatter", "SCATTER"),
        ("gather", "GATHER"),
        ("send", "SEND_RECV"),
    ],
)
def test_an_operation_is_read_from_the_name(name, operation):
    assert collective_metadata.collective_operation(name).name == operation


@pytest.mark.parametrize(
    ("operation", "elements", "dtype", "expected"),
    [
        (Operation.ALL_REDUCE, (10, 10), "Float", 40),
        (Operation.ALL_GATHER, (10, 80), "BFloat16", 160),
        (Operation.REDUCE_SCATTER, (80, 10), "Half", 160),
        (Operation.ALL_TO_ALL, (80, 60), "Long", 640),
        (Operation.BROADCAST, (53, 53), "Long", 424),
        (Operation.ALL_REDUCE, (3, 3), "Float8_e4m3fn", 3),
        (Operation.ALL_REDUCE, (3, 3), "QInt4x", UNKNOWN),
        (Operation.ALL_REDUCE, (3, 3), None, UNKNOWN),
        (Operation.ALL_REDUCE, (UNKNOWN, 3), "Float", UNKNOWN),
    ],
)
def test_a_message_has_the_bytes_that_nccl_tests_counts(operation, elements, dtype, expected):
    assert collective_metadata.message_bytes(operation, *elements, dtype) == expected


def test_the_notes_of_the_profiler_reach_the_columns(tmp_path):
    gather = Message("_allgather_base", 1_000, 8_000, "BFloat16", tuple(range(8)), "3")
    script = Script()
    script.op("comm", 1_000, 2_000, (100, 200), message=gather)
    script.op("comm", 3_000, 4_000, (300, 400))
    script.op("kernel", 5_000, 6_000, (500, 600))
    trace = traceprobe.load(kineto.write(script.build(), tmp_path / "t.json"))
    columns = trace.gpu_ops.select("operation", "bytes", "group_size")
    assert columns.rows() == [
        (int(Operation.ALL_GATHER), 16_000, 8),
        (int(Operation.ALL_REDUCE), UNKNOWN, UNKNOWN),
        (UNKNOWN, UNKNOWN, UNKNOWN),
    ]
    assert [group == UNKNOWN for group in trace.gpu_ops["group"]] == [False, True, True]


def test_other_rows_may_use_the_keys_for_ends_of_their_own(tmp_path):
    path = kineto.write(
        Script().op("kernel", 1_000, 2_000, (100, 200)).build(), tmp_path / "t.json"
    )
    text = path.read_text().replace('"queued": 0', '"dtype": ["fp16"], "Group size": {"x": [8]}')
    assert "fp16" in text
    path.write_text(text)
    trace = traceprobe.load(path)
    assert len(trace.gpu_ops) == 1
    assert (trace.quality.events_lost, trace.quality.events_repaired) == (0, 0)


def test_a_group_has_one_number_in_the_files_of_all_its_ranks():
    # A number of this process alone, as Python's own hash gives, would be another one each time.
    assert collective_metadata.group_id("0", "[0, 1]") == 70587711733251530
    assert collective_metadata.group_id("1", "[0, 1]") != collective_metadata.group_id(
        "1", "[2, 3]"
    )


GPT2 = (50_304 + 512) * 768 + 12 * (12 * 768**2 + 13 * 768) + 2 * 768
"""Parameters of GPT-2 with a padded vocabulary and a context of 512."""
DDP2 = [f"kineto/h200_ddp2_gpt2_sock.rank{n}.json.gz" for n in (0, 1)]


def test_a_real_ddp_run_reduces_its_gradients_once_a_step(corpus):
    report = traceprobe.analyze([trace_of(corpus / name) for name in DDP2])
    for one in report.ranks:
        communication = one.summary.communication
        assert communication.bytes_per_step == 4 * GPT2
        assert communication.all_reduces_per_step == one.summary.collectives_per_step == 13.0
        assert {g.group_size for g in one.summary.collectives} == {2}
        total = sum(g.transfer_ns for g in one.summary.collectives)
        assert total / one.summary.iterations_used == pytest.approx(report.run.transfer_ns, abs=1)
        assert all(1 < g.busbw_gbps < 5 for g in one.summary.collectives)  # over sockets


def test_both_tools_count_the_same_collectives_of_a_real_run(corpus):
    kineto_report = traceprobe.analyze([trace_of(corpus / name) for name in DDP2])
    nsight_report = report_of(corpus / "nsys" / "h200_ddp2_gpt2_sock.sqlite.gz")
    for report in (kineto_report, nsight_report):
        found = [
            (s.collectives_per_step, s.communication.all_reduces_per_step)
            for s in (r.summary for r in report.ranks)
        ]
        assert found == [(13.0, 13.0)] * 2
    (group,) = nsight_report.ranks[0].summary.collectives
    assert (group.operation, group.bytes, group.matched) == ("all_reduce", None, group.count)
    assert "Nsight" in nsight_report.ranks[0].summary.communication.sizes


X, Y, H = 4 * (1 << 22), 4 * (1 << 23), 2 * (1 << 20)
"""Bytes of the tensors that the sample sends: two of float32, one of bfloat16."""
SENT = dict.fromkeys((("all_reduce", size) for size in (X, H, X + Y)), 1.0) | {
    ("all_gather", Y): 2.0,
    ("reduce_scatter", Y): 1.0,
    ("all_to_all", Y): 1.0,
    ("broadcast", X): 1.0,
    ("reduce", X): 1.0,
    ("send_recv", X): 1.0,
}
PARTS = {"all_gather", "reduce_scatter", "all_to_all"}


def test_every_collective_of_a_real_run_has_its_size(samples):
    report = report_of(*(samples / f"h200_collectives.rank{n}.json.gz" for n in (0, 1)))
    for one in (r.summary for r in report.ranks):
        found = {(g.operation, g.bytes): g.count_per_step for g in one.collectives}
        assert found == SENT
        assert {g.group_size for g in one.collectives} == {2}
        assert all(g.matched == g.count and g.busbw_gbps for g in one.collectives)
        assert all(100 < g.busbw_gbps < 450 for g in one.collectives if g.bytes > H)  # NVLink 4
        assert one.communication.sizes is None


def test_nccl_and_pytorch_note_the_same_sizes_of_a_real_run(samples):
    report = report_of(samples / "h200_collectives.sqlite.gz")
    for one in (r.summary for r in report.ranks):
        found = {(g.operation, g.bytes): g.count_per_step for g in one.collectives}
        # NCCL counts a rank's part of these, and nothing in the file says how many ranks there are.
        assert found == {(o, None if o in PARTS else b): n for (o, b), n in SENT.items()}
        assert one.communication.sizes.startswith("50 of 50 collectives: the file does not say")


def test_with_the_number_of_ranks_an_export_of_a_real_run_has_every_size(samples, tmp_path):
    copy = tmp_path / "run.sqlite"
    copy.write_bytes(gzip.decompress((samples / "h200_collectives.sqlite.gz").read_bytes()))
    nsys_tool.embed_sidecars(copy, {0: {"workload": {"ranks": 2}}})
    for one in (r.summary for r in traceprobe.analyze(traceprobe.load(copy)).ranks):
        assert {(g.operation, g.bytes): g.count_per_step for g in one.collectives} == SENT
        assert {g.group_size for g in one.collectives} == {2}
        assert one.communication.sizes is None


def test_an_export_without_payloads_says_how_to_get_the_sizes(samples):
    (first, _) = report_of(samples / "profile_wide_mlp.sqlite.gz").ranks
    assert "--include-blobs=true" in first.summary.communication.sizes
