"""Parts of the page: step times, overlap, kernels by phase, time stamps, the next command."""

from __future__ import annotations

import msgspec
import pytest

from tests.rendering import html_of
from tests.report_factory import PARTITIONS, make_empty_report, make_rank, make_report, make_run
from traceprobe.records.prediction import PredictedSaving
from traceprobe.records.rank import Iteration
from traceprobe.records.report import Message, Term
from traceprobe.records.run import Run
from traceprobe.records.summary import KernelShare, StepTimes
from traceprobe.render import next_step
from traceprobe.render.kernel_names import short_name
from traceprobe.render.pages import report_gaps as gaps
from traceprobe.render.pages import report_kernels as kernels
from traceprobe.render.pages import report_steps as steps
from traceprobe.render.pages.report_advice import advice_section
from traceprobe.render.pages.report_communication import overlaps
from traceprobe.render.pages.report_verdict import doubt

change = msgspec.structs.replace


def rank_of(times_ms, unused=()):
    """A rank whose iterations take these times."""
    rank, start, iterations = make_rank(PARTITIONS["io"]), 0, []
    for index, ms in enumerate(times_ms):
        end = start + round(ms * 1e6)
        iterations.append(
            Iteration(
                index=index,
                label=str(index),
                start_ns=start,
                end_ns=end,
                coverage=1.0,
                used=index not in unused,
                skip_reason="too short" if index in unused else None,
                collectives=0,
                launches=1,
                partition_ns=None,
                busy_ns=None,
            )
        )
        start = end
    middle = sorted(times_ms)[len(times_ms) // 2]
    times = StepTimes(mean=middle, p10=min(times_ms), p50=middle, p90=max(times_ms))
    return change(rank, iterations=iterations, summary=change(rank.summary, step_ms=times))


def test_every_used_step_is_in_one_bin():
    times = [100.0, 101.0, 99.5, 100.2, 180.0, 1.0]
    found = steps.histogram(rank_of(times, unused=[5]))
    assert sum(found.counts) == 5
    assert found.edges[0] == 99.5
    assert found.edges[-1] == pytest.approx(180)
    assert len(found.edges) == len(found.counts) + 1
    assert found.counts[-1] == 1
    assert found.counts[0] == 4


def test_equal_steps_are_one_bar_and_few_steps_none():
    assert steps.histogram(rank_of([7.0] * 9)).counts == [9]
    assert steps.histogram(rank_of([7.0, 8.0, 9.0, 10.0])) is None


def test_many_steps_stay_few_bins():
    found = steps.histogram(rank_of([100 + k % 97 for k in range(5000)]))
    assert len(found.counts) == steps.MAX_BINS
    assert sum(found.counts) == 5000


def test_slow_steps_are_told_with_their_part_of_the_time():
    rank = rank_of([10.0] * 8 + [40.0, 40.0])
    words = steps.histogram_summary(steps.histogram(rank), rank)
    assert "2 steps are more than 1.5 times as long as that and take 50 % of the time" in words
    assert "more than" not in steps.histogram_summary(
        steps.histogram(rank_of([10.0] * 8)), rank_of([10.0] * 8)
    )


def test_what_hides_and_what_is_exposed_makes_the_whole_transfer():
    report = make_run(2)
    found = overlaps(report.ranks)
    communication = report.ranks[0].summary.communication
    bars = next(o.bars for o in found if o.caption == "Communication")
    bar = next(bar for bar in bars if bar.label == "Rank 0")
    parts = {piece.word: piece.value for piece in bar.pieces}
    assert sum(parts.values()) == communication.total_ns
    assert parts["hidden by kernels"] == communication.overlapped_ns
    waiting = parts.get("exposed, waiting for other ranks", 0)
    assert waiting == (communication.skew_exposed_ns or 0)
    assert 'id="overlap"' in html_of(report)


def test_nothing_to_hide_has_no_picture():
    assert overlaps(make_empty_report().ranks) == []


def kernel(name, phase, ms, cores=None):
    return KernelShare(
        name=name,
        phase=phase,
        count=6,
        total_ns=ms * 1_000_000,
        mean_ns=1e6,
        phase_share=0.5,
        tensor_cores=cores,
    )


def rank_with(*found):
    rank = make_rank(PARTITIONS["io"])
    return change(rank, summary=change(rank.summary, top_kernels=list(found)))


def test_kernels_come_longest_first_those_of_one_name_and_phase_together():
    rank = rank_with(
        kernel("a", "backward", 90, cores=True),
        kernel("void n::c<int>(int)", "backward", 30),
        kernel("void n::c<float>(float)", "backward", 66, cores=False),
        kernel("b", "forward", 80, cores=False),
    )
    table = kernels.kernels_table(rank)
    assert [row[:2] for row in table.rows] == [
        ["c", "backward"],
        ["a", "backward"],
        ["b", "forward"],
    ]
    assert [row[-1] for row in table.rows] == ["some", "yes", "no"]
    assert table.full[0] == "void n::c<int>(int)\nvoid n::c<float>(float)"
    assert table.rows[0][2] == "8.00"  # 96 ms in 12 steps


def test_the_title_has_the_share_of_the_first_kernels():
    rank = rank_with(
        kernel("a", "backward", 40), kernel("b", "forward", 30), kernel("c", "optimizer", 20)
    )
    # Each is half of its phase.
    title = kernels.kernels_section(make_report(), [rank]).title
    assert title == "Kernels: 3 take 50 % of the kernel time"
    assert kernels.kernels_section(make_report(), [rank_with()]) is None


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            "void at::native::vectorized_layer_norm_kernel<float>(int)",
            "vectorized_layer_norm_kernel",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::BUnaryFunctor<float, "
            "float, float, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 2ul>"
            " >(int, float)",
            "vectorized_elementwise_kernel: MulFunctor",
        ),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(ano…",
            "multi_tensor_apply_kernel",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_align1>(T::P)",
            "cutlass_80_simt_sgemm_align1",
        ),
        ("sm90_xmma_gemm_f32_tn_n_tilesize128x64x32_execute_kernel", "sm90_xmma_gemm_f32_tn_n"),
        ("ncclDevKernel_Broadcast_RING_LL(ncclArgs<4096ul>)", "ncclDevKernel_Broadcast_RING_LL"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
        ("aten::relu", "aten::relu"),
        ("## Call CompiledFxGraph f4lgtxvqppsprrrmkojrpcakd2ys ##", "compiled graph f4lgtxvq"),
        ("## Call CompiledFxGraph", "## Call CompiledFxGraph"),
        ("<<<>>>", "<<<>>>"),
        ("", ""),
    ],
)
def test_a_short_name_says_what_a_kernel_is(name, short):
    assert short_name(name) == short


def test_gaps_of_one_cause_and_place_are_one_row_with_their_total():
    report = make_report()
    rank = report.ranks[0]
    like = rank.gaps[0]

    def gap(start, length, **changed):
        return change(like, start_ns=start, end_ns=start + length, **changed)

    found = [
        gap(0, 5_000_000, before="void a<int>(int)"),
        gap(20_000_000, 7_000_000, before="void a<float>(float)"),
        gap(40_000_000, 9_000_000, cause="idle_sync"),
    ]
    report = change(report, ranks=[change(rank, gaps=found)])
    groups = gaps.gap_groups(report)
    assert [(len(group.gaps), group.total_ns) for group in groups] == [(2, 12e6), (1, 9e6)]
    table = gaps.gaps_table(report, groups)
    assert [row[1:4] for row in table.rows] == [
        ["12.0 ms", "2", "7.00 ms"],
        ["9.00 ms", "1", "9.00 ms"],
    ]
    assert table.show == ["0:20000000-27000000", "0:40000000-49000000"]
    assert "void a<float>(float)" in table.full[0]
    assert gaps.in_file(report.inputs[0], 20_000_000) in table.full[0]
    title = gaps.gaps_section(report).title
    assert title.startswith("Idle gaps: 21.0 ms in the 3 longest, 57.1 %")
    assert gaps.gaps_section(change(report, ranks=[change(rank, gaps=[])])) is None


def test_time_stamps_are_those_of_the_file():
    source = make_report().inputs[0]
    chrome = change(source, format="kineto", origin_ns="1700000000123456789", base_ns="1700000000")
    assert gaps.in_file(chrome, 1_000) == "1699999998423457.789 µs"
    nsys = change(source, format="nsys", origin_ns="5000", base_ns="0")
    assert gaps.in_file(nsys, 7) == "5007 ns"


def test_the_next_command_fits_the_report():
    report = make_report()
    command, _ = next_step.next_command(report, ["/data/my run.json.gz"])
    k = report.ranks[0].picture.windows[0].iteration
    assert (
        command == f"traceprobe slice '/data/my run.json.gz' --steps {k}:{k + 2} -o step{k}.json.gz"
    )
    rank = report.ranks[0]
    stepless = change(rank, summary=change(rank.summary, iterations_used=0))
    command, _ = next_step.next_command(change(report, ranks=[stepless]))
    assert command == f"traceprobe inspect {report.inputs[0].name}"
    assert next_step.next_command(change(report, inputs=[], ranks=[])) is None
    out = change(rank.iterations[0], used=False, skip_reason="long: 301 ms, the others 9 ms")
    iterations = [out, *rank.iterations[1:]]
    long = change(report, ranks=[change(rank, iterations=iterations)])
    assert next_step.next_command(long) == next_step.next_command(report)  # the step is known
    unknown = change(long, quality=change(report.quality, observer_effect=None))
    command, why = next_step.next_command(unknown)
    assert command.endswith("--unprofiled-step-ms MS")
    assert why.endswith("whether the long one recurs")
    undrawn = change(rank, picture=change(rank.picture, windows=[]))
    assert next_step.next_command(change(report, ranks=[undrawn])) is None


def test_the_next_command_leaves_enough_of_a_trace_without_marks():
    report = make_report()
    rank = report.ranks[0]
    marked = change(rank, step_marker=change(rank.step_marker, kind="kernels"))
    command = next_step.slice_command(change(report, ranks=[marked]))
    first, end = map(int, command.split("--steps ")[1].split()[0].split(":"))
    k = rank.picture.windows[0].iteration
    assert end - first == 6
    assert 0 <= first <= k < end <= len(rank.iterations)
    for whole, count in ((marked, 7), (rank, 3)):
        short = change(report, ranks=[change(whole, iterations=whole.iterations[:count])])
        assert next_step.slice_command(short) is None


def test_a_file_that_was_cut_off_is_not_cut_further():
    report = make_report()
    cut = Message(code="truncated-file", message="The file ends in the middle of its events.")
    quality = change(report.quality, warnings=[cut])
    assert next_step.next_command(change(report, quality=quality)) is None


def test_findings_that_ask_for_nothing_are_folded_by_their_state():
    text = html_of(make_report())
    for state in ("could-not-be-run", "passed"):
        assert f'<details class="folded" id="findings-{state}">' in text
    assert "findings-not-applicable" not in text
    failed = next(f for f in make_report().findings if f.status == "fail")
    ruled = change(make_report(), findings=[change(failed, rule="A minus B.")])
    assert "How it was computed" in html_of(ruled)


def terms(**values):
    return [Term(name=name.replace("_", "-"), value=v, why=name) for name, v in values.items()]


@pytest.mark.parametrize(
    ("confidence", "listed", "words"),
    [
        (0.95, {"base": 0.5, "margin": 0.45}, "High confidence (95 %)."),
        (0.6, {"base": 0.5, "margin": 0.4, "odd": -0.3}, "Medium confidence (60 %): odd."),
        (
            0.3,
            {"base": 0.5, "observer_effect": -0.2},
            "Low confidence (30 %): time the same loop without a profiler and pass that as "
            "`--unprofiled-step-ms`.",
        ),
    ],
)
def test_how_sure_a_verdict_is_stands_in_words(confidence, listed, words):
    verdict = change(make_report().verdict, confidence=confidence, confidence_terms=terms(**listed))
    assert doubt(verdict) == words


def test_an_inconclusive_verdict_is_not_sure_of_anything():
    assert doubt(make_report("inconclusive").verdict) == ""


def test_a_bound_without_advice_is_said_to_have_none():
    report = make_report("io")
    others = [f for f in report.findings if f.id != "data-wait"]
    first, second = (
        advice_section(change(report, findings=found)).blocks[0]
        for found in (report.findings, others)
    )
    assert first.first[0] == "data-wait"
    assert second.sentences == [
        "No check names what makes I/O take so long; the timeline shows where it is."
    ]


def predicted(ms):
    return PredictedSaving(ms=ms, low_ms=0.0, high_ms=ms)


def test_what_is_missing_is_said_once():
    report = make_report("inconclusive")
    said = "no steps; mark them"
    verdict = change(report.verdict, missing=[said], headline=f"No verdict: {said}.")
    page = html_of(change(report, verdict=verdict))
    assert "What is missing" not in page
    more = change(verdict, missing=[*verdict.missing, "no GPU rows"])
    assert "What is missing too" in html_of(change(report, verdict=more))


def test_a_bound_with_advice_that_is_not_the_first_is_not_said_to_have_none():
    report = make_report("overhead")
    (fix, *_) = (f for f in report.findings if f.status == "fail" and f.saving_ms_per_step)
    loader = change(fix, id="data-wait", saving_of=["idle_data_wait"], predicted=predicted(9.0))
    launches = change(fix, id="host-overhead", saving_of=["idle_host"], predicted=predicted(1.0))
    verdict = change(report.verdict, shares={**report.verdict.shares, "io": 0.1})
    (found,) = advice_section(change(report, findings=[loader, launches], verdict=verdict)).blocks
    assert found.first == ["data-wait", "host-overhead"]


@pytest.mark.parametrize(("kind", "device"), [("gpu", "GPU"), ("cpu", "CPU")])
def test_a_device_that_computes_all_the_time_is_called_what_it_is(kind, device):
    report = make_report("compute")
    ranks = [change(r, device=change(r.device, kind=kind)) for r in report.ranks]
    (said,) = advice_section(change(report, ranks=ranks, findings=[])).blocks[0].sentences
    assert said.startswith(f"The {device} computes nearly all the time")
    assert said.endswith(f"or a faster {device}.")


@pytest.mark.parametrize(("cause", "said"), [("compute", False), ("io", True)])
def test_a_straggler_that_computes_more_is_why_the_step_computes(cause, said):
    report = make_report("compute")
    (fix, *_) = (f for f in report.findings if f.saving_ms_per_step)
    skew = change(fix, id="communication-skew", status="fail", saving_of=["communication"])
    run = Run(
        world_size=2,
        transfer_ns=1,
        skew_ns=1_000_000,
        straggler_rank=0,
        straggler_cause=cause,
        collectives_matched=1,
        skew_causes={"io": 0.0, "overhead": 0.0, "compute": 0.0, "other": 0.0, cause: 1.0},
    )
    verdict = change(report.verdict, skew=0.3)
    blocks = advice_section(change(report, findings=[skew], run=run, verdict=verdict)).blocks
    assert any("computes nearly all the time" in str(block) for block in blocks) is said


def test_iterations_that_do_more_are_a_reason_for_any_bound():
    report = make_report("overhead")
    (fix, *_) = (f for f in report.findings if f.status == "fail" and f.saving_ms_per_step)
    long = change(fix, id="long-iterations", saving_of=msgspec.UNSET)
    blocks = advice_section(change(report, findings=[long])).blocks
    assert not any("No check names" in str(block) for block in blocks)
