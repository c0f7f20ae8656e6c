"""Findings: when each one fails, warns, passes or cannot tell, and what it says could be saved.

Steps last 1000 ms: a ms is a tenth of a percent.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

import traceprobe
from tests import records
from tests.builders import kineto
from tests.builders.loop import Loop
from tests.evidence import evidence, finding_of, outcome_of
from tests.records import MS, SLOWED_BY, STEPS, communication, copies, host, step
from traceprobe import findings


def unseen(rank, *classes):
    """The rank, of which these classes of the partition cannot be known."""
    parts = rank.summary.partition_ns | dict.fromkeys(classes)
    return replace(rank, summary=replace(rank.summary, partition_ns=parts))


def busy(parts, **more):
    """Busy times as of the parts, but for these; in ns over all steps."""
    return {name: (parts | more).get(name, 0) * MS * STEPS for name in records.BUSY}


GRADES = [(49, "pass"), (50, "warn"), (199, "warn"), (200, "fail")]


@pytest.mark.parametrize(("share", "status"), GRADES)
def test_exposed_communication_is_graded_by_its_share(share, status):
    rank = records.rank(step(communication=share), communication=communication(share))
    assert outcome_of("communication-exposed", rank) == (status, float(share))


def test_without_communication_there_is_none_to_expose():
    assert outcome_of("communication-exposed", records.rank(step())) == ("not-applicable", None)


def test_communication_says_how_much_of_it_is_hidden():
    mine = communication(100, total=400)
    rank = records.rank(step(communication=100), communication=mine, collectives_per_step=8.0)
    lines = finding_of("communication-exposed", rank).evidence
    assert lines[1].startswith("75.0 % of communication overlaps")
    assert "8 collectives per step" in lines[1]


def test_the_rank_with_most_of_it_is_named():
    ranks = [
        records.rank(step(communication=c), i, communication=communication(c))
        for i, c in enumerate((10, 300, 20))
    ]
    assert finding_of("communication-exposed", *ranks).evidence[-1] == "largest on rank 1: 30.0 %"


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"straggler_rank": 1, "straggler_cause": "other"}, "Look at the slowest rank first"),
        ({"straggler_rank": 1, "straggler_cause": "io"}, "Look at rank 1 first: its loader"),
        ({"straggler_rank": 1, "straggler_cause": "overhead"}, "Look at rank 1 first: its host"),
        ({"straggler_rank": 1, "straggler_cause": "compute"}, "Look at rank 1 first: it comp"),
        ({"straggler_rank": None, "late_ranks": [0, 6]}, "Look at these ranks first"),
        ({"straggler_rank": None}, "No single rank is to blame"),
    ],
)
def test_ranks_that_are_late_together_are_looked_at_first(changes, advice):
    together = records.run(skew_ns=300 * MS, **changes)
    rank = records.rank(step(communication=300), communication=communication(300))
    assert finding_of("communication-skew", rank, together=together).advice.startswith(advice)


@pytest.mark.parametrize(("skew", "status"), GRADES)
def test_waiting_for_other_ranks_is_graded_by_its_share(skew, status):
    together = records.run(skew_ns=skew * MS, straggler_rank=1, straggler_cause="io")
    rank = records.rank(step(communication=skew), communication=communication(skew))
    finding = finding_of("communication-skew", rank, together=together)
    assert (finding.status, finding.saving_ms_per_step) == (status, skew)
    assert finding.evidence[1] == "the other ranks wait for rank 1, which spends more time on I/O"


@pytest.mark.parametrize("count", [2, 8])
@pytest.mark.parametrize(
    ("name", "idle"),
    [
        ("unexplained-idle", ["idle_unexplained"]),
        ("host-overhead", ["idle_host"]),
        ("host-pauses", ["idle_host"]),
    ],
)
def test_idle_time_of_a_straggler_is_not_shared_among_the_ranks(name, idle, count):
    """The others have 100 ms of it, and wait 300 ms for the last rank, which has 400."""
    pauses = name == "host-pauses"

    def one(number, spent):
        parts = step(**dict.fromkeys(idle, spent), communication=400 - spent)
        waits = communication(400 - spent, skew=400 - spent)
        activity = host(pause_ns=spent * MS * STEPS if pauses else 0)
        return records.rank(parts, number, communication=waits, host=activity)

    ranks = [*(one(n, 100) for n in range(count - 1)), one(count - 1, 400)]
    cause = {"io": 0.0, "overhead": 1.0, "compute": 0.0, "other": 0.0}
    late = {"straggler_rank": count - 1, "straggler_cause": "overhead", "skew_causes": cause}
    skew = {"skew_ns": 300 * MS * (count - 1) // count}
    of_straggler = finding_of(name, *ranks, together=records.run(**late, **skew, world_size=count))
    assert (of_straggler.saving_ms_per_step, of_straggler.status) == (400, "fail")
    of_turns = finding_of(name, *ranks, together=records.run(**skew, skew_causes=cause))
    assert of_turns.saving_ms_per_step == pytest.approx(100 + 300 / count)


def test_ranks_that_take_turns_are_not_told_to_look_at_one():
    causes = {"io": 0.0, "overhead": 0.9, "compute": 0.0, "other": 0.1}
    together = records.run(skew_ns=300 * MS, skew_causes=causes)
    finding = finding_of("communication-skew", records.rank(step()), together=together)
    assert finding.evidence[1:] == [
        "no single rank is the straggler: ranks take turns being last",
        "why ranks are late: overhead 90 %, unexplained 10 %",
    ]
    assert finding.advice.startswith("No single rank is to blame")


def test_ranks_that_were_not_matched_leave_waiting_open():
    alone = records.run(transfer_ns=None, skew_ns=None, world_size=8)
    finding = finding_of("communication-skew", records.rank(step()), together=alone)
    assert (finding.status, finding.saving_ms_per_step) == ("inconclusive", None)
    assert "8 ranks" in finding.evidence[0]


def test_one_rank_waits_for_nobody():
    assert outcome_of("communication-skew", records.rank(step())) == ("not-applicable", None)


@pytest.mark.parametrize(("share", "status"), GRADES)
def test_waiting_for_data_is_graded_by_its_share(share, status):
    assert outcome_of("data-wait", records.rank(step(io=share))) == (status, float(share))


def test_an_inferred_wait_is_called_so():
    half = host(data_wait_inferred_ns=150 * MS * STEPS)
    rank = records.rank(step(io=300), host=half)
    assert finding_of("data-wait", rank).evidence[1].startswith("50 % of it is inferred")


def test_a_wait_is_inferred_between_steps_only_where_these_are_ranges():
    half = host(data_wait_inferred_ns=150 * MS * STEPS)
    ranges = records.rank(step(io=300), host=half)
    assert (
        "is between step ranges and in no CUDA call" in finding_of("data-wait", ranges).evidence[1]
    )
    whole = records.rank(step(io=300), host=half, marked=False)
    assert finding_of("data-wait", whole).evidence[1].endswith("the step thread is in no CUDA call")


def test_bytes_of_copies_have_digits_that_matter():
    few, many = (records.rank(step(), h2d=copies(30, megabytes=size)) for size in (3, 24_000))
    assert finding_of("h2d-exposed", few).evidence[1].startswith("3.15 MB per step")
    assert finding_of("h2d-exposed", many).evidence[1].startswith("25,166 MB per step")


def test_what_is_inferred_of_a_wait_is_left_out_where_it_rounds_to_nothing():
    little = host(data_wait_inferred_ns=1 * MS * STEPS)
    evidence_of = finding_of("data-wait", records.rank(step(io=300), host=little)).evidence
    assert not any("inferred" in line for line in evidence_of)


def test_a_trace_that_cannot_show_waits_for_data_passes_nothing():
    rank = unseen(records.rank(step()), "idle_data_wait")
    assert outcome_of("data-wait", rank) == ("inconclusive", None)


def test_one_rank_that_can_show_it_is_enough():
    blind = unseen(records.rank(step()), "idle_data_wait")
    assert outcome_of("data-wait", blind, records.rank(step(io=300), 1)) == ("warn", 150.0)


@pytest.mark.parametrize(("share", "status"), GRADES)
def test_exposed_copies_to_the_gpu_are_graded_by_their_share(share, status):
    rank = records.rank(step(h2d=share), h2d=copies(share))
    assert outcome_of("h2d-exposed", rank) == (status, float(share))


def test_without_copies_there_are_none_to_hide():
    assert outcome_of("h2d-exposed", records.rank(step())) == ("not-applicable", None)


def test_hiding_copies_cannot_make_a_step_shorter_than_the_computation():
    parts = {"forward": 300, "h2d": 600, "idle_host": 100}
    rank = records.rank(parts, h2d=copies(700, 600), busy_ns=busy(parts, h2d=700))
    assert outcome_of("h2d-exposed", rank) == ("fail", 600.0)


def test_hiding_copies_cannot_make_a_step_shorter_than_the_communication_beside_them():
    parts = {"forward": 300, "h2d": 500, "idle_host": 200}
    rank = records.rank(
        parts,
        h2d=copies(500),
        communication=communication(0, total=800),
        busy_ns=busy(parts, communication=800),
    )
    assert outcome_of("h2d-exposed", rank) == ("fail", 200.0)


def test_without_communication_a_step_is_shorter_by_all_of_it_at_most():
    parts = {"forward": 100, "communication": 850, "idle_host": 50}
    mine = communication(850, total=900)
    rank = records.rank(parts, communication=mine, busy_ns=busy(parts, communication=900))
    assert outcome_of("communication-exposed", rank) == ("fail", 900.0)


def test_waiting_for_other_ranks_is_not_what_communication_costs():
    mine = communication(300, skew=200)
    ranks = [records.rank(step(communication=300), i, communication=mine) for i in range(2)]
    together = records.run(transfer_ns=100 * MS, skew_ns=200 * MS)
    assert finding_of("communication-exposed", *ranks, together=together).saving_ms_per_step == 100


def test_phases_that_run_at_the_same_time_count_once_as_computation():
    parts = {"forward": 600, "backward": 100, "h2d": 300}
    rank = records.rank(parts, h2d=copies(300), busy_ns=busy(parts, backward=600))
    assert outcome_of("h2d-exposed", rank) == ("fail", 300.0)


@pytest.mark.parametrize(("pageable", "status"), [(2**20, "warn"), (2**20 - 1, "pass")])
def test_pageable_copies_matter_from_a_megabyte_on(pageable, status):
    rank = records.rank(step(h2d=10), h2d=copies(10, megabytes=4, pageable=pageable))
    assert outcome_of("h2d-pageable", rank) == (status, 2.5 if status == "warn" else None)


def test_what_is_copied_in_a_capture_without_steps_may_be_a_model():
    rank = records.rank(step(h2d=10), h2d=copies(10, megabytes=4, pageable=2**22), marked=False)
    assert outcome_of("h2d-pageable", rank) == ("not-applicable", None)


@pytest.mark.parametrize("h2d", [None, copies(10)])
def test_copies_of_unknown_size_are_not_judged(h2d):
    assert outcome_of("h2d-pageable", records.rank(step(), h2d=h2d)) == ("not-applicable", None)


@pytest.mark.parametrize(("share", "status"), GRADES)
@pytest.mark.parametrize("part", ["idle_host", "idle_latency"])
def test_late_launches_and_latency_are_graded_by_their_share(part, share, status):
    assert outcome_of("host-overhead", records.rank(step(**{part: share}))) == (
        status,
        float(share),
    )


def test_a_trace_without_host_rows_cannot_blame_the_host():
    rank = unseen(records.rank(step()), "idle_host", "idle_latency")
    assert outcome_of("host-overhead", rank) == ("inconclusive", None)


def test_of_the_host_only_what_remains_without_a_profiler_can_be_saved():
    rank = records.rank({"forward": 600, "idle_host": 400})
    assert outcome_of("host-overhead", rank, unprofiled_ms=800) == ("fail", 200.0)
    assert outcome_of("host-overhead", rank, unprofiled_ms=600) == ("pass", None)


@pytest.mark.parametrize(("share", "status"), [(49, "pass"), (50, "warn"), (300, "warn")])
@pytest.mark.parametrize("part", ["memory", "d2h"])
def test_operations_on_gpu_memory_are_worth_a_warning_from_5_percent(part, share, status):
    assert outcome_of("memory-traffic", records.rank(step(**{part: share}))) == (
        status,
        float(share),
    )


def test_without_operations_on_gpu_memory_there_is_no_traffic():
    rank = unseen(records.rank(step()), "memory", "d2h")
    assert outcome_of("memory-traffic", rank) == ("not-applicable", None)


@pytest.mark.parametrize(
    ("shares", "status"),
    [((0.98,), "pass"), ((0.979,), "warn"), ((1.0, 0.5), "warn"), ((None,), "not-applicable")],
)
def test_98_percent_of_kernel_time_should_have_a_phase_on_every_rank(shares, status):
    ranks = [records.rank(step(), i, attributed_share=s) for i, s in enumerate(shares)]
    assert outcome_of("phase-attribution", *ranks) == (status, None)


@pytest.mark.parametrize(("unprofiled", "status"), [(909, "warn"), (910, "pass"), (1_200, "pass")])
def test_a_profiler_that_costs_a_tenth_of_the_step_distorts(unprofiled, status):
    finding = finding_of("profiler-distortion", records.rank(step()), unprofiled_ms=unprofiled)
    assert finding.status == status
    assert f"(× {1_000 / unprofiled:.2f})" in finding.evidence[0]
    assert "--unprofiled-step-ms" not in finding.advice  # it is known


@pytest.mark.parametrize(
    ("shares", "profiled", "status"),
    [
        ({"overhead": 50}, SLOWED_BY, "warn"),
        ({"overhead": 49}, SLOWED_BY, "pass"),
        ({"overhead": 900}, ["shapes"], "pass"),
        ({"idle_profiler": 50}, (), "warn"),
        ({"idle_profiler": 49}, (), "pass"),
    ],
)
def test_marks_of_a_profiler_matter_where_overhead_does(shares, profiled, status):
    finding = finding_of("profiler-distortion", records.rank(step(**shares)), profiled=profiled)
    assert (finding.status, finding.saving_ms_per_step) == (status, None)
    assert finding.advice or status == "pass"


@pytest.mark.parametrize(
    ("profiled", "options"),
    [
        ({"stacks", "memory"}, ["with_stack", "profile_memory"]),
        ({"stacks"}, ["with_stack"]),
        ((), []),
    ],
)
def test_only_options_that_were_on_are_to_be_switched_off(profiled, options):
    marks = {"operators", *profiled}
    known = finding_of(
        "profiler-distortion", records.rank(step()), profiled=marks, unprofiled_ms=500
    )
    late = records.rank(step(overhead=100))
    unknown = finding_of("profiler-distortion", late, profiled=marks)
    for finding in (known, unknown):
        assert finding.status == "warn"
        named = [o for o in ("with_stack", "profile_memory") if o in finding.advice]
        assert named == options


def test_a_step_of_other_conditions_corrects_nothing():
    whole = evidence(records.rank(step()), unprofiled_ms=500)
    effect = replace(whole.quality.observer_effect, other_conditions=True)
    quality = replace(whole.quality, observer_effect=effect)
    found = findings.RULES["profiler-distortion"](replace(whole, quality=quality))
    assert "not corrected for it" in found.evidence[0]


SMALL = {"mean_kernel_us": 9.9, "launches_per_step": 501.0}


@pytest.mark.parametrize(
    ("overhead", "facts", "status"),
    [
        (50, SMALL, "warn"),
        (49, SMALL, "pass"),
        (50, SMALL | {"mean_kernel_us": 10.0}, "pass"),
        (50, SMALL | {"launches_per_step": 500.0, "kernels_per_step": 501.0}, "pass"),
        (50, SMALL | {"mean_kernel_us": None}, "not-applicable"),
    ],
)
def test_many_short_kernels_matter_where_the_host_is_slow(overhead, facts, status):
    rank = records.rank(step(overhead=overhead), host=host(**facts))
    assert outcome_of("small-kernels", rank) == (status, 50.0 if status == "warn" else None)


def synchronising(cost, parts, count=1.0):
    """A rank that was idle for longer after its calls than they cost."""
    ns = cost * MS * STEPS
    facts = host(syncs_per_step=count, idle_after_sync_ns=3 * ns, sync_cost_ns=ns)
    return records.rank(parts, host=facts)


@pytest.mark.parametrize(
    ("cost", "parts", "ms"),
    [
        (60, {"idle_sync": 60, "idle_host": 100}, 60),
        (150, {"idle_sync": 60, "idle_host": 100}, 150),
        (170, {"idle_sync": 60, "idle_host": 100}, 160),
        (0, {"idle_data_wait": 30, "idle_host": 100}, None),
    ],
    ids=["in it", "and after it", "never more than there is", "nothing"],
)
def test_a_synchronisation_costs_what_it_kept_the_host_from(cost, parts, ms):
    rank = synchronising(cost, parts | {"forward": 1_000 - sum(parts.values())})
    assert finding_of("synchronization", rank).saving_ms_per_step == ms


@pytest.mark.parametrize(("share", "status"), GRADES)
def test_synchronisations_are_graded_by_their_share(share, status):
    assert (
        finding_of("synchronization", synchronising(share, step(idle_sync=share))).status == status
    )


def test_a_rare_synchronisation_passes():
    assert outcome_of("synchronization", synchronising(300, step(idle_sync=300), 0.4)) == (
        "pass",
        None,
    )


def test_without_cuda_calls_synchronisations_are_unknown():
    rank = unseen(records.rank(step()), "idle_sync")
    assert outcome_of("synchronization", rank) == ("inconclusive", None)


def test_the_calls_that_block_are_named():
    calls = {"cudaStreamSynchronize": 2.0, "cudaMemcpyAsync": 1.0}
    rank = records.rank(step(), host=host(syncs_per_step=3.0, blocking_calls=calls))
    (first, _) = finding_of("synchronization", rank).evidence
    assert first == ("3 blocking calls per step: 2 cudaStreamSynchronize, 1 cudaMemcpyAsync")


def test_the_rank_with_most_blocking_calls_names_them():
    calls = [{"cudaStreamSynchronize": 1.0}, {"cudaEventSynchronize": 2.0}]
    ranks = [records.rank(step(), i, host=host(blocking_calls=c)) for i, c in enumerate(calls)]
    assert finding_of("synchronization", *ranks).evidence[0].endswith(": 2 cudaEventSynchronize")


def test_a_profiler_hides_how_long_calls_wait():
    """In the capture the host is late by itself; without the profiler it waits instead."""
    rank = synchronising(10, step(idle_sync=20, idle_host=180))
    assert outcome_of("synchronization", rank) == ("pass", 10.0)
    status, saving = outcome_of("synchronization", rank, unprofiled_ms=900)
    assert (status, saving) == ("warn", pytest.approx(100, abs=0.01))


def test_calls_that_nothing_waits_for_save_nothing_beside_a_slow_profiler():
    rank = synchronising(0, step(idle_host=180))
    finding = finding_of("synchronization", rank, unprofiled_ms=900)
    assert (finding.status, finding.saving_ms_per_step) == ("pass", None)
    assert finding.evidence[-1].startswith("0 ms per step")


@pytest.mark.parametrize(
    ("copies", "advice"),
    [
        ({"h2d_pinned": 2.0}, "Copy with `non_blocking=True`: the memory is pinned"),
        ({"h2d_pageable": 2.0}, "Pin the memory"),
        ({"d2h": 2.0, "h2d_pinned": 1.0}, "Keep values on the GPU"),
        (UNSET, "Keep values on the GPU"),
    ],
)
def test_the_advice_is_about_what_most_calls_wait_for(copies, advice):
    facts = host(syncs_per_step=3.0, awaited_copies=copies)
    assert finding_of("synchronization", records.rank(step(), host=facts)).advice.startswith(advice)


@pytest.mark.parametrize(
    ("ms", "advice"), [(1, "Keep values on the GPU"), (2, "Whole tensors are copied to the host")]
)
def test_tensors_that_are_copied_to_the_host_are_worked_on_there(ms, advice):
    facts = host(syncs_per_step=400.0, awaited_copies={"d2h": 399.0})
    rank = records.rank(step(d2h=ms, optimizer=100), host=facts)
    assert finding_of("synchronization", rank).advice.startswith(advice)


def test_a_call_that_waits_for_everything_is_left_out():
    facts = host(syncs_per_step=2.0, blocking_calls={"cudaDeviceSynchronize": 2.0})
    advice = finding_of("synchronization", records.rank(step(), host=facts)).advice
    assert advice.startswith("Leave out `torch.cuda.synchronize()`")


def test_what_is_waited_for_is_told():
    facts = host(syncs_per_step=3.0, awaited_copies={"d2h": 1.0, "h2d_pinned": 2.0})
    assert (
        "they wait once for a copy to the host, whose value the program reads, 2 times for a copy "
        "to the GPU from pinned memory, without `non_blocking=True`"
    ) in finding_of("synchronization", records.rank(step(), host=facts)).evidence


def loading(workers, wait=800, **options):
    """What the evidence says of workers, in steps of 1000 ms that wait so long for data."""
    facts = {"loader_workers": workers}
    rank = records.rank(step(io=wait))
    return finding_of("data-wait", rank, workload=facts, **options).evidence[-1]


@pytest.mark.parametrize(("workers", "needed"), [(1, 5), (2, 10), (3, 15), (0, 4)])
def test_as_many_workers_are_needed_as_load_while_the_rest_of_the_step_runs(workers, needed):
    said = loading(workers, capture={"hardware": {"cpu_count": 16}})
    assert said == (
        f"at least {needed} workers instead of {workers} would hide the loader, if {needed} of the "
        "machine's 16 cores are free for them"
    )


def test_of_the_wait_only_that_for_the_loader_counts():
    rank = records.rank(step(io=400, h2d=400), h2d=copies(400))
    said = finding_of("data-wait", rank, workload={"loader_workers": 1}).evidence[-1]
    assert said.startswith("at least 2 workers instead of 1")


def test_ranks_share_the_cores_of_their_machine():
    ranks = [records.rank(step(io=800), number) for number in range(2)]
    for cores, words in ((10, "if 10 of the machine's 10 cores"), (9, "more than the machine has")):
        capture = {"hardware": {"cpu_count": cores}}
        finding = finding_of("data-wait", *ranks, workload={"loader_workers": 1}, capture=capture)
        assert "at least 5 workers on each rank" in finding.evidence[-1]
        assert words in finding.evidence[-1]


def test_more_workers_than_cores_are_no_advice():
    assert "more than the machine has cores (4)" in loading(
        1, capture={"hardware": {"cpu_count": 4}}
    )
    assert "if the machine has a free core for each" in loading(1)


@pytest.mark.parametrize("workers", [None, True, -1, "2", 10**400])
def test_what_is_no_number_of_workers_predicts_nothing(workers):
    assert "workers" not in loading(workers)


@pytest.mark.parametrize(("wait", "count"), [(400, "1 worker"), (800, "4 workers")])
def test_a_loader_without_workers_is_told_by_its_range(wait, count):
    alone = host(loader_in_process=True)
    finding = finding_of("data-wait", records.rank(step(io=wait), host=alone))
    assert finding.evidence[-2].startswith("`num_workers=0`: each batch is loaded on the step")
    assert finding.evidence[-1].startswith(f"at least {count} instead of 0 would hide")
    assert finding.advice.startswith(
        f"Start with {count}: `num_workers=0` loads between the steps. "
    )
    told = finding_of(
        "data-wait", records.rank(step(io=wait), host=alone), workload={"loader_workers": 2}
    )
    assert "num_workers=0" not in told.advice


@pytest.mark.parametrize(("kind", "named"), [("SingleProcess", True), ("MultiProcessing", False)])
def test_the_range_of_a_loader_says_whether_it_has_workers(tmp_path, kind, named):
    loop = Loop(steps=8, forward_ns=4 * MS, data_wait_ns=6 * MS, wait="loader")
    path = kineto.write(loop.scenario(), tmp_path / "run.json")
    path.write_text(path.read_text().replace("_MultiProcessing", f"_{kind}"))
    report = traceprobe.analyze(traceprobe.load(path))
    (wait,) = (f for f in report.findings if f.id == "data-wait")
    assert wait.status == "fail"
    assert ("`num_workers=0` loads between the steps" in wait.advice) is named


def test_a_short_wait_needs_no_more_workers():
    assert "workers" not in loading(2, wait=49)


def test_a_loader_that_was_faster_in_the_capture_may_save_what_the_capture_did_not_show():
    rank = records.rank(step(io=300))
    assert outcome_of("data-wait", rank, unprofiled_ms=1_200) == ("fail", 500.0)
    nearly_all = records.rank(step(io=950))
    assert outcome_of("data-wait", nearly_all, unprofiled_ms=1_200) == ("fail", 1_150.0)
    half = copies(300, megabytes=4, pageable=2 * 2**20)
    rank = records.rank(step(h2d=300), h2d=half)
    assert outcome_of("h2d-exposed", rank, unprofiled_ms=1_200) == ("fail", 500.0)
    assert outcome_of("h2d-pageable", rank, unprofiled_ms=1_200) == ("warn", 250.0)


@pytest.mark.parametrize(
    ("pageable", "overlap", "words"),
    [
        (2, 0.0, "Then prefetch"),
        (1, 0.0, "Then prefetch"),
        (0, 0.0, "The memory is pinned, but"),
        (0, 60.0, "Much of the copying is hidden already"),
    ],
)
def test_what_to_do_about_copies_depends_on_what_they_are(pageable, overlap, words):
    mine = replace(copies(300, megabytes=2, pageable=pageable * 2**20), overlap_pct=overlap)
    assert words in finding_of("h2d-exposed", records.rank(step(h2d=300), h2d=mine)).advice


def left_out(number):
    rank = records.rank(step())
    iterations = [
        replace(i, used=k >= number, skip_reason=None if k >= number else "capture cut: 90 %")
        for k, i in enumerate(rank.iterations)
    ]
    return replace(rank, iterations=iterations)


@pytest.mark.parametrize(("counts", "status"), [((1,), "pass"), ((2,), "warn"), ((1, 1), "pass")])
def test_one_iteration_left_out_per_rank_is_normal(counts, status):
    finding = finding_of("unused-iterations", *map(left_out, counts))
    assert finding.status == status
    assert finding.evidence[1] == f"{sum(counts)} left out: capture cut"


def test_without_rows_of_the_gpu_no_synchronising_helps():
    rank = left_out(7)
    idle = dict.fromkeys(rank.summary.busy_ns, 0)
    missing = replace(rank, summary=replace(rank.summary, busy_ns=idle))
    assert outcome_of("unused-iterations", missing) == ("not-applicable", None)


def with_empty(*places):
    """The finding about eight iterations, of which some have no work."""
    rank = records.rank(step())
    used = replace(rank.iterations[0], used=True, skip_reason=None)
    empty = replace(used, used=False, skip_reason="no GPU work")
    iterations = [empty if k in places else used for k in range(8)]
    return finding_of("unused-iterations", replace(rank, iterations=iterations))


def test_what_the_end_of_the_last_step_opens_is_no_iteration():
    finding = with_empty(7)
    assert (finding.status, finding.advice) == ("pass", "")
    assert finding.evidence == ["7 of 7 iterations are used"]


def test_what_is_left_out_in_the_midst_is_no_matter_of_synchronising():
    finding = with_empty(2, 3)
    assert finding.status == "warn"
    assert finding.advice == "Name the ranges that are steps, if these are none (`--step`)."


def test_without_a_step_marker_no_iteration_is_left_out():
    rank = replace(records.rank(step(), marked=False), iterations=[])
    assert outcome_of("unused-iterations", rank) == ("not-applicable", None)


def test_the_whole_capture_has_no_saving_per_step():
    parts = {"idle_data_wait": 300, "idle_host": 300, "forward": 400}
    results = findings.find_all(evidence(records.rank(parts, marked=False)))
    assert {f.saving_ms_per_step for f in results} == {None}
    (wait,) = (f for f in results if f.id == "data-wait")
    assert "in the capture" in wait.evidence[0]


def test_means_are_over_ranks():
    ranks = [records.rank(step(io=100)), records.rank(step(io=300), 1)]
    assert finding_of("data-wait", *ranks).saving_ms_per_step == 200


def test_findings_are_listed_worst_first_then_by_saving_then_by_name():
    parts = {"idle_data_wait": 250, "idle_host": 300, "memory": 60, "h2d": 10, "forward": 380}
    rank = replace(records.rank(parts), iterations=left_out(1).iterations)
    results = findings.find_all(evidence(unseen(rank, "idle_sync")))
    assert [f.id for f in results[:5]] == [
        *["host-overhead", "data-wait", "memory-traffic"],
        *["allocator-stalls", "synchronization"],
    ]
    order = ["fail", "warn", "inconclusive", "pass", "not-applicable"]
    assert [f.status for f in results] == sorted((f.status for f in results), key=order.index)
    assert len(results) == len({f.id for f in results}) == len(findings.RULES)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", f.id) for f in results)


parts = st.fixed_dictionaries(
    {name: st.integers(0, 300) for name in ("h2d", "d2h", "communication", "memory")}
    | {name: st.integers(0, 300) for name in ("idle_data_wait", "idle_host", "idle_latency")}
    | {name: st.integers(0, 300) for name in ("backward", "graph", "unattributed")}
    | {"forward": st.integers(1, 300)}
)


@settings(max_examples=60, deadline=None)
@given(parts, st.integers(0, 2_000), st.integers(0, 300))
def test_a_saving_is_at_most_its_cost_and_leaves_the_other_resources_their_time(
    all_parts, more, hidden
):
    window = sum(all_parts.values())
    beside = {"h2d": all_parts["h2d"] + more, "communication": all_parts["communication"] + hidden}
    beside = {name: min(ms, window) for name, ms in beside.items()}
    rank = records.rank(
        all_parts,
        communication=communication(all_parts["communication"], total=beside["communication"]),
        h2d=copies(beside["h2d"], all_parts["h2d"]),
        busy_ns=busy(all_parts, **beside),
    )
    saving = finding_of("h2d-exposed", rank).saving_ms_per_step or 0
    assert 0 <= saving <= all_parts["h2d"]
    others = {name: ns for name, ns in rank.summary.busy_ns.items() if name != "h2d"}
    assert window - saving >= max(others.values()) / MS / STEPS
    saving = finding_of("communication-exposed", rank).saving_ms_per_step or 0
    assert 0 <= saving <= beside["communication"]
