"""Values that no run has cost their field or their event, and never the report."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from polars.exceptions import PanicException

import traceprobe
from tests.builders import kineto, nsight
from tests.builders.loop import EVERYTHING_PAGEABLE
from tests.builders.scenario import Script
from tests.cli_runner import Cli, write_trace
from tests.fuzzing import harness
from tests.fuzzing import values as fuzzed
from tests.report_rules import problems
from traceprobe.errors import DamagedInput, InternalError, UsageError
from traceprobe.ingest import untrusted_values
from traceprobe.ingest.gunzip import Gunzip
from traceprobe.ingest.plausibility import plausible_sizes
from traceprobe.ingest.read_trace import read_trace
from traceprobe.model.codes import UNKNOWN
from traceprobe.options import Options
from traceprobe.pipeline import trace_part as part
from traceprobe.pipeline.merge import merge
from traceprobe.pipeline.trace_part import Lost
from traceprobe.timeline.name_patterns import LONGEST

pytestmark = pytest.mark.slow

BIG = "1" + "0" * 400
"""An integer that no double holds."""
RANKS = 2


def written(folder, change, name="run.json"):
    """A trace whose content was changed; what stands between two @ is written as it is."""
    content = json.loads(kineto.dumps(EVERYTHING_PAGEABLE.scenario()))
    change(content)
    path = folder / name
    path.write_text(json.dumps(content).replace('"@', "").replace('@"', ""))
    return path


def each(category, **changes):
    """Changes the events of a category; `args` are merged into theirs."""

    def change(content):
        for event in content["traceEvents"]:
            if event.get("cat") == category:
                event.update({k: v for k, v in changes.items() if k != "args"})
                event["args"].update(changes.get("args", {}))

    return change


def one_kernel(**changes):
    def change(content):
        kernel = next(e for e in content["traceEvents"] if e.get("cat") == "kernel")
        kernel.update({k: v for k, v in changes.items() if k != "args"})
        kernel["args"].update(changes.get("args", {}))

    return change


def report_of(path):
    """The report of a trace, held to its contract."""
    report = traceprobe.analyze(read_trace(path))
    assert not problems(report.to_json())
    assert report.to_html()
    return report


THREADS = ["stream ²", "①", "Ⅷ", "٣", "stream 7 ²", "", "9" * 5000, "1e5", None, 2**63, -(2**63)]


@pytest.mark.parametrize("thread", [*THREADS, 1e300, True], ids=lambda t: repr(t)[:12])
@pytest.mark.parametrize("category", ["kernel", "cuda_runtime", "cpu_op"])
def test_threads_and_streams_of_any_name(tmp_path, category, thread):
    args = {"stream": UNKNOWN} if category == "kernel" else {}
    path = written(tmp_path, each(category, tid=thread, args=args))
    quality = report_of(path).quality
    lost = quality.events_lost if category == "kernel" else 0
    assert quality.gpu_ops + lost == len(EVERYTHING_PAGEABLE.scenario().ops)
    assert not lost or thread is True  # which is no name, and the event none


def test_a_stream_is_the_digits_of_its_name(tmp_path):
    path = written(tmp_path, each("kernel", tid="stream 7 ²", args={"stream": UNKNOWN}))
    streams = set(read_trace(path).gpu_ops["stream"].to_list())
    assert 7 in streams


TIMES = [
    *("@" + BIG + "@", "@-" + BIG + "@", "@1e400@", "@-1e400@", "@1e308@", "@-0@", "@-0.0@"),
    *("@9223372036854775807@", "@1" + "0" * 5000 + "@", "1" + "0" * 400, "NaN", "inf", "0x10"),
    *("1_000", True, [], {}, "", " 5 ", "٣"),
]


@pytest.mark.parametrize("value", TIMES, ids=lambda v: repr(v)[:20])
@pytest.mark.parametrize("field", ["ts", "dur"])
def test_times_that_are_none(tmp_path, field, value):
    """An event at such a time is lost and counted, or read where a person would read it."""
    report = report_of(written(tmp_path, one_kernel(**{field: value})))
    whole = len(EVERYTHING_PAGEABLE.scenario().ops)
    set_aside = (report.quality.damage or {}) if isinstance(report.quality.damage, dict) else {}
    gone = report.quality.events_lost + set_aside.get("impossible-durations", 0)
    assert whole - 1 <= report.quality.gpu_ops <= whole
    assert report.quality.gpu_ops + gone == whole


ARGUMENTS = [
    *("correlation", "stream", "device", "bytes", "External id", "graph id", "graph node id"),
    *("blocks per SM", "est. achieved occupancy %", "In msg nelems", "Group size", "dtype"),
    *("Process Group Name", "Process Group Ranks", "Rank", "Collective name"),
]
AMOUNTS = ["@2e400@", "@" + "9" * 400 + "@", 2**62, -(2**63), "²", "\ud800", [[[[]]]], "x" * 10_000]


@pytest.mark.parametrize("value", AMOUNTS, ids=lambda v: repr(v)[:14])
def test_arguments_that_are_none(tmp_path, value):
    for field in ARGUMENTS:
        args = {"Collective name": "allreduce", "In msg nelems": 1, "dtype": "Float", field: value}
        report_of(written(tmp_path, one_kernel(args=args)))


@pytest.mark.parametrize(
    ("elements", "kind"), [(2**62, "Double"), (2**61, "Double"), (2**50, "Byte")]
)
def test_a_message_that_no_memory_holds_is_of_unknown_size(tmp_path, elements, kind):
    noted = {"Collective name": "allreduce", "In msg nelems": elements, "dtype": kind}
    trace = read_trace(written(tmp_path, one_kernel(args=noted)))
    assert trace.gpu_ops.filter(trace.gpu_ops["operation"] > 0)["bytes"].max() == UNKNOWN


def test_sizes_whose_sum_no_integer_holds_are_unknown():
    sizes = np.full(1 << 18, untrusted_values.MOST_BYTES)
    assert (plausible_sizes(sizes[: 1 << 17]) == untrusted_values.MOST_BYTES).all()
    assert (plausible_sizes(sizes) == UNKNOWN).all()


@pytest.mark.parametrize("ahead_ns", [20_000_000, 5_000_000_000, 10**15])
def test_a_clock_that_would_wrap_counts_from_0(tmp_path, ahead_ns):
    path = written(tmp_path, lambda c: c.update(baseTimeNanoseconds=2**63 - 1 - ahead_ns))
    trace = read_trace(path)
    assert "implausible-clock" in trace.quality.warnings
    assert trace.origin.base_ns == 0
    good = read_trace(written(tmp_path, lambda c: None, "good.json"))
    shift = good.gpu_ops["t0"][0] - trace.gpu_ops["t0"][0]
    assert (good.gpu_ops["t0"] - shift).to_list() == trace.gpu_ops["t0"].to_list()
    assert "implausible-clock" not in good.quality.warnings
    report_of(path)


def test_times_and_a_clock_at_their_limits_add_up(tmp_path):
    us, ns = untrusted_values.FARTHEST_NS // 1000, untrusted_values.LONGEST_NS // 1000

    def change(content):
        content["baseTimeNanoseconds"] = untrusted_values.FARTHEST_NS
        calls = [e for e in content["traceEvents"] if e.get("cat") == "cuda_runtime"]
        calls[0].update(ts=us, dur=ns)

    trace = read_trace(written(tmp_path, change))
    assert (
        trace.host_calls["t1"].max()
        == 2 * untrusted_values.FARTHEST_NS + untrusted_values.LONGEST_NS
    )
    assert (trace.host_calls["t1"] >= trace.host_calls["t0"]).all()


def test_durations_whose_sum_no_integer_holds_are_refused(tmp_path):
    path = written(tmp_path, each("cuda_runtime", dur=untrusted_values.LONGEST_NS // 1000))
    with pytest.raises(DamagedInput, match="more than a century together"):
        read_trace(path)


HALF = "\ud800"


def test_half_a_character_in_the_name_of_a_device(tmp_path):
    device = [{"id": 0, "name": f"A{HALF}B", "computeMajor": 9, "computeMinor": 0}]
    path = written(tmp_path, lambda c: c.update(deviceProperties=device))
    trace = read_trace(path)
    assert trace.devices[0].name == "A\ufffdB"
    assert trace.devices[0].capability == "9.0"
    report_of(path)


RECORDED = {
    "unprofiled_step_ms": [f"@{BIG}@", "@5e-324@", 10**11, -1, True, "3", [1], 2**70],
    "unprofiled_data_wait_ms": [f"@{BIG}@", 10**11, -1],
    "workload": [f"@{BIG}@", [], "x"],
    "hardware": [{"gpus": "x" * 500_000}, [[]]],
    "flags": [{"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": 1}}}}}}}}],
    "memory": [{"measured": [0] * 60_000}],
    "loader": ["x", [], {"lines": [0] * 60_000}, {"dataset": "x" * 300}, {"workers": 2**70}],
}


@pytest.mark.parametrize("field", RECORDED)
def test_a_field_that_no_capture_writes_is_lost_and_said(tmp_path, field):
    for value in RECORDED[field]:
        record = {"unprofiled_step_ms": 2.5, "flags": {"deterministic": True}, field: value}
        trace = read_trace(written(tmp_path, lambda c, r=record: c.update(traceprobe=r)))
        assert field not in trace.metadata["traceprobe"]
        assert trace.quality.damage["capture-record"] == 1
        assert field in trace.quality.warnings["capture-record"]
        kept = {"unprofiled_step_ms", "flags"} - {field}
        assert set(trace.metadata["traceprobe"]) == kept
    assert "capture-record" in [w.code for w in report_of(tmp_path / "run.json").quality.warnings]


@pytest.mark.parametrize("value", [f"@{BIG}@", -1, "x", 1e31])
@pytest.mark.parametrize("field", ["flops_per_step", "ranks"])
def test_a_number_of_the_workload_that_none_has_is_lost_alone(tmp_path, field, value):
    workload = {"name": "unet", "flops_per_step": 1e13, "ranks": 2, field: value}
    path = written(tmp_path, lambda c: c.update(traceprobe={"workload": workload}))
    told = read_trace(path).metadata["traceprobe"].get("workload", {})
    assert field not in told
    assert told.get("name") in ("unet", None)
    report_of(path)


def test_what_captures_write_is_kept_as_it_is(samples):
    trace = read_trace(samples / "profile_unet.json.gz")
    recorded = json.loads(gzip.decompress((samples / "profile_unet.json.gz").read_bytes()))
    known = {k: v for k, v in recorded["traceprobe"].items() if k != "schedule"}
    assert trace.metadata["traceprobe"] == known
    assert "capture-record" not in trace.quality.warnings


PROPERTIES = [
    *("INFO", "WARNING", "ERROR", "cupti_version", "cuda_runtime_version", "traceName"),
    *("distributedInfo", "deviceProperties", "traceprobe", "with_stack", "displayTimeUnit"),
]


def test_properties_of_megabytes_are_left_out(tmp_path):
    text = "A" * 2_000_000
    path = written(tmp_path, lambda c: c.update(dict.fromkeys(PROPERTIES[:6], text)))
    report = report_of(path)
    codes = {w.code: w.message for w in report.quality.warnings}
    assert codes["oversized-metadata"].startswith("6 properties")
    assert len(report.to_json()) < 1_000_000


def test_what_a_file_says_of_itself_is_cut(tmp_path):
    text = "A" * 100_000

    def change(content):
        content.update(cupti_version=text, deviceProperties=[{"id": 0, "name": text}])
        content["distributedInfo"] = {"rank": 0, "pg_config": [text], "backend": text}
        named = {"ph": "M", "name": "thread_name", "pid": 1000, "tid": 1000, "args": {"name": text}}
        content["traceEvents"].append(named)

    trace = read_trace(written(tmp_path, change))
    assert len(trace.devices[0].name) == untrusted_values.LONGEST_TEXT
    assert all(len(name) <= untrusted_values.LONGEST_TEXT for name in trace.thread_names.values())
    assert len(trace.origin.producer) < 1_000
    assert len(report_of(tmp_path / "run.json").to_json()) < 100_000


def test_processes_are_limited(tmp_path):
    def change(content):
        calls = [e for e in content["traceEvents"] if e.get("cat") == "cuda_runtime"]
        content["traceEvents"] += [{**calls[0], "pid": 10_000 + k} for k in range(300)]

    with pytest.raises(DamagedInput, match=r"more than 256 processes.*--limit processes=NUMBER"):
        read_trace(written(tmp_path, change))


def flipped(data, at):
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


def test_a_wrong_bit_in_the_sum_of_a_gzip_costs_nothing_but_is_said(tmp_path):
    for export in (False, True):
        name = "run.sqlite.gz" if export else "run.json.gz"
        write = nsight.write if export else kineto.write
        path = write(EVERYTHING_PAGEABLE.scenario(), tmp_path / name, gz=True)
        good = path.read_bytes()
        for at in (-6, -1):  # the sum, the length
            path.write_bytes(flipped(good, at))
            trace = read_trace(path)
            assert len(trace.gpu_ops) == len(EVERYTHING_PAGEABLE.scenario().ops)
            assert list(trace.quality.warnings) == ["gzip-checksum"]
            assert trace.quality.damage == {"gzip-checksum": 1}


def test_a_wrong_bit_anywhere_in_a_gzip_keeps_what_decodes():
    plain = kineto.dumps(EVERYTHING_PAGEABLE.scenario())
    packed = gzip.compress(plain, mtime=0)
    places = range(10, len(packed), 7)
    kept = 0.0
    for at in places:
        stream = Gunzip()
        found = b"".join(stream.pieces([flipped(packed, at)]))
        assert stream.cut or stream.wrong_sums
        kept += len(found) / len(plain)
    assert kept / len(places) > 0.45


@pytest.mark.parametrize("block", [1, 7, 1_000, 1 << 20])
def test_members_behind_one_with_a_wrong_sum_are_read(block):
    first, second = gzip.compress(b"one, " * 99), gzip.compress(b"two")
    data = flipped(first, -6) + b"\0" * 3 + second
    stream = Gunzip()
    blocks = [data[k : k + block] for k in range(0, len(data), block)]
    assert b"".join(stream.pieces(blocks)) == b"one, " * 99 + b"two"
    assert (stream.wrong_sums, stream.cut) == (1, False)


def two_ranks(folder):
    for rank in range(RANKS):
        script = Script()
        for k in range(1, 4):
            script.op("kernel", 1_000 * k, 1_000 * k + 100, (1_000 * k - 200, 1_000 * k - 100))
        kineto.write(script.build(), folder / f"rank{rank}.json")
    return [folder / f"rank{rank}.json" for rank in range(RANKS)]


@pytest.mark.parametrize(
    "error",
    [
        OverflowError("too large"),
        RecursionError(),
        KeyError("x"),
        PanicException("x"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_rank_that_breaks_the_reader_is_lost_and_named(tmp_path, monkeypatch, error):
    paths = two_ranks(tmp_path)
    read = part.read_trace

    def breaking(path, *arguments):
        if path.name == "rank1.json":
            raise error
        return read(path, *arguments)

    monkeypatch.setattr(part, "read_trace", breaking)
    found = [part.read_or_lose(path, Options()) for path in paths]
    assert isinstance(found[1], Lost)
    name = type(error).__name__
    assert found[1].reason.startswith(f"rank1.json: internal error while it was read ({name})")
    report = merge(found, Options())
    assert [lost.name for lost in report.quality.lost] == ["rank1.json"]
    assert name in next(w.message for w in report.quality.warnings if w.code == "rank-lost")
    with pytest.raises(type(error)):
        part.read_part(paths[1], Options())
    with pytest.raises(InternalError, match=name):
        merge([found[1]], Options())


def test_who_ends_the_program_ends_it(tmp_path, monkeypatch):
    for error in (KeyboardInterrupt(), SystemExit(2), UsageError("no")):

        def breaking(*arguments, error=error):
            raise error

        monkeypatch.setattr(part, "read_trace", breaking)
        with pytest.raises(type(error)):
            part.read_or_lose(tmp_path / "a.json", Options())


NUMBERS = [
    ("analyze", "{t}", "--rank", "1" + "0" * 30),
    ("analyze", "{t}", "--jobs", "1000000000"),
    ("analyze", "{t}", "--steps", "0:1" + "0" * 30),
    ("analyze", "{t}", "--steps", "9" * 5_000 + ":"),
    ("analyze", "{t}", "--unprofiled-step-ms", "5e-324"),
    ("analyze", "{t}", "--unprofiled-step-ms", "1e11"),
    ("analyze", "{t}", "--flops-per-step", "1e300"),
    ("analyze", "{t}", "--limit", "threads=" + "9" * 30),
    ("analyze", "{t}", "--dask", "local:1000000000"),
    ("whatif", "{t}", "--accumulate", "1" + "0" * 30),
    ("whatif", "{t}", "--speedup", "backward=1e300"),
    ("whatif", "{t}", "--speedup", "backward=1e-300"),
    ("whatif", "{t}", "--bucket-mb", "1e300"),
    ("scaling", "{t}", "{t}", "--to", "1" + "0" * 30),
    ("scaling", "{t}", "{t}", "--gpus-per-node", "1" + "0" * 30),
    ("scaling", "{t}", "{t}", "--gpus-per-node", "8", "--inter-node-gbps", "1e300"),
    ("gpus", "{t}", "{t}", "--price", "A=1e300"),
    ("compare", "{t}", "{t}", "--gate", "9" * 5_000 + "%"),
    ("slice", "{t}", "--steps", "0:1" + "0" * 30, "-o", "a.json"),
    ("profile", "-w", "unet", "--warmup", "1" + "0" * 30),
    ("profile", "-w", "unet", "--calibrate", "1" + "0" * 30),
    ("profile", "-w", "unet", "--active", "1" + "0" * 30),
    ("profile", "-w", "unet", "--nproc-per-node", "1" + "0" * 30),
    ("bench", "-w", "unet", "--trials", "1" + "0" * 30),
    ("bench", "-w", "unet", "--seconds", "1e300"),
    ("sweep", "tiny", "--rungs", "9" * 5_000 + ":"),
    ("sweep", "tiny", "--nproc-per-node", "1" + "0" * 30),
    ("analyze", "{t}", "--step", "a{99999999999}"),
    ("analyze", "{t}", "--step", "a{1000}{1000}"),
    ("analyze", "{t}", "--step", "(?=step)"),
    ("analyze", "{t}", "--step", "a" * (LONGEST + 1)),
    ("analyze", "{t}", "--phase", "forward=a{99999999999}"),
    ("analyze", "{t}", "--phase", r"forward=(a)\1"),
]


@pytest.mark.parametrize("arguments", NUMBERS, ids=lambda a: f"{a[0]} {a[-2]} {a[-1][:16]}")
def test_numbers_and_expressions_beyond_reason_are_refused(
    tmp_path, monkeypatch, capfdbinary, arguments
):
    cli = Cli(tmp_path, monkeypatch, capfdbinary)
    write_trace(tmp_path / "run.json")
    before = cli.files()
    done = cli(*(a.replace("{t}", "run.json") for a in arguments)).expect(2)
    option = next(a for a in reversed(arguments[:-1]) if a.startswith("--"))
    assert option in done.err
    assert len(done.err) < 2_000
    assert cli.files() == before


def test_an_expression_that_backtracks_is_matched_at_once(tmp_path):
    script = Script().op("kernel", 1_000, 1_100, (800, 900))
    for k in range(3):
        script.range("a" * 2_000 + f"! {k}", 500 * k, 500 * k + 400)
    path = kineto.write(script.build(), tmp_path / "run.json")
    with pytest.raises(UsageError, match="matches 0 ranges"):
        traceprobe.analyze(read_trace(path), Options(step="(a+)+$"))
    report = traceprobe.analyze(
        read_trace(path), Options(step="(a+)+!", phases={"forward": "(a+)+$"})
    )
    assert report.ranks[0].step_marker.count == 3


def test_fuzzing_knows_these_values(tmp_path):
    assert any(isinstance(n, int) and n > 10**309 for n in fuzzed.NUMBERS)
    assert any("²" in str(name) for name in fuzzed.NAMES)
    assert any("\ud800" in str(name) for name in fuzzed.NAMES)
    assert harness.attempt(written(tmp_path, lambda c: None), seed=0) == "report"
