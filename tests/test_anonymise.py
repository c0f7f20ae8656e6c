"""A copy without private names is analysed as the trace is, and nothing private is left in it."""

from __future__ import annotations

import gzip
import json
import re

import pytest
from msgspec import UNSET, to_builtins

import traceprobe
from tests.analyses import REFUSED, SAMPLES, report_of
from tests.builders import kineto, nsight
from tests.builders.loop import EVERYTHING, Loop
from tests.canaries import (
    CANARY,
    KINETO_SAMPLES,
    NSIGHT_SAMPLES,
    SECRET,
    canary_in_chrome_trace,
    canary_in_export,
    canary_in_names,
)
from tests.cli_runner import spawn
from tests.conftest import ROOT, trace_files
from traceprobe.anonymise.anonymise_trace import anonymise_trace
from traceprobe.anonymise.names import known_meaning, public_name
from traceprobe.render.pages.report_operators import operators_table

MS = 1_000_000
LARGE = 500_000


def without_lines(host):
    """What the host did, without lines: which are the program's own is told by their folders."""
    return {
        name: {k: v for k, v in value.items() if k != "lines"} if isinstance(value, dict) else value
        for name, value in host.items()
    }


NAMED = ("top_kernels", "sequences", "operators", "host", "forward_only", "tiny_kernels")
"""Fields of a summary that hold names."""


def numbers(record):
    """The fields of a record that are none of names; None of one that is not there."""
    if record is UNSET:
        return None
    return {k: v for k, v in to_builtins(record).items() if isinstance(v, int)}


def told(report):
    """What a report says of a run, without names and without the clock."""
    ranks = []
    for rank in report.ranks:
        zero = next((i.start_ns for i in rank.iterations if i.start_ns is not None), 0)
        ranks.append(
            {
                "device": (rank.pid, rank.device.index, rank.device.kind),
                "marker": rank.step_marker
                and (rank.step_marker.kind, rank.step_marker.count, rank.step_marker.confidence),
                "iterations": [
                    (
                        *(i.used, i.skip_reason, i.launches, i.collectives, i.coverage),
                        *(i.partition_ns, i.busy_ns),
                        None if i.start_ns is None else i.start_ns - zero,
                    )
                    for i in rank.iterations
                ],
                "summary": [
                    getattr(rank.summary, field)
                    for field in rank.summary.__struct_fields__
                    if field not in NAMED
                ],
                "forward_only": numbers(rank.summary.forward_only),
                "tiny_kernels": numbers(rank.summary.tiny_kernels),
                "host": without_lines(to_builtins(rank.summary.host)),
                "calls": sorted(
                    (o.count, o.host_ns, o.operations, o.device_ns)
                    for o in rank.summary.operators or []
                ),
                "sequences": [
                    (len(s.kernels), s.phase, s.count, s.total_ns, s.gap_ns, s.bound_ns)
                    for s in rank.summary.sequences or []
                ],
                "kernels": sorted(
                    (str(k.tensor_cores), k.phase, k.count, k.total_ns)
                    for k in rank.summary.top_kernels
                ),
                # Ranges of NVTX are operators by their names only.
                "operators": sorted(row[1:] for row in getattr(operators_table(rank), "rows", ()))
                if report.inputs[0].format == "kineto"
                else None,
            }
        )
    verdict, quality = report.verdict, report.quality
    return {
        "verdict": (verdict.bound, verdict.secondary, verdict.shares, verdict.confidence),
        "findings": [(f.id, f.status, f.saving_ms_per_step) for f in report.findings],
        "quality": (quality.gpu_ops, quality.gpu_ops_linked, quality.launches_without_gpu_op),
        "ranks": ranks,
    }


def same(source, target):
    anonymise_trace(source, target)
    assert told(report_of(target)) == told(report_of(source))


@pytest.mark.slow
@pytest.mark.parametrize(
    "file", [f for f in SAMPLES if f.stat().st_size < LARGE], ids=lambda file: file.name
)
def test_samples_are_analysed_as_before(tmp_path, file):
    same(file, tmp_path / file.name)


def test_the_corpus_is_analysed_as_before(tmp_path, corpus, corpus_row):
    source = trace_files(corpus_row)[0]
    if source.stat().st_size > LARGE:
        pytest.skip("large; smaller files hold all that it does")
    target = tmp_path / source.name
    anonymise_trace(source, target)
    try:
        before = report_of(source)
    except REFUSED:
        with pytest.raises(REFUSED):
            traceprobe.load(target)
        return
    assert told(report_of(target)) == told(before)


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.sqlite", "a.sqlite.gz"])
def test_everything_that_can_be_built(tmp_path, name):
    write = nsight.write if "sqlite" in name else kineto.write
    source = write(EVERYTHING.scenario(), tmp_path / name, gz=name.endswith("gz"))
    same(source, tmp_path / f"copy.{name}")
    assert (tmp_path / f"copy.{name}").read_bytes()[:1] == source.read_bytes()[:1]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*KINETO_SAMPLES, *NSIGHT_SAMPLES])
def test_no_canary_is_left(cli, tmp_path, name):
    nsys = ".sqlite" in name
    data = (ROOT / "sample_traces" / name).read_bytes()
    planted = canary_in_names(
        canary_in_export(data) if nsys else canary_in_chrome_trace(data), nsys
    )
    folder = tmp_path / CANARY
    folder.mkdir()
    (folder / name).write_bytes(planted)
    assert gzip.decompress(planted).lower().count(CANARY.encode()) > 50
    command = ("inspect", "--anonymise", f"{CANARY}/{name}", "-o", name)
    assert cli(*command).expect(0).out == ""
    assert CANARY.encode() not in gzip.decompress((tmp_path / name).read_bytes()).lower()
    found = json.loads(cli("analyze", name, "-o", "-").expect(0).out)
    known = json.loads(cli("analyze", folder / name, "-o", "-").expect(0).out)
    assert found["verdict"]["bound"] == known["verdict"]["bound"]
    assert [len(r["iterations"]) for r in found["ranks"]] == [
        len(r["iterations"]) for r in known["ranks"]
    ]


@pytest.mark.parametrize(
    "name",
    [
        "step 7",
        "ProfilerStep#12",
        "aten::convolution_backward",
        "cudaLaunchKernelExC_v11060",
        "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x32_stage3_warpsize2x2x1",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "Memcpy HtoD (Pageable -> Device)",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "Optimizer.step#SGD.step",
        "NVIDIA H200",
    ],
)
def test_public_names_stay(name):
    assert public_name(name) == name


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        (f"{SECRET} step 7", " step 7"),
        (f"{SECRET.lower()}dataloading", ""),
        (f"void {SECRET}::gemm<float>", "::gemm<float>"),
        (f"my{SECRET}AllReduce", "AllReduce"),
        (f"fwd{SECRET}", "fwd"),
        ("step of job 4837291844", " 291844"),
        ("forward on 10.20.30.41", "forward on "),
        ("forward on fe80::1ff:fe23:4567:890a", "forward on "),
        ("a3f9c2b7d1 backward", " backward"),
        ("forward Ünïcødé 鳥", "forward "),
        ("forward\x1b]52;c;aGk=\x07", "forward"),
    ],
)
def test_private_words_go_and_the_meaning_stays(name, kept):
    found = public_name(name)
    assert known_meaning(found) == known_meaning(name)
    assert SECRET.lower() not in found.lower()
    assert kept in found
    assert found.isascii()
    assert found.isprintable()
    for private in ("4837", "10.20", "fe23", "a3f9", "n\xef", "aGk"):
        assert private not in found


def test_names_that_differ_stay_apart_and_one_name_is_one_everywhere():
    names = [f"{word} {SECRET}{n}" for word in ("alpha", "beta", "jkqv") for n in "abcdef"]
    assert len({public_name(name) for name in names}) == len(names)
    assert public_name(names[0]).split()[-1] == public_name(f"x {SECRET}a").split()[-1]


@pytest.mark.parametrize("name", ["a.json", "a.sqlite"])
def test_the_clock_begins_anew(tmp_path, name):
    start = 1_795_219_808_747_955_856
    loop = Loop(steps=6, forward_ns=4 * MS, backward_ns=8 * MS, optimizer_ns=MS, start_ns=start)
    write = nsight.write if "sqlite" in name else kineto.write
    same(write(loop.scenario(), tmp_path / name), tmp_path / f"copy.{name}")
    assert 0 <= int(report_of(tmp_path / f"copy.{name}").inputs[0].origin_ns) < 10**9
    assert b"17952198" not in (tmp_path / f"copy.{name}").read_bytes()


def test_a_trace_that_nobody_can_analyse_can_be_passed_on(tmp_path):
    event = {"ph": "X", "cat": "kernel", "name": SECRET, "ts": "soon", "dur": 1, "args": 7}
    (tmp_path / "a.json").write_text(json.dumps({"traceEvents": [event, {"ph": "i"}]}))
    anonymise_trace(tmp_path / "a.json", tmp_path / "b.json")
    copy = json.loads((tmp_path / "b.json").read_text())
    assert [e["ph"] for e in copy["traceEvents"]] == ["X", "i"]
    assert SECRET not in json.dumps(copy)


@pytest.mark.parametrize(
    "arguments", [["--anonymise"], ["-o", "b.json"], ["--anonymise", "-o", "a.json"]]
)
def test_what_does_not_go_together_is_refused(tmp_path, arguments):
    (tmp_path / "a.json").write_text("{}")
    message = spawn("inspect", "a.json", *arguments, cwd=tmp_path).expect(2).err
    assert re.search("go together|is an input", message)


def test_a_database_that_is_damaged_is_refused_in_one_line(tmp_path):
    write = nsight.write(EVERYTHING.scenario(), tmp_path / "a.sqlite")
    data = write.read_bytes()
    write.write_bytes(data[: len(data) // 2])
    command = ("inspect", "--anonymise", "a.sqlite", "-o", "b.sqlite")
    message = spawn(*command, cwd=tmp_path).expect(2).err
    assert "a.sqlite: the SQLite file is damaged" in message
    assert message.count("\n") == 1
    assert not (tmp_path / "b.sqlite").exists()
