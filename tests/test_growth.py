"""Work on hostile input grows as the input does."""

from __future__ import annotations

import gzip
import json
import zlib
from contextlib import suppress
from itertools import count
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

import traceprobe
from tests.builders import kineto
from tests.builders.scenario import Script
from tests.growth import assert_linear
from traceprobe.anonymise.names import EXPRESSIONS
from traceprobe.errors import TraceprobeError
from traceprobe.ingest.kineto import audit as kineto_audit
from traceprobe.ingest.kineto.chunks import BlockReader, EventSplitter
from traceprobe.ingest.kineto.envelope import split_tail, top_level_properties
from traceprobe.ingest.kineto.ranges import operator_sources
from traceprobe.ingest.read_trace import read_audit, read_trace
from traceprobe.model.codes import Source
from traceprobe.model.events import GPU_OPS, HOST_CALLS, HOST_OPERATORS, HOST_RANGES
from traceprobe.model.quality import Quality
from traceprobe.timeline import step_markers
from traceprobe.timeline.kernel_period import kernel_period
from traceprobe.timeline.name_patterns import NamePattern
from traceprobe.timeline.repetitions import contents_of

KB = 1 << 10


def trace_of(count=3):
    script = Script()
    for k in range(count):
        at = 1_000 * (k + 1)
        script.op("kernel", at, at + 100, (at - 200, at - 100))
    return kineto.dumps(script.build())


def member(plain):
    packer = zlib.compressobj(wbits=31)
    return packer.compress(plain) + packer.flush()


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0, 50], ids=["alone", "in a long event"])
def test_gzip_members_of_a_byte(tmp_path, factor):
    """Each used to copy all of the event that was read so far, and all of the stream behind it."""
    numbers = count()

    def prepare(size):
        begin = b'{"traceEvents": [{"ph": "X", "name": "' + b"a" * factor * size
        path = tmp_path / f"{next(numbers)}.json.gz"
        path.write_bytes(member(begin) + member(b"a") * size + member(b'"}]}'))

        def work():
            reader, split = BlockReader(path, True, lambda done, total: None), EventSplitter()
            assert sum(map(len, split.chunks(reader.blocks()))) > size
            assert not reader.truncated

        return work

    assert_linear(prepare, 20_000)


FILLERS = {
    "ends": b'}],"a":[{',
    "ends with closed lists": b'],"a":[{}',
    "ends before keys": b'}],"name":[{},{',
    "ends without commas": b"}]",
    "properties": b'"INFO":[{},',
    "broken properties": b'"INFO":x',
    "texts as properties": b'"INFO":"\\"',
    "spaces": b" ",
    "braces and spaces": b"}" + b" " * 40,
    "commas and spaces": b"}," + b" " * 40,
    "brackets": b"[",
    "closed brackets": b"]",
    "braces": b"}{",
    "quotes": b'"',
    "backslashes": b"\\",
    "escaped quotes": b'\\"',
    "commas": b",",
    "events": b'{"ph":"X","name":',
    "names": b'"name": "',
    "names that never end": b'"name": "a", ',
    "non-numbers": b": nan  ,",
    "collectives": b'"Collective name"',
    "collectives in events": b'{"ph":"X","args":{"Collective name":',
    "starts": b'"traceEvents" : ',
}


@pytest.mark.slow
@pytest.mark.parametrize("end", [b"", b"}"], ids=["cut", "closed"])
@pytest.mark.parametrize("filler", FILLERS.values(), ids=FILLERS)
def test_what_may_be_the_end_of_the_events(filler, end):
    def prepare(size):
        text = b'{"ph":"X","args":{"a":[{}' + filler * (size // len(filler)) + end
        return lambda: split_tail(text, False)

    assert_linear(prepare, 256 * KB)


@pytest.mark.slow
@pytest.mark.parametrize("end", [b"", b"}"], ids=["cut", "closed"])
@pytest.mark.parametrize("filler", FILLERS.values(), ids=FILLERS)
def test_what_may_be_properties_of_the_file(filler, end):
    def prepare(size):
        text = b'{"INFO": ["a"],' + filler * (size // len(filler)) + end
        return lambda: top_level_properties(text, b"," + text, Quality())

    assert_linear(prepare, 256 * KB)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["before", "among", "in an event"])
@pytest.mark.parametrize("filler", FILLERS.values(), ids=FILLERS)
def test_damage_anywhere(tmp_path, filler, where):
    good = trace_of()
    at = {
        "before": good.index(b'"traceEvents"'),
        "among": good.index(b"{", good.index(b"}")),
        "in an event": good.rindex(b'"name"'),
    }[where]
    numbers = count()

    def prepare(size):
        path = tmp_path / f"{next(numbers)}.json"
        path.write_bytes(good[:at] + filler * (size // len(filler)) + good[at:])

        def work():
            with suppress(TraceprobeError):
                read_trace(path)

        return work

    assert_linear(prepare, 256 * KB)


NAMES = [
    *("step", "step_", "step1", "batch ", "Optimizer.step#", "cudnn_", "_v1", "_v", "Backward1"),
    *("cudaMemcpy", "Memcpy(", "enumerate(Data", "nccl", "a", " ", "_", "1", "data_load", "adam"),
    *("Out-of-range = 1 ", "autograd::", ", seq = 1", "multi_tensor", "iter #:", "forward"),
]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_built_in_expressions_in_long_names(name):
    def prepare(size):
        texts = [
            start + name * (size // len(name)) + end for start in ("", "cudaMemcpy") for end in "! "
        ]
        return lambda: [e.search(text) for e in EXPRESSIONS for text in texts]

    assert_linear(prepare, 16 * KB)


def test_an_operators_name_is_searched_at_its_end_only():
    """The expression may try every length of each of its parts, so it is given few characters."""
    names = ["a" * 4_000 + "step 12", "step" + "a" * 4_000 + " 12"]
    found = operator_sources({"name": np.arange(2)}, names, set())
    assert found.tolist() == [int(Source.USER), -1]


@pytest.mark.slow
def test_words_of_the_profiler_on_what_it_dropped(tmp_path):
    numbers = count()

    def prepare(size):
        body = json.loads(trace_of())
        body["INFO"] = ["Out-of-range = 1 " * (size // 17)]
        path = tmp_path / f"{next(numbers)}.json"
        path.write_text(json.dumps(body))
        return lambda: kineto_audit.read_kineto_audit(path, SimpleNamespace(gzipped=False))

    assert_linear(prepare, 128 * KB)
    body = json.loads(trace_of())
    body["INFO"] = ["Out-of-range = 7 records. CUPTI stopped early? = 1"]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(body))
    audit = read_audit(path)
    assert (audit.out_of_range, audit.stopped_early) == (7, True)


def ranges_of(names):
    rows = np.arange(len(names))
    table = {c: np.zeros(len(names), dtype=np.int64) for c in HOST_RANGES}
    return pl.DataFrame(table | {"t0": 10 * rows, "t1": 10 * rows + 5, "name": rows})


@pytest.mark.slow
def test_ranges_with_many_numbers_in_their_name():
    """A registered name costs a few bytes in each row that has it."""
    names = ["step " + "1 " * 2_000 + str(k) for k in range(2)]

    def prepare(size):
        rows = ranges_of(["x"] * size).with_columns(name=np.arange(size) % 2)
        rest = [pl.DataFrame(schema=s) for s in (HOST_OPERATORS, GPU_OPS, HOST_CALLS)]
        return lambda: step_markers.find_step_marker(rows, *rest, names, None)

    assert_linear(prepare, 20_000)


def kernels_of(names):
    """Kernels of these names, launched one after the other by two threads in turns."""
    rows = np.arange(len(names))
    table = {c: np.zeros(len(names), dtype=np.int64) for c in GPU_OPS}
    times = {
        "t0": 10 * rows,
        "t1": 10 * rows + 5,
        "launch_t0": 10 * rows,
        "launch_t1": 10 * rows + 5,
    }
    table |= times | {"name": np.array(names), "thread": rows % 2}
    return pl.DataFrame(table).cast({"kind": pl.Int8})


KERNELS = {
    "all alike": lambda k: 0 * k,
    "all different": lambda k: k,
    "one that recurs among different ones": lambda k: np.where(k % 2, k, 0),
    "few that recur among different ones": lambda k: np.where(k % 20 < 16, k % 20, k),
    "a square": lambda k: k % int(len(k) ** 0.5),
    "ever longer windows": lambda k: np.where(np.sqrt(k) % 1, 1, 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("update", [True, False], ids=["an update", "no update"])
def test_the_period_of_any_kernels(kind, update):
    def prepare(size):
        ops = kernels_of(kind(np.arange(size)))
        names = ["fused_adam" if update else "first", *(f"kernel {k}" for k in range(size))]
        return lambda: kernel_period(ops, pl.DataFrame(schema=HOST_CALLS), names)

    assert_linear(prepare, 20_000)


def test_the_contents_of_windows_fit_into_memory():
    """A million names in four thousand windows would take 30 GB."""
    names = np.arange(1_000_000)
    found = contents_of(names // 250, names, 4_000)
    assert found.nbytes <= 64 << 20


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)*$", "(a*)*b", "(.*)*x", "a{0,500}a{500}$"])
def test_expressions_of_users(pattern):
    def prepare(size):
        names = ["a" * 4_000 + "!"] * size
        return lambda: NamePattern("--step", pattern).find(names)

    assert_linear(prepare, 20)


@pytest.mark.slow
def test_the_whole_way_of_the_attack_that_took_minutes(tmp_path):
    """31 kB of gzip, whose last megabytes look like the end of the events all over."""
    body = trace_of()[: trace_of().rindex(b"]")]
    filler = b',{"ph":"X","name":"a","args":{"a":[{}' + b'],"a":[{}' * 1_000_000 + b"!!"
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(body + filler, 9))
    trace = traceprobe.load(path)
    assert len(trace.gpu_ops) == 3
    assert "truncated-file" in trace.quality.warnings
