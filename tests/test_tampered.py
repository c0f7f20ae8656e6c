"""Saved results that were changed: refused in one line, or rendered; never believed or a crash."""

from __future__ import annotations

import json
from itertools import cycle

import msgspec
import pytest

import traceprobe
from tests.cli_runner import write_trace
from tests.every_record import RECORD_NAMES, every_record
from tests.loader_records import make_loader
from tests.memory_records import make_memory
from tests.report_factory import (
    PARTITIONS,
    make_ablation,
    make_rank,
    make_report,
    make_run,
)
from tests.saved_records import container_of, tampered
from traceprobe import DamagedRecord, TraceprobeError, analyze, load
from traceprobe.model.taxonomy import GPU_METRICS
from traceprobe.records import kinds
from traceprobe.records.ablation import Ablation
from traceprobe.records.report import Report
from traceprobe.records.sweep import RungResult, Sweep


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The report of a trace, as JSON."""
    path = write_trace(tmp_path_factory.mktemp("run") / "run.json")
    return analyze(load(path)).to_json()


SUMMARY = ("ranks", 0, "summary")
WINDOW = ("ranks", 0, "picture", "windows", 0)
TAMPERED = {
    "a class is missing": (
        (*SUMMARY, "partition_ns"),
        lambda parts: {k: v for k, v in parts.items() if k != "forward"},
        "classes differ from the contract",
    ),
    "a class of work is missing": (
        (*SUMMARY, "busy_ns"),
        lambda parts: {k: v for k, v in parts.items() if k != "communication"},
        "classes differ from the contract",
    ),
    "a class of an iteration is missing": (
        ("ranks", 0, "iterations", 2, "partition_ns"),
        lambda parts: {k: v for k, v in parts.items() if k != "idle_host"},
        "classes differ from the contract",
    ),
    "a share is missing": ((*SUMMARY, "share"), {"io": 1.0}, "shares differ"),
    "a clock": (("inputs", 0, "origin_ns"), "x", "its clock is no number"),
    "a long clock": (("inputs", 0, "base_ns"), "9" * 5000, "its clock is no number"),
    "rows of a picture": ((*WINDOW, "ops", "rows"), 1, "another size"),
    "columns of a picture": ((*WINDOW, "ops", "widths"), {"start": 1}, "other columns"),
    "data of a picture": ((*WINDOW, "host", "data"), "aGVsbG8=", "cannot be read"),
    "the length of a window": ((*WINDOW, "duration_ns"), 5, "do not fit into their window"),
    "names of a picture": (("ranks", 0, "picture", "names"), [], "none of its list"),
    "classes of a picture": (("ranks", 0, "picture", "classes"), ["x"] * 17, "unknown classes"),
    "an input that is not there": (("ranks", 0, "input"), 7, "has no input"),
    "an input before the first": (("ranks", 0, "input"), -1, "has no input"),
    "no inputs": (("inputs",), [], "has no input"),
    "no ranks": (("ranks",), [], "out of order or repeated"),
    "a huge share": (("verdict", "shares", "compute"), 1e308, "a number is too large"),
    "a large share": (("verdict", "shares", "compute"), 3.0, "no parts of 1"),
    "shares of 3": (
        ("verdict", "shares"),
        lambda shares: {**shares, "compute": 1.0, "io": 1.0, "overhead": 1.0},
        "do not sum to 1",
    ),
    "a negative share": (
        ("verdict", "shares"),
        lambda shares: {**dict.fromkeys(shares, 0.0), "io": 2.0, "compute": -1.0},
        "no parts of 1",
    ),
    "an unknown share": (("verdict", "shares"), lambda s: {**s, "luck": 0.0}, "not those of"),
    "a confidence": (("verdict", "confidence"), 1.5, "no part of 1"),
    "a negative count": (("quality", "gpu_ops"), -1, "a count is negative"),
    "a number beyond 64 bits": (("quality", "gpu_ops"), 10**40, "a number is too large"),
    "a percentile": ((*SUMMARY, "step_ms", "p10"), 1e9, "step times are out of order"),
    "a mean": ((*SUMMARY, "step_ms", "mean"), 1.0, "not the mean window"),
    "a kernel": ((*SUMMARY, "top_kernels", 0, "total_ns"), -1, "less than no time"),
    "a queue": ((*SUMMARY, "launches", "queue", "p50"), 10**6, "launch queue are out of order"),
    "launches": ((*SUMMARY, "launches", "outlasting"), 10**6, "more launches than there are"),
    "a sampled unit": (
        ("roofline", "sampled"),
        {"tensor_active": 1.5, "dram": 0.1},
        "a sampled unit is no part of 1",
    ),
    "a counter of a kernel": (
        (*SUMMARY, "kernel_counters"),
        {
            "metrics": ["one", "two"],
            "count": 1,
            "kernels": [{"kernel": "k", "operator": None, "count": 1, "values": [1.0]}],
        },
        "no value of a counter",
    ),
    "counted kernels": (
        (*SUMMARY, "kernel_counters"),
        {
            "metrics": ["one"],
            "count": 1,
            "kernels": [{"kernel": "k", "operator": None, "count": 2, "values": [1.0]}],
        },
        "more kernels were counted",
    ),
    "a counter": (
        (*SUMMARY, "gpu_metrics"),
        {
            "interval_us": 100.0,
            "step": {**dict.fromkeys(GPU_METRICS), "dram_read": 1.5},
            "phases": [],
            "iterations": [],
        },
        "a counter of the GPU is no part of 1",
    ),
    "a kernel beside communication": (
        (*SUMMARY, "top_kernels", 0, "beside_communication_ns"),
        10**12,
        "beside communication for longer",
    ),
    "an operator": (
        (*SUMMARY, "operators"),
        [{"name": "a", "count": -1, "host_ns": 1, "operations": 1, "device_ns": 1}],
        "an operator has less than nothing",
    ),
    "attention": (
        (*SUMMARY, "attention"),
        {"count": 1, "class_ns": {"flash": 1}, "fused_ns": 1},
        "attention has kernels of an unknown class",
    ),
    "a sequence": (
        (*SUMMARY, "sequences"),
        [
            {
                **dict.fromkeys(("total_ns", "gap_ns", "launch_ns"), 1),
                "kernels": ["a", "b"],
                "operators": [None, None],
                "phase": "forward",
                "count": 1,
                "bound_ns": 3,
            }
        ],
        "saves more than there is",
    ),
    "a replay": (("ranks", 0, "replay", "iterations"), 99, "the replay has other"),
    "a replay of unequal columns": (("ranks", 0, "replay", "host_ns"), [1], "the replay has"),
    "a replay of unknown kinds": (("ranks", 0, "replay", "kinds"), [], "unknown kind"),
    "a gap": (("ranks", 0, "gaps", 0, "iteration"), 99, "outside of its iteration"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_report_is_refused(saved, name):
    path, to, said = TAMPERED[name]
    with pytest.raises(DamagedRecord, match="contradicts itself: .*" + said):
        Report.from_json(tampered(saved, *path, to=to))


def test_what_was_not_changed_is_read(saved):
    assert Report.from_json(saved).to_json() == saved
    assert issubclass(DamagedRecord, TraceprobeError)
    assert traceprobe.DamagedRecord is DamagedRecord


READERS = {
    "render": ["render", "bad.json", "-o", "out.html"],
    "render redacted": ["render", "bad.json", "--redact", "-o", "out.json"],
    "compare": ["compare", "good.json", "bad.json", "-o", "out.html"],
    "compare a folder": ["compare", "good.json", "folder", "-o", "out.html"],
    "ladder": ["ladder", "good.json", "bad.json", "-o", "out.html"],
    "scaling": ["scaling", "good.json", "bad.json", "-o", "out.html"],
    "gpus": ["gpus", "good.json", "bad.json", "-o", "out.html"],
    "whatif": ["whatif", "bad.json", "-o", "out.html"],
    "roofline": ["roofline", "bad.json", "-o", "out.html"],
}


@pytest.mark.parametrize("command", READERS)
def test_every_command_that_reads_reports_refuses_it(cli, saved, command):
    path, to, said = TAMPERED["shares of 3"]
    (cli.folder / "good.json").write_text(saved)
    (cli.folder / "bad.json").write_text(tampered(saved, *path, to=to))
    (cli.folder / "folder").mkdir()
    (cli.folder / "folder" / "report.json").write_text(tampered(saved, *path, to=to))
    (line,) = cli(*READERS[command]).expect(2).err.splitlines()
    name = "report" if command == "compare a folder" else "bad"
    assert line.startswith(f"traceprobe: {name}.json: contradicts itself: verdict.shares {said}")
    assert line.endswith("; analyse the trace again")
    assert not {"out.html", "out.json"} & cli.files()


def test_tampered_ablations_and_peaks_are_refused(cli):
    write_trace(cli.folder / "run.json")
    bench = tampered(make_ablation().to_json(), "variants", 0, "trial_ms", to=[])
    (cli.folder / "bench.json").write_text(bench)
    peaks = tampered(every_record()["peaks"].to_json(), "copy_gbps", to=-1.0)
    (cli.folder / "peaks.json").write_text(peaks)
    for option, again in (("ablation", "run traceprobe bench again"), ("peaks", "measure again")):
        file = {"ablation": "bench.json"}.get(option, "peaks.json")
        done = cli("analyze", "run.json", f"--{option}", file, "-o", "out.html").expect(2)
        (line,) = done.err.splitlines()
        assert line.startswith(f"traceprobe: {file}: contradicts itself: ")
        assert line.endswith(again)
    assert "out.html" not in cli.files()


def test_a_tampered_record_is_refused_by_name(cli):
    text = tampered(every_record()["comparison"].to_json(), "steps_ms", to=[[1.0]])
    (cli.folder / "c.json").write_text(text)
    (line,) = cli("render", "c.json", "-o", "out.html").expect(2).err.splitlines()
    assert line == "traceprobe: c.json: contradicts itself: there are not two runs; make it again"


@pytest.mark.parametrize(
    ("field", "to", "said"),
    [
        ("base_ms", -1.0, "an operator has less than nothing"),
        ("state", "vanished", "more or less often than is said"),
        ("new_count", 0.0, "more or less often than is said"),
    ],
)
def test_a_tampered_operator_of_a_comparison_is_refused(field, to, said):
    comparison = every_record()["comparison"]
    place = [each.state for each in comparison.operators].index("more")
    text = tampered(comparison.to_json(), "operators", place, field, to=to)
    with pytest.raises(DamagedRecord, match=said):
        type(comparison).from_json(text)


def sweep():
    rung = {"change": "", "side": False, "base": "", "ranks": 1, "arguments": []}
    run = every_record()["comparison"].base
    rung |= {"name": "a", "state": "measured", "run": run}
    settings = {"ladder": "l", "workload": "w", "backend": "torch"}
    settings |= {"warmup": 1, "calibrate": 1, "active": 1}
    settings |= {"schema_version": "1.0", "traceprobe_version": "1"}
    return Sweep(rungs=[RungResult(**rung)], **settings)


@pytest.mark.parametrize(
    ("path", "to", "said"),
    [
        (("rungs", 0, "state"), "failed", "rung a is failed"),
        (("rungs",), lambda rungs: rungs * 2, "there twice"),
        (("rungs", 0, "run", "step_ms"), 0.0, "a step takes no time"),
        (("rungs", 0, "run", "shares"), {"io": 2.0}, "shares do not sum"),
    ],
)
def test_a_tampered_sweep_is_refused(path, to, said):
    text = sweep().to_json()
    Sweep.from_json(text)
    with pytest.raises(DamagedRecord, match=said):
        Sweep.from_json(tampered(text, *path, to=to))


def records():
    report = make_report(ranks=[make_rank(PARTITIONS["io"], steps=3)])
    full = msgspec.structs.replace(
        report,
        memory=make_memory(),
        loader=make_loader(),
        ablation=make_ablation(),
        roofline=every_record()["report"].roofline,
    )
    return {**every_record(), "report": full, "run": make_run(3), "ablation": make_ablation()}


def read_and_rendered(kind, text):
    """Whatever is read renders; whatever is not is refused on purpose."""
    reader = {"report": Report.from_json, "run": Report.from_json, "ablation": Ablation.from_json}
    try:
        record = reader.get(kind, kinds.read)(text)
    except (TraceprobeError, msgspec.MsgspecError):
        return False
    if kind == "ablation":
        record = make_report(ablation=record)
    for output in (record.to_html(), record.to_markdown(), record.to_json()):
        output.encode()
    return True


def places(content, path=()):
    """Every place of some JSON; of lists the first and the last entry."""
    if path:
        yield path
    if isinstance(content, dict):
        for key, value in content.items():
            yield from places(value, (*path, key))
    elif isinstance(content, list):
        for index in sorted({0, len(content) - 1} if content else ()):
            yield from places(content[index], (*path, index))


PLACES = 60
"""Of a record, in which a value is changed."""
VALUES = (None, 0, -1, 1e300, 2**70, "x", [], {}, [None], 0.5)


KINDS = [*RECORD_NAMES, "ablation"]


def test_every_kind_is_tried():
    assert set(records()) == set(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_any_place_may_hold_anything(kind):
    """Every so many places another value, or none: refused on purpose or rendered."""
    text = records()[kind].to_json()
    assert read_and_rendered(kind, text)
    values = cycle(VALUES)
    every = [*places(json.loads(text))]
    for path in every[:: max(len(every) // PLACES, 1)]:
        read_and_rendered(kind, tampered(text, *path, to=next(values)))
        content = json.loads(text)
        del container_of(content, path)[path[-1]]
        read_and_rendered(kind, json.dumps(content))
