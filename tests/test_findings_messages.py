"""Findings on the messages of a run: their number against DDP's prediction, and their size."""

from __future__ import annotations

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from tests import records
from tests.evidence import evidence, finding_of, outcome_of
from tests.records import communication, step
from tests.report_factory import make_collectives
from traceprobe.findings.host_overhead import host_overhead
from traceprobe.findings.message_advice import in_small_shards, remedy
from traceprobe.records.operator_calls import OperatorPace
from traceprobe.records.repeated_collectives import RepeatedCollectives
from traceprobe.records.summary import CollectiveGroup
from traceprobe.replay.scenario import Changes


def talking(all_reduces, collectives=None, size=None, share=100):
    """A rank with as many all-reduces and collectives per step, and their bytes."""
    mine = replace(communication(share), all_reduces_per_step=all_reduces, bytes_per_step=size)
    count = all_reduces if collectives is None else collectives
    parts = step(communication=share, optimizer=10)
    return records.rank(parts, communication=mine, collectives_per_step=count)


EACH_PASS = RepeatedCollectives(passes=4, reduced_ns=75, gathered_ns=0, all_ns=100)
PREDICTED = {"predicted_all_reduces_per_step": 8}


@pytest.mark.parametrize(
    ("measured", "status", "says"),
    [
        (8.0, "pass", ""),
        (7.5, "warn", "Fewer"),
        (9.0, "warn", "More"),
        (16.0, "warn", "2 times as many"),
    ],
)
def test_all_reduces_are_counted_against_the_prediction(measured, status, says):
    finding = finding_of("ddp-buckets", talking(measured), workload=PREDICTED)
    assert (finding.status, finding.saving_ms_per_step) == (status, None)
    assert finding.advice.startswith(says)
    assert bool(finding.advice) == bool(says)
    assert finding.evidence == [
        f"{measured:g} all-reduces per step, 8 predicted from the parameters"
    ]


def test_broadcasts_of_buffers_are_no_buckets():
    finding = finding_of("ddp-buckets", talking(8.0, 10.0), workload=PREDICTED)
    assert finding.status == "pass"
    assert finding.evidence[1].startswith("in addition, 2 other collectives per step")


def test_collectives_without_a_name_are_counted_all():
    finding = finding_of("ddp-buckets", talking(None, 9.0), workload=PREDICTED)
    assert finding.status == "warn"
    assert finding.evidence == ["9 collectives per step, 8 predicted from the parameters"]


def test_one_rank_that_differs_is_enough():
    finding = finding_of("ddp-buckets", talking(8.0), talking(9.0), workload=PREDICTED)
    assert finding.status == "warn"
    assert finding.evidence[0].startswith("8 to 9, by rank,")


@pytest.mark.parametrize("workload", [None, {}, {"predicted_all_reduces_per_step": "8"}])
def test_without_a_prediction_there_is_nothing_to_compare(workload):
    assert outcome_of("ddp-buckets", talking(8.0), workload=workload) == ("not-applicable", None)


def test_a_prediction_without_communication_does_not_apply():
    assert (
        outcome_of("ddp-buckets", records.rank(step()), workload=PREDICTED)[0] == "not-applicable"
    )


def test_a_prediction_without_steps_stays_open():
    rank = talking(None, None)
    rank = replace(rank, summary=replace(rank.summary, collectives_per_step=None))
    assert outcome_of("ddp-buckets", rank, workload=PREDICTED) == ("inconclusive", None)


@pytest.mark.parametrize(
    ("size", "share", "small"),
    [(7_999_999, 100, True), (8_000_000, 100, False), (800, 49, False), (None, 100, False)],
)
def test_larger_messages_are_advised_where_small_ones_are_exposed(size, share, small):
    finding = finding_of("communication-exposed", talking(8.0, size=size, share=share))
    assert finding.advice.startswith("Send fewer") == small
    assert any("messages are small" in line for line in finding.evidence) == small


@pytest.mark.parametrize(
    ("parts", "total", "words"),
    [
        ({"backward": 300, "communication": 100}, 400, "longer than the backward pass"),
        ({"backward": 300, "communication": 100}, 100, "no communication is hidden"),
        ({"backward": 300, "communication": 100}, 200, "starts earlier in the backward pass"),
        (
            {"forward": 300, "optimizer": 9, "communication": 100},
            400,
            "starts earlier in the backward pass",
        ),
        ({"forward": 300, "communication": 100}, 400, "so no gradients are sent"),
    ],
)
def test_buckets_are_advised_by_what_they_can_hide(parts, total, words):
    rank = records.rank(parts, communication=communication(100, total=total))
    busy = {**rank.summary.busy_ns, "communication": total * records.MS * records.STEPS}
    rank = replace(rank, summary=replace(rank.summary, busy_ns=busy))
    assert words in finding_of("communication-exposed", rank).advice


@pytest.mark.parametrize(
    ("forward", "backward", "of_layers"),
    [(4, 4, True), (4, 12, True), (4, 13, False), (3, 3, False), (0, 8, False)],
    ids=["half", "a quarter", "fewer", "a loss and what else", "gradients"],
)
def test_sums_of_layers_are_not_hidden_by_buckets(forward, backward, of_layers):
    rank = records.rank({"forward": 300, "backward": 300, "communication": 100})
    sums = make_collectives(None, forward + backward, records.STEPS)
    sums = replace(sums, forward=forward * records.STEPS or UNSET)
    rank = replace(rank, summary=replace(rank.summary, collectives=[sums]))
    found = remedy(evidence(rank), 100.0, small=False, overlap_pct=0.0)
    assert ("tensor parallelism" in found.first) is of_layers
    assert (found.changes is None) is of_layers


def test_parameters_are_gathered_in_a_forward_pass_and_nothing_is_reduced_there():
    """As of FSDP; sequence parallelism reduces and scatters what its layers add up."""
    rank = records.rank({"forward": 300, "backward": 300, "communication": 100})
    each = [
        replace(make_collectives(10**8, 8, records.STEPS, name), forward=4 * records.STEPS)
        for name in ("all_gather", "reduce_scatter")
    ]
    for scattered, of_layers in ((each[1], True), (replace(each[1], forward=UNSET), False)):
        summary = replace(rank.summary, collectives=[each[0], scattered])
        seen = evidence(replace(rank, summary=summary))
        found = remedy(seen, 100.0, small=False, overlap_pct=0.0)
        assert ("tensor parallelism" in found.first) is of_layers
        assert ("sharded parameters" in found.first) is not of_layers


@pytest.mark.parametrize(
    ("operator", "count", "size", "says"),
    [
        ("fsdp::all_gather_copy_in", 181, 6_100_000, "gathered 181 times per step, 6.10 MB on"),
        ("fsdp::all_gather_copy_in", 181, 25_000_000, ""),
        ("fsdp::all_gather_copy_in", 99, 6_100_000, ""),
        ("fsdp::all_gather_copy_in", 181, None, ""),
        ("c10d::_allgather_base_", 181, 6_100_000, ""),
    ],
)
def test_many_small_groups_of_parameters_are_told(operator, count, size, says):
    rank = records.rank({"forward": 300, "idle_host": 300})
    gathered = make_collectives(size, count, records.STEPS, "all_gather")
    rank = replace(rank, summary=replace(rank.summary, collectives=[gathered]))
    called = {operator: OperatorPace(float(count), 20.0, 1.0, 0.1)}
    seen = replace(evidence(rank), called=lambda: called)
    told = in_small_shards(seen)
    assert says in told
    assert bool(told) == bool(says)
    advice = host_overhead(seen).advice
    assert advice.startswith("Shard larger modules") == bool(says)


@pytest.mark.parametrize(
    ("sums", "passes", "of_layers"), [(4, UNSET, False), (8, 8, False), (40, 8, True)]
)
def test_sums_of_losses_beside_gradients_of_other_sizes_are_not_of_layers(sums, passes, of_layers):
    """Of each pass there may be one or two."""
    rank = records.rank({"forward": 300, "backward": 300, "communication": 100})
    small = replace(make_collectives(4, sums, records.STEPS), forward=sums * records.STEPS)
    large = make_collectives(25_000_000, 20, records.STEPS)
    summary = replace(rank.summary, collectives=[small, large], micro_batches=passes)
    found = remedy(evidence(replace(rank, summary=summary)), 100.0, small=False, overlap_pct=0.0)
    assert ("tensor parallelism" in found.first) is of_layers


@pytest.mark.parametrize(
    ("passes", "repeated", "too_long"),
    [(UNSET, UNSET, False), (2, UNSET, False), (4, UNSET, True), (4, EACH_PASS, False)],
    ids=["one pass", "still longer", "of four passes", "each communicates"],
)
def test_only_the_pass_that_communicates_hides_it(passes, repeated, too_long):
    rank = records.rank({"backward": 300, "communication": 100})
    summary = replace(rank.summary, micro_batches=passes, repeated_collectives=repeated)
    found = remedy(evidence(replace(rank, summary=summary)), 100.0, small=False, overlap_pct=0.0)
    assert ("longer than the backward pass" in found.then) is too_long


@pytest.mark.parametrize(
    ("gb", "cost", "doubt"),
    # Over NVLink kernels lose 0.25 to 0.75 of what is hidden, over a slow wire a tenth at most.
    [(20, 0.5, 0.5), (None, 0.5, 0.5), (1, 0.05, 0.05 / 0.95)],
)
def test_kernels_that_hide_communication_get_slower(gb, cost, doubt):
    parts = {"backward": 300, "communication": 100}
    sent = replace(communication(100), bytes_per_step=gb and gb * 10**9)
    rank = records.rank(parts, communication=sent)
    changes = remedy(evidence(rank), 100.0, small=False, overlap_pct=0.0).changes
    assert changes.overlapped == {"communication"}
    assert changes.speedup == {"backward": pytest.approx(300 / (300 + cost * 100), abs=1e-4)}
    assert changes.margin == pytest.approx(doubt)


def test_shards_that_are_gathered_once_more_lose_more_of_what_is_hidden():
    sent = replace(communication(100), bytes_per_step=20 * 10**9)
    rank = records.rank({"forward": 100, "backward": 200, "communication": 100}, communication=sent)
    gathered = [make_collectives(None, 4, records.STEPS, "all_gather")]
    rank = replace(rank, summary=replace(rank.summary, collectives=gathered))
    changes = remedy(evidence(rank), 100.0, small=False, overlap_pct=0.0).changes
    factor = pytest.approx(300 / (300 + 0.85 * 100), abs=1e-4)
    assert changes.speedup == {"forward": factor, "backward": factor}
    assert changes.margin == pytest.approx(0.4 / 0.15)


@pytest.mark.parametrize(
    ("operations", "words", "absent"),
    [
        ({"all_to_all": 6, "all_reduce": 2}, "between pairs of ranks", "bucket_cap_mb"),
        ({"send_recv": 3, "all_to_all": 3, "all_reduce": 5}, "between pairs of", "no_sync"),
        ({"all_gather": 3, "reduce_scatter": 3, "all_reduce": 5}, "forward_prefetch", "no_sync"),
        ({"all_to_all": 2, "all_reduce": 6}, "bucket_cap_mb", "between pairs of ranks"),
    ],
)
def test_advice_is_about_the_messages_that_are_exposed_most(operations, words, absent):
    groups = [
        make_collectives(None, count, records.STEPS, operation)
        for operation, count in operations.items()
    ]
    rank = talking(None, sum(operations.values()))
    rank = replace(rank, summary=replace(rank.summary, collectives=groups))
    advice = finding_of("communication-exposed", rank).advice
    assert words in advice
    assert absent not in advice


@pytest.mark.parametrize(
    ("gathers", "hidden", "says"),
    [
        (1, 0, "one unit"),
        (2, 0, "one unit"),
        (24, 0, "forward_prefetch"),
        (2, 40, "forward_prefetch"),
    ],
)
def test_a_model_that_is_gathered_at_once_leaves_nothing_to_hide_it(gathers, hidden, says):
    groups = [
        make_collectives(None, count, records.STEPS, operation)
        for operation, count in {"all_gather": gathers, "reduce_scatter": 1}.items()
    ]
    rank = talking(None, gathers + 1.0)
    sent = replace(communication(100, total=100 + hidden), bytes_per_step=10**9)
    rank = replace(rank, summary=replace(rank.summary, collectives=groups, communication=sent))
    assert says in finding_of("communication-exposed", rank).advice


@pytest.mark.parametrize(("hidden", "says"), [(0, "as DDP does"), (100, "raise `bucket_cap_mb`")])
def test_small_messages_that_nothing_hides_are_sent_too_late_as_well(hidden, says):
    sent = communication(100, total=100 + hidden)
    sent = replace(sent, bytes_per_step=80_000, all_reduces_per_step=8.0)
    rank = records.rank(
        step(communication=100, optimizer=10), communication=sent, collectives_per_step=8.0
    )
    advice = finding_of("communication-exposed", rank).advice
    assert advice.startswith("Send fewer")
    assert says in advice
    assert ("as DDP does" in advice) == (hidden == 0)


@pytest.mark.parametrize(
    ("count", "us", "size", "small"),
    [(404, 8, None, True), (404, 60, None, False), (8, 8, None, False), (404, 8, 4e6, True)],
)
def test_many_messages_that_take_no_time_are_small(count, us, size, small):
    group = make_collectives(None, count, records.STEPS)
    group = replace(group, duration_ns=1_000 * us * group.count)
    rank = talking(float(count), size=None if size is None else int(size))
    rank = replace(rank, summary=replace(rank.summary, collectives=[group]))
    finding = finding_of("communication-exposed", rank)
    assert ("Send fewer and larger messages" in finding.advice) is small
    assert any("messages are small" in said for said in finding.evidence) is small


@pytest.mark.parametrize(
    ("broadcasts", "reductions", "says"),
    [(300, 3, "flatten"), (29, 3, "broadcast_buffers"), (40, 60, "bucket_cap_mb")],
    ids=["a tensor each", "of buffers", "and more reductions"],
)
def test_many_broadcasts_are_joined(broadcasts, reductions, says):
    groups = [
        make_collectives(1_000, broadcasts, records.STEPS, "broadcast"),
        make_collectives(1_000, reductions, records.STEPS),
    ]
    count = float(broadcasts + reductions)
    rank = talking(float(reductions), count, size=int(1_000 * count))
    rank = replace(rank, summary=replace(rank.summary, collectives=groups))
    assert says in finding_of("communication-exposed", rank).advice


@pytest.mark.parametrize(
    ("reductions", "changes"),
    [(1, {"speedup": {"communication": 4.0}}), (0, {"removed": {"communication"}}), (3, None)],
)
def test_broadcasts_that_are_most_of_it_come_first(reductions, changes):
    counts = {"broadcast": 3, "all_reduce": reductions}
    groups = [
        make_collectives(10**8, count, records.STEPS, operation)
        for operation, count in counts.items()
        if count
    ]
    rank = talking(float(reductions), 3.0 + reductions, size=10**8 * (3 + reductions))
    rank = replace(rank, summary=replace(rank.summary, collectives=groups))
    advice = finding_of("communication-exposed", rank).advice
    assert "broadcast_buffers=False" in advice
    assert advice.startswith("Most of it is broadcasts") == (changes is not None)
    if changes is not None:
        found = remedy(evidence(rank), 100.0, small=False, overlap_pct=0.0).changes
        assert found == Changes(**changes)


def test_buffers_that_are_sent_in_every_step_are_named():
    group = CollectiveGroup(
        operation="broadcast",
        bytes=1_000,
        group_size=2,
        count=20,
        count_per_step=2.0,
        total_ns=1,
        exposed_ns=1,
        overlapped_ns=0,
        duration_ns=1,
        matched=0,
        transfer_ns=None,
        skew_ns=None,
        algbw_gbps=None,
        busbw_gbps=None,
        algbw_at_least_gbps=None,
        busbw_at_least_gbps=None,
    )
    rank = talking(8.0, 10.0)
    rank = replace(rank, summary=replace(rank.summary, collectives=[group]))
    finding = finding_of("communication-exposed", rank)
    assert "2 broadcasts per step, as DDP makes for buffers" in finding.evidence
    assert "broadcast_buffers=False" in finding.advice
    assert "broadcast_buffers" not in finding_of("communication-exposed", talking(8.0)).advice
    hidden = talking(8.0, 10.0, share=49)
    hidden = replace(hidden, summary=replace(hidden.summary, collectives=[group]))
    assert "broadcast_buffers" not in finding_of("communication-exposed", hidden).advice
