"""What findings say of the launch queue, and of short kernels in a row."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from tests import records
from tests.analyses import report_of
from tests.conftest import ROOT
from tests.every_record import make_launches, make_sequence
from tests.evidence import evidence, finding_of
from tests.records import MS, STEPS, step
from traceprobe.findings.graph_breaks import graph_breaks
from traceprobe.findings.small_kernels import small_kernels
from traceprobe.model.taxonomy import KERNEL_CLASSES
from traceprobe.records.host_stalls import CompiledRegions
from traceprobe.records.rank import DeviceInfo


def rank_with(**changes):
    """A rank that idles for its host half of the time."""
    rank = records.rank(step(overhead=500))
    host = replace(rank.summary.host, mean_kernel_us=5.0, launches_per_step=900.0)
    return replace(rank, summary=replace(rank.summary, host=host, **changes))


def test_the_queue_is_evidence_that_the_host_is_late():
    window = records.rank(step()).summary.window_ns
    queue = replace(make_launches().queue, empty_ns=window // 2, starved_ns=window // 4)
    lines = finding_of(
        "host-overhead", rank_with(launches=replace(make_launches(), queue=queue))
    ).evidence
    assert (
        "for 25.0 % of the time the GPU was idle and nothing was launched ahead; half the time at "
        "most 0 launches were outstanding, and never more than 12"
    ) in lines


def test_without_a_queue_nothing_is_said_of_it():
    assert not any(
        "launched ahead" in line for line in finding_of("host-overhead", rank_with()).evidence
    )


def launching(**changes):
    """A rank whose host launches 900 times a step, and does so in some way."""
    rank = rank_with()
    host = replace(rank.summary.host, **changes)
    return replace(rank, summary=replace(rank.summary, host=host))


def advised(**changes):
    return finding_of("host-overhead", launching(**changes))


def test_what_a_program_does_already_is_no_advice():
    regions = CompiledRegions(
        regions_per_step=1.0, breaks_per_step=0.0, cost_ns=0, eager_ns=0, lines={}
    )
    assert "`torch.compile`" in advised().advice
    assert advised(compiled_regions=regions).advice.startswith("The model is compiled")
    assert (
        "`torch.compile`" in advised(compiled_regions=replace(regions, breaks_per_step=1.0)).advice
    )
    launched = {"forward": 600.0, "backward": 900.0}
    assert "`torch.compile`" in advised(phase_kernels=launched).advice
    replayed = {"forward": 6_000.0, "backward": 9_000.0}
    graphs = advised(compiled_regions=regions, phase_kernels=replayed)
    assert graphs.advice.startswith("Most kernels are launched by CUDA graphs already")


def test_a_step_without_training_is_not_told_of_loss_and_optimizer():
    facts = replace(records.HOST, phase_kernels={"forward": 90_000.0}, launches_per_step=900.0)
    rank = records.rank(step(overhead=300), host=facts)
    said = finding_of("host-overhead", rank).advice
    assert said.startswith("Most kernels are launched by CUDA graphs already")
    assert "optimizer" not in said


def test_a_compiled_program_on_a_cpu_is_not_to_be_compiled():
    pieces = CompiledRegions(
        regions_per_step=1.0, breaks_per_step=0.0, cost_ns=0, eager_ns=0, lines={}
    )
    for regions, told in ((msgspec.UNSET, True), (pieces, False)):
        host = replace(records.HOST, compiled_regions=regions)
        rank = records.rank(step(overhead=300), host=host, coverage=None)
        rank = replace(rank, device=DeviceInfo(index=0, name=None, kind="cpu"))
        assert ("`torch.compile`" in finding_of("host-overhead", rank).advice) is told


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_pauses_of_a_run_on_a_cpu_keep_no_gpu_waiting(kind):
    host = replace(records.HOST, pause_ns=300 * MS * STEPS)
    rank = records.rank(step(overhead=300), host=host)
    rank = replace(rank, device=DeviceInfo(index=0, name=None, kind=kind))
    if kind == "cpu":
        rank = replace(rank, summary=replace(rank.summary, coverage=None))
    finding = finding_of("host-pauses", rank)
    assert finding.status == "fail"
    assert any("GPU" in text for text in (finding.title, finding.advice)) is (kind == "gpu")


def test_a_program_of_which_little_is_compiled_is_to_be_compiled():
    regions = CompiledRegions(
        regions_per_step=60.0, breaks_per_step=0.0, cost_ns=0, eager_ns=0, lines={}
    )
    rank = launching(compiled_regions=regions)
    kernels = dict.fromkeys(KERNEL_CLASSES, 0) | {"fused": MS * STEPS, "other": 2 * MS * STEPS}
    little = replace(rank, summary=replace(rank.summary, kernel_ns=kernels))
    assert "`torch.compile`" in finding_of("host-overhead", little).advice


def test_without_graph_breaks_the_host_launches_fewer_kernels():
    broken = CompiledRegions(
        regions_per_step=4.0,
        breaks_per_step=2.0,
        cost_ns=0,
        eager_ns=100 * MS * STEPS,
        eager_kernels=450.0,
        lines={},
    )
    _, change = graph_breaks.examine(evidence(launching(compiled_regions=broken)))
    # Half of 900 launches, of whose time a third is left once they are compiled.
    assert change.speedup["host"] == pytest.approx(1.5)


def test_replays_that_are_recorded_as_a_whole_are_cuda_graphs_too():
    report = report_of(ROOT / "sample_traces" / "h200_gpt2_graph_level.sqlite.gz")
    (found,) = (f for f in report.findings if f.id == "host-overhead")
    assert found.advice.startswith("Most kernels are launched by CUDA graphs already")
    assert found.predicted is msgspec.UNSET


def test_the_first_series_says_what_fusing_it_saves_at_most_and_where_to_begin():
    series = replace(make_sequence(), count=24 * STEPS, bound_ns=30 * MS * STEPS)
    finding = finding_of("small-kernels", rank_with(sequences=[series]))
    (line,) = (line for line in finding.evidence if "in a row" in line)
    assert line == (
        "24 times per step the same 2 short kernels in a row (`my_company::norm`): 24 launches "
        "fewer if each were one kernel, which saves at most 30.0 ms of waiting; what they would "
        "read and write less is not in the trace"
    )
    assert finding.advice.endswith("Begin with what runs in `secret_model.py(57): forward`.")


def test_short_kernels_of_cuda_graphs_are_not_to_be_replayed_by_graphs():
    launched, change = small_kernels.examine(evidence(launching()))
    assert "CUDA graph" in launched.advice
    assert change is not None
    replays = launching(phase_kernels={"forward": 6_000.0})
    replayed, change = small_kernels.examine(evidence(replays))
    assert "CUDA graph" not in replayed.advice
    assert change is None


def test_the_bound_of_a_series_is_never_above_the_idle_time_of_its_class():
    series = replace(make_sequence(), count=24 * STEPS, bound_ns=900 * MS * STEPS)
    (line,) = (
        line
        for line in finding_of("small-kernels", rank_with(sequences=[series])).evidence
        if "in a row" in line
    )
    assert "saves at most 500 ms" in line
