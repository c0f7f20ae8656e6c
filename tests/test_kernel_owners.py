"""Kernels that nothing encloses at their launch have the owners that the recording noted."""

from __future__ import annotations

import json

import polars as pl
import pytest

import traceprobe
from tests.builders import kineto
from tests.builders.scenario import Script
from traceprobe.model.owner_limits import LONGEST_OWNER
from traceprobe.model.taxonomy import BUSY
from traceprobe.timeline.noted_owners import kernel_key

LONG = "void kernel<" + "Functor, " * 60 + "int>()"
TEXTS = [
    *("gemm", "copy", "memset", "aten::mm", "aten::add", "train.py(5): forward"),
    *("train.py(9): step", "nn.Module: Net", "nn.Module: a.Linear", "nn.Module: b.Linear"),
    *("triton_poi_fused_relu_0", "aten::relu"),
]
GEMM, COPY, MEMSET, MM, ADD, LINE_5, LINE_9, NET, A, B, TRITON, RELU = range(len(TEXTS))
IN_A, IN_B, LAST = range(3)
OWNERS = [[MM, LINE_5, NET, A], [MM, LINE_5, NET, B], [ADD, LINE_9]]


def notes(**changed):
    """Of a graph with two multiplications in two modules, and an addition."""
    whole = {
        "texts": TEXTS,
        "owners": OWNERS,
        "graphs": [
            {
                "names": [GEMM, COPY, GEMM, -1, MEMSET],
                "calls": [[2, IN_A], [1, IN_B], [1, -1], [1, LAST]],
            }
        ],
        "compiled": [],
        "replays": [0, 0],
        "reasons": [],
    }
    return whole | changed


def replays(names=("gemm", "copy", "gemm", "memset"), count=2, around=None):
    """Replays of a graph, launched by one call each, in a range."""
    script = Script()
    for number in range(count):
        start = 10_000 * number
        script.range("part", start + 1_000, start + 1_200)
        if around is not None:
            script.operator(around, start + 1_050, start + 1_150)
        launch, correlation = (start + 1_100, start + 1_110), None
        for place, name in enumerate(names):
            begin = start + 2_000 + 1_000 * place
            kind = name if name == "memset" else "kernel"
            named = {} if name == "memset" else {"name": name}
            script.op(
                *(kind, begin, begin + 500, launch),
                **(named | {"api": "cudaGraphLaunch", "correlation": correlation, "graph": True}),
            )
            correlation, launch = script.ops[-1].correlation, None if place else launch
    return script


def report_of(script, folder, noted):
    header = (("traceprobe", {"kernel_owners": noted}),)
    path = kineto.write(script.build(), folder / "rank0.json", header=header)
    return traceprobe.analyze(traceprobe.load(path))


def owned(report):
    """Range, module, line, operator and kernel of busy time, to ns."""
    tree = report.tree().filter((pl.col("level") == "kernel") & pl.col("class").is_in(BUSY))
    columns = ("range", "module", "line", "operator", "kernel")
    return dict(zip(tree.select(columns).rows(), tree["ns"].to_list(), strict=True))


def test_a_replayed_node_has_the_owner_that_it_was_captured_for(tmp_path):
    found = owned(report_of(replays(), tmp_path, notes()))
    line = "train.py(5): forward"
    assert found == {
        ("part", "Net / a.Linear", line, "aten::mm", "gemm"): 1_000,
        ("part", "Net / a.Linear", line, "aten::mm", "copy"): 1_000,
        ("part", "Net / b.Linear", line, "aten::mm", "gemm"): 1_000,
        ("part", None, "train.py(9): step", "aten::add", "Memset (Device)"): 1_000,
    }


def test_nodes_of_other_names_may_run_in_another_order(tmp_path):
    report = report_of(replays(("copy", "gemm", "memset", "gemm")), tmp_path, notes())
    assert owned(report) == owned(report_of(replays(), tmp_path, notes()))


def test_a_replay_of_other_kernels_has_no_owners_and_it_is_said(tmp_path):
    report = report_of(replays(("gemm", "copy", "gemm")), tmp_path, notes())
    assert {(module, line) for _, module, line, _, _ in owned(report)} == {(None, None)}
    (warning,) = [w for w in report.quality.warnings if w.code == "graph-owners-unfit"]
    assert warning.message.startswith("2 of 2 replays")


def test_of_graphs_with_equal_kernels_the_one_counts_that_was_replayed(tmp_path):
    first = notes()["graphs"][0]
    second = first | {"calls": [[4, IN_B], [1, LAST]]}
    noted = notes(graphs=[first, second], replays=[0, 1, 1, 1])  # two before the capture
    report = report_of(replays(), tmp_path, noted)
    assert {module for _, module, _, _, _ in owned(report)} == {"Net / b.Linear", None}


def test_without_an_order_graphs_with_equal_kernels_cannot_be_told_apart(tmp_path):
    first = notes()["graphs"][0]
    second = first | {"calls": [[4, IN_B], [1, LAST]]}
    report = report_of(replays(), tmp_path, notes(graphs=[first, second], replays=[]))
    assert {module for _, module, _, _, _ in owned(report)} == {None}


def test_nodes_that_the_driver_did_not_name_are_told_by_their_order(tmp_path):
    texts = ["", *TEXTS[1:]]
    report = report_of(replays(), tmp_path, notes(texts=texts))
    assert owned(report) == owned(report_of(replays(), tmp_path, notes()))


def test_the_driver_may_clear_memory_by_a_kernel(tmp_path):
    script = replays(("gemm", "copy", "gemm", "memset32_aligned1D"))
    found = owned(report_of(script, tmp_path, notes()))
    assert (*("part", None, "train.py(9): step", "aten::add"), "memset32_aligned1D") in found


def test_a_long_name_of_a_kernel_is_known_by_its_digest(tmp_path):
    assert len(kernel_key(LONG)) <= LONGEST_OWNER < len(LONG)
    texts = [kernel_key(LONG), *TEXTS[1:]]
    report = report_of(replays((LONG, "copy", LONG, "memset")), tmp_path, notes(texts=texts))
    modules = {row[1] for row in owned(report)}
    assert modules == {"Net / a.Linear", "Net / b.Linear", None}


def compiled(calls, runs=2):
    """Runs of compiled code, which call kernels and operators by their names."""
    script = Script()
    for number in range(runs):
        start = 100_000 * number
        script.operator("CompiledFunction", start + 1_000, start + 1_100 * len(calls) + 3_000)
        script.operator(
            "## Call CompiledFxGraph fkey ##", start + 1_001, start + 1_100 * len(calls) + 2_999
        )
        for place, name in enumerate(calls):
            at = start + 2_000 + 1_000 * place
            script.operator(name, at, at + 100)
            kernel = "gemm" if name.startswith("aten::") else name
            script.op("kernel", at + 200, at + 700, (at + 10, at + 20), name=kernel)
    return script


def compiled_notes(calls):
    return notes(
        graphs=[],
        replays=[],
        owners=[[RELU, LINE_5, A], [RELU, LINE_9, B], [MM, LINE_9, NET, A]],
        compiled=[{"key": "fkey", "calls": calls}],
    )


def test_kernels_of_compiled_code_have_the_owners_of_its_calls_in_order(tmp_path):
    script = compiled(["triton_poi_fused_relu_0", "aten::mm", "triton_poi_fused_relu_0"])
    noted = compiled_notes([[TRITON, 0], [MM, 2], [TRITON, 1]])
    found = owned(report_of(script, tmp_path, noted))
    kernel = "triton_poi_fused_relu_0"
    assert found == {
        (None, "a.Linear", "train.py(5): forward", "aten::relu", kernel): 1_000,
        (None, "b.Linear", "train.py(9): step", "aten::relu", kernel): 1_000,
        (None, "Net / a.Linear", "train.py(9): step", "aten::mm", "gemm"): 1_000,
    }


def test_where_the_numbers_do_not_fit_only_what_is_common_is_said(tmp_path):
    script = compiled(["triton_poi_fused_relu_0"] * 3)
    noted = compiled_notes([[TRITON, 0], [TRITON, 1]])
    (row,) = owned(report_of(script, tmp_path, noted))
    assert row == (None, None, None, "aten::relu", "triton_poi_fused_relu_0")


def test_a_kernel_of_compiled_code_in_a_graph_has_its_owner(tmp_path):
    noted = compiled_notes([[TRITON, 0], [MM, 2]]) | {
        "graphs": [{"names": [TRITON, GEMM], "calls": [[1, -1], [1, 3]]}],
        "owners": [[RELU, LINE_5, A], [RELU, LINE_9, B], [MM, LINE_9, NET, A], [MM, -1]],
        "replays": [0, 0],
    }
    script = replays(("triton_poi_fused_relu_0", "gemm"), around="## Call CompiledFxGraph fkey ##")
    found = owned(report_of(script, tmp_path, noted))
    assert {row[1:4] for row in found} == {
        ("a.Linear", "train.py(5): forward", "aten::relu"),
        ("Net / a.Linear", "train.py(9): step", "aten::mm"),
    }


def test_modules_around_the_launch_are_there_once(tmp_path):
    script = replays()
    for start in (0, 10_000):
        script.operator("nn.Module: Net", start + 1_020, start + 1_180)
    modules = {row[1] for row in owned(report_of(script, tmp_path, notes()))}
    assert modules == {"Net / a.Linear", "Net / b.Linear", "Net"}


@pytest.mark.parametrize(
    "changed",
    [
        {"texts": []},
        {"owners": [[99, 1]]},
        {"owners": []},
        {"graphs": [{"names": [0, 0], "calls": [[1 << 20, 0]]}]},
        {"graphs": [{"names": [50], "calls": [[1, 0]]}]},
        {"graphs": [{"names": [GEMM], "calls": [[1, 77]]}], "replays": [0]},
        {"graphs": [{"names": [GEMM], "calls": [[-1, 0], [1, 0]]}]},
        {"replays": [-1, 900_000]},
        {"compiled": [{"key": "fkey", "calls": [[99, 0]]}]},
        {"compiled": [{"key": "fkey", "calls": [[TRITON, 99]]}]},
    ],
    ids=json.dumps,
)
def test_places_that_are_in_no_list_break_nothing(tmp_path, changed):
    report = report_of(replays(), tmp_path, notes(**changed))
    (rank,) = report.ranks
    tree = report.tree().filter(pl.col("level") == "class")
    assert tree["total_ns"].sum() == sum(filter(None, rank.summary.partition_ns.values()))


@pytest.mark.parametrize(
    "noted",
    [
        *(None, 3, [], {}, notes(texts=["x" * (LONGEST_OWNER + 1)]), notes(replays=[1.5])),
        *(notes(owners=[[1] * 200]), notes(replays=[0] * 5_000), notes(graphs=[{"names": 1}])),
        notes(texts=["a"] * 60_000),
    ],
    ids=lambda noted: str(noted)[:40],
)
def test_what_no_recorder_writes_is_left_out_and_said(tmp_path, noted):
    report = report_of(replays(), tmp_path, noted)
    assert {row[1] for row in owned(report)} == {None}
    assert "capture-record" in {warning.code for warning in report.quality.warnings}
