"""Who owns each nanosecond: the owners of a class are that class, and each is the right one."""

from __future__ import annotations

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traceprobe
from tests.analyses import REFUSED, SAMPLES, report_of
from tests.builders import kineto, nsight
from tests.builders.loop import EVERYTHING, LOADER, training_loop
from tests.builders.scenario import AUTOGRAD, Script
from tests.conftest import trace_files
from traceprobe.ingest.kineto.frames import own_frame, short_names
from traceprobe.model.taxonomy import BUSY, LEVELS, PARTITION
from traceprobe.pipeline import build_tree
from traceprobe.records.owners import BY, owners
from traceprobe.records.packed import Table
from traceprobe.records.tree import NAMELESS

PATH = ("range", "module", "line", "operator", "kernel", "call")
OTHER = "kernel B"
OTHER_THREAD = 77


def report_from(script, folder, writer=kineto, suffix="json", **options):
    path = writer.write(script.build(), folder / f"trace.{suffix}", **options)
    return traceprobe.analyze(traceprobe.load(path))


def owned(report, rank=None):
    """Path without the kernel's signature, and class, to ns."""
    tree = report.tree(rank).filter(pl.col("ns") > 0)
    keys = tree.select("class", *PATH).rows()
    return {
        (row[0], *(text for text in row[1:] if text is not None)): ns
        for row, ns in zip(keys, tree["ns"].to_list(), strict=True)
    }


def by_class(rank):
    """What the tree has of each class, and the partition."""
    summary = rank.summary
    tree = rank.tree.frame(summary.window_ns, summary.steps)
    sums = dict(tree.group_by("class").agg(pl.col("ns").sum()).rows())
    return {c: sums.get(c, 0) for c in PARTITION}, {
        c: summary.partition_ns[c] or 0 for c in PARTITION
    }


@pytest.mark.parametrize("file", SAMPLES, ids=lambda file: file.name)
def test_the_owners_of_a_class_add_up_to_it(file):
    for rank in report_of(file).ranks:
        found, expected = by_class(rank)
        assert found == expected


def test_the_owners_of_a_class_add_up_to_it_in_public_traces(corpus_row):
    try:
        report = report_of(*trace_files(corpus_row))
    except REFUSED:
        pytest.skip("there is nothing to analyse in it")
    for rank in report.ranks:
        found, expected = by_class(rank)
        assert found == expected


STEP = st.tuples(
    st.integers(0, 300),  # idle of the host
    st.integers(1, 60),  # how long the call takes
    st.integers(0, 200),  # until the operation begins
    st.integers(1, 500),  # how long it runs
    st.sampled_from(["kernel", "comm", "h2d", "d2h", "memset"]),
    st.sampled_from([7, 8, 20]),
    st.sampled_from([None, "aten::mul", "nn.Module: Net_0", "range", "sync"]),
)


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(STEP, min_size=1, max_size=25))
def test_whatever_runs_at_once_has_one_owner(tmp_path_factory, steps):
    script, now = Script(), 1_000
    for idle, length, delay, duration, kind, stream, around in steps:
        now += idle
        begin, end = now, now + length
        if around == "sync":
            script.call("cudaStreamSynchronize", begin, end + 7)
            begin, end = begin + 8 + length, end + 8 + length
        elif around == "range":
            script.range("part", begin - 1, end + 1)
        elif around is not None:
            script.operator(around, begin - 1, end + 1)
        script.op(kind, end + delay, end + delay + duration, (begin, end), stream=stream)
        now = end + 2
    report = report_from(script, tmp_path_factory.mktemp("run"))
    found, expected = by_class(report.ranks[0])
    assert found == expected
    tree = report.tree()
    counted = tree.filter((pl.col("level") == "class") & pl.col("class").is_in(BUSY))
    if report.ranks[0].step_marker is None:  # equal kernels may look like a loop
        assert counted["count"].sum() == report.quality.gpu_ops


def test_a_report_that_leaves_an_outlier_out_has_the_owners_of_the_rest(tmp_path):
    script = Script()
    for k in range(12):
        at = k * 10_000 + (k > 5) * 400_000
        script.range(f"step {k}", at, at + 10_000 + (k == 5) * 400_000)
        script.op("kernel", at + 500, at + 9_500, (at + 100, at + 200), name="gemm")
        if k == 5:
            script.op("kernel", at + 400_500, at + 409_500, (at + 400_100, at + 400_200))
    (rank,) = report_from(script, tmp_path).ranks
    assert not rank.iterations[5].used
    found, expected = by_class(rank)
    assert found == expected


def network():
    """A module in a module, its forward operators, and the backward one on autograd's thread."""
    script = Script()
    script.operator("nn.Module: Net_0", 1_000, 9_000)
    script.operator("nn.Module: Linear_0", 2_000, 5_000)
    script.operator("aten::linear", 2_100, 4_900, sequence=6, forward_thread=0)
    script.operator("aten::addmm", 2_200, 4_800, sequence=7, forward_thread=0)
    script.op("kernel", 3_000, 4_000, (2_300, 2_400), name="gemm")
    backward = {"thread": AUTOGRAD, "sequence": 7, "forward_thread": 1}
    script.operator("evaluate AddmmBackward0", 10_000, 12_000, **backward)
    script.operator("AddmmBackward0", 10_100, 11_900, **backward)
    script.op("kernel", 11_000, 13_000, (10_500, 10_600), name="gemm_t", thread=AUTOGRAD)
    return script


def test_a_backward_kernel_belongs_to_the_modules_of_its_forward_operator(tmp_path):
    found = owned(report_from(network(), tmp_path))
    modules, engine = "Net_0 / Linear_0", "evaluate AddmmBackward0 / AddmmBackward0"
    assert found.pop(("backward", modules, engine, "gemm_t")) == 2_000
    work = {path[1:]: ns for path, ns in found.items() if path[0] in BUSY}
    assert work == {(modules, "aten::linear / aten::addmm", "gemm"): 1_000}


def test_idle_time_belongs_to_what_ran_in_it_else_to_what_ended_it(tmp_path):
    found = owned(report_from(network(), tmp_path))
    modules, engine = "Net_0 / Linear_0", "evaluate AddmmBackward0"
    idle = {path: ns for path, ns in found.items() if path[0] not in BUSY}
    assert idle == {
        # Until 10,000 the autograd thread does nothing, and until 9,000 the modules go on.
        ("idle_host", modules, "aten::linear / aten::addmm"): 800,
        ("idle_host", modules, "aten::linear"): 100,
        ("idle_host", modules): 100,
        ("idle_host", "Net_0"): 4_000,
        ("idle_host", modules, f"{engine} / AddmmBackward0", "gemm_t"): 1_000,
        ("idle_host", modules, engine): 100,
        ("idle_host", modules, f"{engine} / AddmmBackward0"): 400,
        ("idle_latency", modules, f"{engine} / AddmmBackward0", "gemm_t"): 500,
    }


def program():
    """The network as a program: what it calls is seen as frames, those of libraries too."""
    script = network()
    script.operator("train.py(3): <module>", 0, 14_000)
    script.operator("torch/nn/modules/module.py(1735): _call_impl", 1_000, 9_000)
    script.operator("model.py(21): forward", 2_050, 4_950)
    script.operator("train.py(40): log", 9_050, 9_900)
    return script


def test_a_line_is_the_innermost_one_of_the_program_above_the_operators(tmp_path):
    found = owned(report_from(program(), tmp_path))
    work = {path[1:]: ns for path, ns in found.items() if path[0] in BUSY}
    forward = ("Net_0 / Linear_0", "model.py(21): forward")
    assert work == {
        (*forward, "aten::linear / aten::addmm", "gemm"): 1_000,
        (*forward, "evaluate AddmmBackward0 / AddmmBackward0", "gemm_t"): 2_000,
    }


def test_idle_time_before_the_backward_pass_belongs_to_the_line_that_runs_then(tmp_path):
    found = owned(report_from(program(), tmp_path))
    idle = {path[1:]: ns for path, ns in found.items() if path[0] == "idle_host"}
    assert idle[("train.py(40): log",)] == 850
    assert idle[("train.py(3): <module>",)] == 150  # until autograd begins
    assert idle[("Net_0", "train.py(3): <module>")] == 4_000
    assert idle[("Net_0 / Linear_0", "train.py(3): <module>")] == 50
    assert idle[("Net_0 / Linear_0", "model.py(21): forward")] == 50


def test_a_wait_belongs_to_the_line_that_waits(tmp_path):
    script = Script()
    for k in range(4):
        at = k * 10_000
        script.range(f"step {k}", at, at + 10_000)
        script.range("data_loading", at, at + 3_000)
        script.operator("data.py(9): __getitem__", at + 500, at + 2_500)
        script.op("kernel", at + 3_200, at + 6_000, (at + 3_000, at + 3_100), name="gemm")
        script.operator("train.py(57): train", at + 3_300, at + 9_000)
        script.call("cudaStreamSynchronize", at + 3_400, at + 6_100)
        script.op("kernel", at + 9_500, at + 10_000, (at + 9_300, at + 9_400), name="other")
    tree = report_from(script, tmp_path).tree()
    lines = dict(
        tree.filter(pl.col("line").is_not_null())
        .group_by("class", "line")
        .agg(pl.col("ns").sum() / 3)
        .select(pl.concat_str("class", pl.lit(" "), "line"), "ns")
        .rows()
    )
    assert lines["idle_data_wait data.py(9): __getitem__"] == 2_000
    assert lines["idle_sync train.py(57): train"] == 100
    assert lines["idle_host train.py(57): train"] == 2_900


def test_a_wait_whose_call_no_tree_has_room_for_is_told_by_the_range_around_it(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(build_tree, "MOST_NODES", 11)
    script = Script()
    for k in range(4):
        at = k * 10_000_000
        script.range(f"step {k}", at, at + 10_000_000)
        script.range("timing", at + 3_000_000, at + 9_000_000)
        script.operator("aten::linear", at + 100_000, at + 1_000_000)
        launch = (at + 200_000, at + 300_000)
        script.op("kernel", at + 400_000, at + 4_000_000, launch, name="gemm")
        script.call("cudaDeviceSynchronize", at + 3_400_000, at + 4_001_000)
    findings = {finding.id: finding for finding in report_from(script, tmp_path).findings}
    assert "1 at timing" in findings["synchronization"].evidence


@pytest.mark.parametrize(
    ("name", "is_own"),
    [
        ("train.py(57): main", True),
        ("/home/me/project/train.py(57): main", True),
        ("zeta/nn/attention.py(3): forward", True),
        ("torch/nn/modules/module.py(1735): _call_impl", False),
        ("threading.py(975): run", False),
        ("/opt/venv/lib/python3.11/site-packages/odd/x.py(1): f", False),
        ("/usr/lib/python3.12/json/decoder.py(1): decode", False),
        ("<frozen importlib._bootstrap>(1): _find", False),
        ("<built-in function sleep>", False),
        ("nn.Module: Net_0", False),
        ("C:\\work\\train.py(5): main", True),
        ("(5): main", False),
    ],
)
def test_frames_of_the_program_are_told_from_those_of_libraries(name, is_own):
    assert own_frame(name) is is_own


def test_the_folder_of_a_program_is_not_in_its_lines():
    frames = ["/home/me/p/train.py(1): a", "/home/me/p/net/layer.py(2): b", "data.py(3): c"]
    assert short_names(frames) == {
        "/home/me/p/train.py(1): a": "train.py(1): a",
        "/home/me/p/net/layer.py(2): b": "net/layer.py(2): b",
    }
    assert short_names(["/home/me/p/train.py(1): a"]) == {
        "/home/me/p/train.py(1): a": "train.py(1): a"
    }
    assert short_names(["C:\\me\\x\\a.py(1): a", "/home/b.py(1): a"]) == {
        "C:\\me\\x\\a.py(1): a": "C:/me/x/a.py(1): a",
        "/home/b.py(1): a": "/home/b.py(1): a",
    }


def test_the_forward_operator_is_the_last_one_before_with_its_number(tmp_path):
    script = network()
    script.operator("nn.Module: Other_0", 20_000, 30_000)
    script.operator("aten::addmm", 20_100, 20_200, sequence=7, forward_thread=0)
    script.op("kernel", 21_000, 22_000, (20_120, 20_150), name=OTHER)
    found = owned(report_from(script, tmp_path))
    assert {path[1] for path in found if path[0] == "backward"} == {"Net_0 / Linear_0"}


def test_modules_that_are_called_in_the_backward_pass_keep_what_they_launch(tmp_path):
    """As where a checkpoint computes a layer again."""
    script = network()
    script.operator("nn.Module: Again_0", 10_200, 11_800, thread=AUTOGRAD)
    found = owned(report_from(script, tmp_path))
    (path,) = (path for path in found if path[-1] == "gemm_t" and path[0] == "backward")
    # The engine's operator is in the modules of its forward one, and the call is below that.
    assert path[1] == "Net_0 / Linear_0 / Again_0"


def test_of_kernels_at_once_each_owns_what_it_adds(tmp_path):
    script = Script()
    script.op("kernel", 1_000, 3_000, (500, 600), name="first")
    script.op("kernel", 2_000, 4_000, (600, 700), name=OTHER, stream=8)
    script.op("kernel", 2_500, 2_600, (700, 800), name="hidden", stream=9)
    script.op("comm", 3_500, 5_000, (800, 900), name="ncclAllReduce", stream=20)
    report = report_from(script, tmp_path)
    found = {path[-1]: ns for path, ns in owned(report).items()}
    assert found == {"first": 2_000, OTHER: 1_000, "ncclAllReduce": 1_000}
    hidden = report.tree().filter(name="hidden").row(0, named=True)
    assert (hidden["ns"], hidden["count"]) == (0, 1)


def test_a_wait_belongs_to_its_call(tmp_path):
    script = Script()
    script.op("kernel", 1_000, 3_000, (500, 600))
    script.operator("aten::item", 1_100, 6_000)
    script.call("cudaStreamSynchronize", 1_200, 5_000)
    script.op("kernel", 8_000, 9_000, (7_000, 7_100), name=OTHER)
    report = report_from(script, tmp_path)
    path = ("idle_sync", "aten::item", "cudaStreamSynchronize")
    assert owned(report)[path] == 2_000
    assert report.tree().filter(level="call")["count"].to_list() == [1]


def test_waiting_for_data_belongs_to_the_loader(tmp_path):
    scenario, expected = training_loop(5, base=EVERYTHING, wait="loader")
    report = traceprobe.analyze(traceprobe.load(kineto.write(scenario, tmp_path / "t.json")))
    steps = report.ranks[0].summary.steps
    wait = expected.partition_ns["idle_data_wait"]
    assert owned(report)["idle_data_wait", LOADER] == steps * wait


def test_what_nothing_is_known_of_says_so(tmp_path):
    script = Script()
    script.op("kernel", 1_000, 2_000)
    script.op("kernel", 5_000, 6_000)
    tree = report_from(script, tmp_path).tree().filter(pl.col("class") == "idle_unexplained")
    assert tree.filter(pl.col("ns") > 0)["name"].to_list() == [NAMELESS["unknown"]]


def test_ranges_that_count_the_loop_are_no_owners(tmp_path):
    scenario, _ = training_loop(5, base=EVERYTHING)
    report = traceprobe.analyze(traceprobe.load(kineto.write(scenario, tmp_path / "t.json")))
    ranges = set(report.tree().drop_nulls("range")["range"])
    assert {"h2d", "forward", "optimizer"} <= ranges
    assert not any("step" in name for name in ranges)


def test_ranges_with_the_number_of_their_step_are_no_owners(tmp_path):
    script = Script()
    for step in range(3, 8):
        begin = step * 10_000
        script.range(f"step {step}", begin, begin + 9_000)
        script.range(f"prepare {step}", begin + 100, begin + 3_000)
        script.op("kernel", begin + 500, begin + 2_900, (begin + 200, begin + 300))
        for layer in range(3, 5):
            at = begin + 2_000 * layer
            script.range(f"layer {layer}", at - 2_900, at - 1_000)
            script.op("kernel", at - 2_000, at - 1_100, (at - 2_500, at - 2_400))
    tree = report_from(script, tmp_path).tree()
    assert set(tree.drop_nulls("range")["range"]) == {"layer 3", "layer 4"}


def test_operators_of_autograds_nvtx_have_no_numbers(tmp_path):
    script = Script()
    for begin in (1_000, 3_000):
        script.operator("Optimizer.step#SGD.step", begin - 10, begin + 950)
        script.operator("flash::forward", begin - 5, begin + 940, sequence=begin)
        script.operator("aten::mul", begin, begin + 900, sequence=begin)
        script.op("kernel", begin + 500, begin + 1_000, (begin + 100, begin + 200))
    report = report_from(script, tmp_path, nsight, "sqlite", emit_nvtx=True)
    paths = report.tree().filter(level="kernel").select("range", "operator").unique().rows()
    assert paths == [("Optimizer.step#SGD.step", "flash::forward / aten::mul")]


def unmodular():
    """Two parts by ranges of the user, each with an operator and its backward one."""
    script = Script()
    script.range("forward", 900, 9_000).range("encoder", 1_000, 4_000)
    # Its node of the backward pass, 7, is made by an operator inside of this one.
    script.operator("aten::linear", 2_000, 3_000, sequence=6, forward_thread=0)
    script.op("kernel", 3_000, 4_000, (2_300, 2_400), name="gemm")
    script.range("head", 5_000, 8_000)
    script.operator("aten::mul", 6_000, 7_000, sequence=8, forward_thread=0)
    script.op("kernel", 7_000, 8_000, (6_300, 6_400), name="times")
    engine = "autograd::engine::evaluate_function: "
    for node, number, begin, name in (
        ("Mul", 8, 10_000, "times_b"),
        ("Addmm", 7, 12_000, "gemm_t"),
    ):
        text = f"{engine}{node}Backward0"
        numbered = {"thread": AUTOGRAD, "sequence": number, "forward_thread": 1}
        script.operator(text, begin, begin + 1_000, **numbered)
        launch = (begin + 500, begin + 600)
        script.op("kernel", begin + 700, begin + 1_700, launch, name=name, thread=AUTOGRAD)
    return script


@pytest.mark.parametrize("registered", [False, True])
def test_by_autograds_nvtx_a_backward_kernel_belongs_to_the_range_of_its_forward_operator(
    tmp_path, registered
):
    options = {"emit_nvtx": True, "registered": registered}
    found = owned(report_from(unmodular(), tmp_path, nsight, "sqlite", **options))
    work = {path[1:] for path in found if path[0] == "backward"}
    engine = "autograd::engine::evaluate_function: "
    assert work == {
        ("encoder", f"{engine}AddmmBackward0", "gemm_t"),
        ("head", f"{engine}MulBackward0", "times_b"),
    }
    assert ("forward", "forward / encoder", "aten::linear", "gemm") in found


def test_without_modules_ranges_of_the_user_stand_for_them(tmp_path):
    found = owned(report_from(unmodular(), tmp_path))
    work = {path[1:] for path in found if path[0] == "backward"}
    assert [path for path in work if path[0] == "head"]
    # Kineto's numbers are those of the operators themselves.
    assert not [path for path in work if path[0] in ("encoder", "forward")]


def test_a_node_belongs_to_no_operator_that_is_not_known_to_have_made_it(tmp_path):
    script = unmodular()
    # Another thread counts on its own, and nothing says that it came as far.
    script.range("elsewhere", 8_100, 8_900, thread=OTHER_THREAD)
    script.operator("aten::add", 8_200, 8_800, thread=OTHER_THREAD, sequence=2)
    late = {"thread": AUTOGRAD, "sequence": 99, "forward_thread": 1}
    script.operator("LateBackward0", 14_000, 15_000, **late)
    script.op("kernel", 14_700, 15_700, (14_500, 14_600), name="late", thread=AUTOGRAD)
    found = owned(report_from(script, tmp_path, nsight, "sqlite", emit_nvtx=True))
    work = {path[-1]: path[1] for path in found if path[0] == "backward"}
    assert work == {"gemm_t": "encoder", "times_b": "head", "late": "LateBackward0"}


def test_a_layer_that_is_computed_again_has_numbers_of_its_thread(tmp_path):
    script = unmodular()
    script.range("again", 14_000, 14_900, thread=AUTOGRAD)
    script.operator("aten::linear", 14_100, 14_400, thread=AUTOGRAD, sequence=6)
    node = {"thread": AUTOGRAD, "sequence": 6, "forward_thread": 2}
    script.operator("AddmmBackward0", 15_000, 16_000, **node)
    script.op("kernel", 15_700, 16_700, (15_500, 15_600), name="late", thread=AUTOGRAD)
    found = owned(report_from(script, tmp_path, nsight, "sqlite", emit_nvtx=True))
    assert {path[1] for path in found if path[-1] == "late"} == {"again"}


def test_a_large_tree_keeps_its_sums(monkeypatch):
    whole = report_of(SAMPLES[0].with_name("h200_unet_w1.json.gz"))
    monkeypatch.setattr(build_tree, "MOST_NODES", 30)
    less = traceprobe.analyze(traceprobe.load(SAMPLES[0].with_name("h200_unet_w1.json.gz")))
    rank = less.ranks[0]
    assert rank.tree.nodes.rows <= 60 < whole.ranks[0].tree.nodes.rows
    found, expected = by_class(rank)
    assert found == expected
    assert less.tree().filter(level="other")["name"].unique().to_list() == [NAMELESS["other"]]
    for tree in (less.tree(), whole.tree()):
        assert (
            tree.filter(level="class")["count"].sum()
            == whole.tree().filter(level="class")["count"].sum()
        )


@pytest.mark.parametrize("by", BY)
def test_every_grouping_has_all_of_the_time(by):
    report = report_of(SAMPLES[0].with_name("h200_unet_w1.json.gz"))
    found = owners(report.tree(), by)
    window = report.ranks[0].summary.window_ns
    assert found["own_ns"].sum() == window
    assert found.select("owner", "within").is_unique().all()
    outermost = found.filter(~pl.col("owner").fill_null("").str.contains(" / ") | (by != "module"))
    assert outermost["busy_ns"].sum() + outermost["idle_ns"].sum() == window
    roots = report.tree().filter(level="class")
    assert outermost["operations"].sum() + outermost["calls"].sum() == roots["count"].sum()


def test_a_tree_agrees_with_the_table_of_kernels():
    """Nothing runs beside it in this loop, so what a kernel takes is what it owns."""
    report = report_of(SAMPLES[0].with_name("h200_unet_w1.json.gz"))
    kernels = report.tree().filter(level="kernel")
    found = {
        (name, phase): ns
        for name, phase, ns in kernels.group_by("kernel", "class").agg(pl.col("ns").sum()).rows()
    }
    listed = report.ranks[0].summary.top_kernels
    assert len(listed) > 20
    for kernel in listed:
        owned_ns = found[kernel.name, kernel.phase]
        assert owned_ns == pytest.approx(kernel.total_ns, rel=0.01), kernel


def test_a_rank_without_a_tree_is_refused():
    report = report_of(*sorted(SAMPLES[0].parent.glob("h200_collectives.rank*.json.gz")))
    assert len(report.tree(1)) > 10
    with pytest.raises(traceprobe.UsageError, match=r"of rank 7; there is one of rank 0, 1"):
        report.tree(7)


def changed(column, row, to):
    def change(tree):
        columns = tree.nodes.columns()
        columns[column][row] = to
        return msgspec.structs.replace(tree, nodes=Table.of(columns))

    return change


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (changed("ns", -1, 5), "does not add up"),
        (changed("parent", 1, 9), "before its parent"),
        (changed("parent", 1, 0), "inside of another"),
        (changed("level", 3, 99), "of no level"),
        (changed("name", 3, 9_999), "has no name"),
        (lambda tree: msgspec.structs.replace(tree, levels=[]), "other columns or levels"),
        (lambda tree: msgspec.structs.replace(tree, names=["x"] * 999), "unknown"),
        (
            lambda tree: msgspec.structs.replace(
                tree, nodes=msgspec.structs.replace(tree.nodes, data=b"")
            ),
            "packed table",
        ),
        (
            lambda tree: msgspec.structs.replace(
                tree, nodes=Table.of({"ns": np.zeros(3, dtype=np.int64)})
            ),
            "other columns",
        ),
    ],
)
def test_a_damaged_tree_is_found(change, problem):
    rank = report_of(SAMPLES[0].with_name("h200_unet_w1.json.gz")).ranks[0]
    assert tuple(rank.tree.levels) == LEVELS
    assert [*rank.tree.problems(rank.summary.partition_ns)] == []
    found = [*change(rank.tree).problems(rank.summary.partition_ns)]
    assert len(found) == 1
    assert problem in found[0]
