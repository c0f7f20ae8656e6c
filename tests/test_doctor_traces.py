"""Each check of a trace: one trace on which it speaks up, one on which it is content."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest

import traceprobe
from tests.builders import kineto, nsight
from tests.builders.loop import Loop
from tests.builders.scenario import STREAM, Call, Message, Operator, Process, Range
from tests.conftest import ROOT
from traceprobe.doctor import examine, recorded, whole, written
from traceprobe.doctor.evidence import Evidence
from traceprobe.ingest.read_trace import read_audit
from traceprobe.options import Options
from traceprobe.pipeline.trace_part import part_of

MS = 1_000_000
LARGE = 1_200_000
LOOP = Loop(
    steps=12,
    data_wait_ns=4 * MS,
    wait="loader",
    h2d_ns=MS,
    forward_ns=8 * MS + 1,  # nanoseconds: not a clock of whole microseconds
    backward_ns=8 * MS,
    comm_ns=MS,
    optimizer_ns=MS,
    process=Process(rank=0),
    world_size=1,
)
DAY_NS = 86_400 * 1_000_000_000
NODE = "autograd::engine::evaluate_function: {}Backward0"
SIZED = Message(elements_in=1024, elements_out=1024, ranks=(0,))
COUNTS = (
    ', "INFO": ["INFO:2024 CuptiActivityProfiler.cpp:300] Record counts: Out-of-range = 3829, '
    'Unexpected CUDA events = 0, CUPTI stopped early? = {}"]'
)
UNSUPPORTED = "Installed CUDA driver version (13.1) is not supported by this build."
PERHAPS = "Not all CUDA events might have been collected."


@cache
def base(**changes):
    """The loop as a scenario whose collectives have sizes; `changes` are parameters of the loop."""
    scenario = replace(LOOP, **changes).scenario()
    ops = tuple(replace(o, message=SIZED) if o.kind == "comm" else o for o in scenario.ops)
    return replace(scenario, ops=ops)


def with_ops(change, **changes):
    """The scenario with `change(position, op)` for each op; None leaves it out."""
    scenario = base(**changes)
    kept = (change(i, op) for i, op in enumerate(scenario.ops))
    return replace(scenario, ops=tuple(op for op in kept if op is not None))


def unrecorded(scenario, lost):
    """Some ops lose their GPU row, and keep the call."""
    calls = tuple(
        Call(o.launch.api, o.launch.thread, o.launch.t0, o.launch.t1, o.correlation, o.pid)
        for i, o in enumerate(scenario.ops)
        if lost(i)
    )
    ops = tuple(o for i, o in enumerate(scenario.ops) if not lost(i))
    return replace(scenario, ops=ops, calls=scenario.calls + calls)


def as_kineto(scenario, *events, **options):
    """A writer of a Kineto trace with further events, given as dicts."""

    def write(folder):
        path = kineto.write(scenario, folder / "run.json", **options)
        if events:
            trace = json.loads(path.read_text())
            trace["traceEvents"] += events
            path.write_text(json.dumps(trace))
        return [path]

    return write


def as_nsight(scenario, *statements, **options):
    """A writer of an Nsight export on which SQL is run."""

    def write(folder):
        path = nsight.write(scenario, folder / "run.sqlite", **options)
        return [nsight.edit(path, *statements) if statements else path]

    return write


def damaged(change, scenario=None):
    """A writer of a Kineto trace whose bytes are changed."""

    def write(folder):
        path = kineto.write(scenario or base(), folder / "run.json")
        path.write_bytes(change(path.read_bytes()))
        return [path]

    return write


def sample(name):
    """A writer that writes nothing."""
    return lambda folder: [ROOT / "sample_traces" / name]


def event(cat, name, t0, pid, tid, **args):
    """An event with its time as the trace of `base()` counts it, in µs."""
    times = {"ts": t0 / 1000, "dur": 1.0}
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, **times, "args": args}


def sync(kind, t0, **args):
    return event("cuda_sync", kind, t0, 0, STREAM, cuda_sync_kind=kind, device=0, **args)


def record(t0, correlation):
    return event("cuda_runtime", "cudaEventRecord", t0, 1000, 1000, correlation=correlation)


def wait(t0, correlation):
    noted = {} if correlation is None else {"wait_on_cuda_event_record_corr_id": correlation}
    return sync("Stream Wait Event", t0, stream=STREAM, **noted)


def backward(sequence, *names):
    return [
        event(
            "cpu_op",
            NODE.format(n),
            10**9,
            1000,
            1042,
            **{"Sequence number": sequence, "Fwd thread id": 1},
        )
        for n in names
    ]


def noted(**fields):
    return event("cpu_op", "record_param_comms", 10**9, 1000, 1000, **fields)


COMPLETE = {
    "Collective name": "allreduce",
    "dtype": "Float",
    "In msg nelems": 1,
    "Out msg nelems": 1,
    "Group size": 2,
}


def kernel():
    """The first of the stream."""
    return next(op for op in base().ops if op.kind == "kernel")


def later(ns):
    """Moves GPU rows, not their launches."""
    return lambda i, op: replace(op, t0=op.t0 + ns, t1=op.t1 + ns)


def last_step_unlinked():
    """A sixth of the ops has no launch in the file: those of the step that does not count."""
    count = len(base(steps=6).ops)
    return with_ops(lambda i, o: replace(o, launch=None) if 6 * i >= 5 * count else o, steps=6)


def before_launch(ns):
    """Moves one GPU row to shortly before its launch."""
    return lambda i, op: replace(op, t0=op.launch.t0 - ns) if i == 40 else op


def merged(scenario):
    """Two processes' host rows in one Kineto file."""

    def write(folder):
        [path] = as_kineto(scenario)(folder)
        trace = json.loads(path.read_text())
        hosts = [e for e in trace["traceEvents"] if e.get("cat") == "cuda_runtime"]
        for row in hosts[::2]:
            row["pid"] = 2000
        path.write_text(json.dumps(trace))
        return [path]

    return write


def ranks(*loops):
    """Kineto files of several ranks, in one run of as many."""

    def write(folder):
        paths = []
        for rank, changes in enumerate(loops):
            process = Process(pid=1000 + rank, rank=rank)
            message = replace(SIZED, ranks=tuple(range(len(loops))))
            scenario = base(process=process, world_size=len(loops), **changes)
            ops = tuple(o and replace(o, message=o.message and message) for o in scenario.ops)
            path = folder / f"rank{rank}.json"
            paths.append(kineto.write(replace(scenario, ops=ops), path))
        return paths

    return write


def graph_launches(kind):
    """Replays of a CUDA graph: as one row each, as kernels, or without any row."""
    scenario = base()
    if kind == "rows":
        graph = [
            replace(o, kind="graph", message=None, launch=replace(o.launch, api="cudaGraphLaunch"))
            for o in scenario.ops
            if o.kind == "kernel"
        ]
        return replace(scenario, ops=tuple(graph))
    if kind == "kernels":
        return with_ops(lambda i, o: replace(o, graph=o.kind == "kernel"))
    call = Call("cudaGraphLaunch", 1000, kernel().t0, kernel().t0 + 1000, 99_999)
    return replace(scenario, calls=(*scenario.calls, call))


def ranged(name):
    """The scenario with a further range."""
    scenario = base()
    return replace(scenario, ranges=(*scenario.ranges, Range(name, 1000, kernel().t0, kernel().t1)))


def emitted(*names, pids=(1000,)):
    """What `emit_nvtx` notes of a backward pass, with one number for all."""
    scenario = base()
    rows = [
        Operator(NODE.format(n), 1042, kernel().t0, kernel().t1, pid, 7)
        for n in names
        for pid in pids
    ]
    return replace(scenario, operators=tuple(rows))


SLOW_HOST = {"launch_gap_ns": 3 * MS}
"""Overhead decides."""
CALIBRATED = (("traceprobe", {"unprofiled_step_ms": 22.0}),)
SLOWED = (("traceprobe", {"unprofiled_step_ms": 12.0}),)


@cache
def cases():
    """Check to pairs of a status and a writer of the trace that gets it."""
    first = kernel()
    no_steps = replace(base(), ranges=())
    waited = Call("cudaEventSynchronize", 1000, 10**9, 10**9 + 1000, 99_998)
    synchronised = replace(base(), calls=(*base().calls, waited))
    fine, exported = as_kineto(base()), as_nsight(base())
    return {
        "truncated": [("fail", damaged(lambda b: b[: len(b) // 2])), ("ok", fine)],
        "damaged-events": [
            (
                "fail",
                damaged(
                    lambda b: b.replace(b'"ph": "X", "cat": "kernel"', b'"ph": X "cat": "', 40)
                ),
            ),
            (
                "warn",
                damaged(lambda b: b.replace(b'"ph": "X", "cat": "kernel"', b'"ph": X "cat": "', 1)),
            ),
            ("warn", damaged(lambda b: b.replace(b'"queued": 0', b'"queued": nan', 1))),
            ("ok", fine),
        ],
        "ranges-closed": [
            (
                "warn",
                as_nsight(replace(base(), ranges=(*base().ranges, Range("x", 1000, 10**9, None)))),
            ),
            ("ok", exported),
        ],
        "processes": [
            ("fail", merged(base())),
            ("warn", as_nsight(base(), global_pid=False)),
            ("ok", fine),
        ],
        "impossible-durations": [
            (
                "fail",
                as_kineto(with_ops(lambda i, o: replace(o, t1=o.t1 + 10**9) if i == 40 else o)),
            ),
            (
                "fail",
                as_nsight(with_ops(lambda i, o: replace(o, t1=o.t1 + 10**9) if i == 40 else o)),
            ),
            (
                "ok",
                as_kineto(with_ops(lambda i, o: replace(o, t1=o.t1 + 10 * MS) if i == 40 else o)),
            ),
            ("not-applicable", sample("cpu_convnet.json.gz")),
            ("ok", fine),
        ],
        "kernel-causality": [
            ("fail", as_kineto(with_ops(later(-MS)))),
            ("fail", as_nsight(with_ops(later(-MS)))),
            ("fail", as_kineto(with_ops(lambda i, o: later(-MS)(i, o) if i % 30 == 0 else o))),
            ("fail", as_nsight(with_ops(lambda i, o: later(-MS)(i, o) if i % 30 == 0 else o))),
            (
                "warn",
                as_kineto(with_ops(lambda i, o: later(-MS)(i, o) if i == 3 else o)),
            ),
            ("warn", as_kineto(with_ops(before_launch(2000), forward_ns=8 * MS))),
            ("warn", as_kineto(with_ops(before_launch(1000)))),
            ("not-applicable", as_kineto(base(), calls=False, operators=False)),
            ("ok", fine),
        ],
        "clock": [
            ("warn", as_kineto(base(forward_ns=8 * MS))),
            ("fail", as_kineto(with_ops(lambda i, o: later(2 * DAY_NS)(i, o) if i > 60 else o))),
            ("ok", as_nsight(base(), utc=True)),
            ("ok", exported),
            ("ok", fine),
        ],
        "wait-record-noted": [
            ("warn", as_kineto(base(), record(10**9, 9001), wait(10**9 + 5, None))),
            ("warn", as_kineto(base(), record(10**9, 9001), wait(10**9 + 5, -1))),
            ("ok", as_kineto(base(), record(10**9, 9001), wait(10**9 + 5, 9001))),
            ("not-applicable", fine),
        ],
        "wait-record-past": [
            ("warn", as_kineto(base(), record(10**9, 9001), wait(10**9 - 5000, 9001))),
            ("warn", as_kineto(base(), wait(10**9, 9001))),
            ("ok", as_kineto(base(), record(10**9, 9001), wait(10**9 + 5000, 9001))),
            ("not-applicable", as_kineto(base(), wait(10**9, -1))),
        ],
        "stream-sync-overlap": [
            ("warn", as_kineto(base(), sync("Stream Sync", first.t0 + 1000, stream=first.stream))),
            ("ok", as_kineto(base(), sync("Stream Sync", first.t0 - 1000, stream=first.stream))),
            (
                "ok",
                as_kineto(
                    base(),
                    sync("Stream Sync", first.t0 + 1000, stream=999),
                    sync("Stream Sync", first.t0 - 1000, stream=first.stream),
                ),
            ),
            ("not-applicable", fine),
        ],
        "backward-sequence": [
            ("warn", as_kineto(base(), *backward(70_001, "Add", "Mul"))),
            ("warn", as_nsight(emitted("Add", "Mul"), emit_nvtx=True)),
            ("ok", as_kineto(base(), *backward(70_001, "Add", "Add"), *backward(70_002, "Mul"))),
            ("ok", as_nsight(emitted("Add"), emit_nvtx=True)),
            ("not-applicable", exported),
        ],
        "sync-type": [
            ("warn", as_nsight(synchronised, mislabelled_syncs=True)),
            ("ok", as_nsight(synchronised)),
            ("not-applicable", fine),
        ],
        "gpu-work": [("warn", sample("cpu_convnet.json.gz")), ("ok", fine)],
        "api-rows": [("fail", as_kineto(base(), calls=False)), ("ok", fine)],
        "launches-linked": [
            (
                "fail",
                as_nsight(with_ops(lambda i, o: replace(o, launch=None) if i % 5 == 0 else o)),
            ),
            (
                "warn",
                as_nsight(with_ops(lambda i, o: replace(o, launch=None) if i % 25 == 0 else o)),
            ),
            ("ok", exported),
            ("ok", as_nsight(last_step_unlinked())),
        ],
        "coverage": [
            ("fail", as_nsight(unrecorded(base(), lambda i: i % 5 == 0))),
            ("warn", as_nsight(unrecorded(base(), lambda i: 60 <= i < 65))),
            ("warn", as_nsight(unrecorded(no_steps, lambda i: i % 5 == 0))),
            ("ok", as_nsight(unrecorded(base(), lambda i: i >= len(base().ops) - 3))),
            ("ok", exported),
        ],
        "records-dropped": [
            ("fail", as_kineto(base(), tail=COUNTS.format(1))),
            ("ok", as_kineto(base(), tail=COUNTS.format(0))),
            ("not-applicable", fine),
        ],
        "nsys-diagnostics": [
            ("warn", as_nsight(replace(base(), diagnostics=((0, 2, UNSUPPORTED),)))),
            (
                "warn",
                as_nsight(
                    replace(
                        unrecorded(base(), lambda i: 60 <= i < 65), diagnostics=((0, 2, PERHAPS),)
                    )
                ),
            ),
            ("ok", as_nsight(replace(base(), diagnostics=((0, 2, PERHAPS),)))),
            ("not-applicable", fine),
        ],
        "excerpt": [
            (
                "warn",
                as_nsight(
                    base(),
                    "INSERT INTO META_DATA_EXPORT (name, value) VALUES "
                    "('EXPORT_PARAM_TIMES_TO_EXPORT', '1s/2s')",
                ),
            ),
            ("ok", exported),
        ],
        "graphs": [
            ("fail", as_nsight(graph_launches("nothing"))),
            ("warn", as_nsight(graph_launches("rows"))),
            ("ok", as_nsight(graph_launches("kernels"))),
            ("not-applicable", fine),
        ],
        "phases": [("warn", as_nsight(no_steps)), ("ok", exported)],
        "data-ranges": [("warn", as_nsight(base(wait="between"))), ("ok", exported)],
        "collective-metadata": [
            ("warn", as_kineto(base(), noted(**COMPLETE), noted(dtype="Float"))),
            ("ok", as_kineto(base(), noted(**COMPLETE))),
            ("not-applicable", fine),
        ],
        "collective-sizes": [
            ("warn", as_kineto(LOOP.scenario())),
            ("ok", fine),
            ("not-applicable", as_kineto(base(comm_ns=0))),
        ],
        "nccl-ranges": [
            ("warn", exported),
            ("ok", as_nsight(ranged("ncclAllReduce"))),
            ("not-applicable", fine),
        ],
        "rank-noted": [
            ("warn", as_kineto(base(process=Process(), world_size=None))),
            ("ok", fine),
            ("not-applicable", as_kineto(base(comm_ns=0, process=Process(), world_size=None))),
        ],
        "profiler-options": [("warn", as_kineto(base(), stacks=True)), ("ok", fine)],
        "step-marker": [
            ("fail", as_nsight(replace(base(steps=2), ranges=()))),
            ("warn", as_kineto(base(step_name="x"), operators=False)),
            ("ok", fine),
        ],
        "iterations": [
            ("fail", as_nsight(base(steps=2))),
            ("warn", as_nsight(base(steps=3))),
            ("warn", as_nsight(base(steps=6))),
            ("ok", exported),
            ("not-applicable", as_nsight(no_steps)),
        ],
        "calibration": [
            ("warn", as_kineto(base(**SLOW_HOST))),
            ("ok", fine),
            ("ok", as_kineto(base(), header=CALIBRATED)),
            ("not-applicable", exported),
        ],
        "observer-effect": [
            ("fail", as_kineto(base(**SLOW_HOST))),
            ("warn", as_kineto(base(), header=SLOWED)),
            ("ok", as_kineto(base(), header=CALIBRATED)),
            ("unknown", fine),
            ("not-applicable", exported),
        ],
        "ranks-complete": [
            ("warn", as_kineto(base(world_size=2))),
            ("ok", ranks({}, {})),
            ("not-applicable", exported),
        ],
        "collectives-matched": [
            ("warn", ranks({"collectives": 1}, {"collectives": 3})),
            ("ok", ranks({}, {})),
            ("not-applicable", exported),
        ],
        "verdict": [
            ("fail", as_nsight(base(steps=2, data_wait_ns=14 * MS, tail_ns=14 * MS))),
            ("warn", as_kineto(base(**SLOW_HOST))),
            ("ok", exported),
        ],
    }


CHECKS = (*written.CHECKS, *recorded.CHECKS, *whole.CHECKS)
BY_THEMSELVES = {"other-warnings"}
"""Checks with a test of their own."""
NAMES = sorted({check.id for check in CHECKS} - BY_THEMSELVES)


def outcomes(paths):
    """Check to outcome, of the first input and of the run."""
    sections = examine(paths).sections
    return {c.id: c for section in (sections[-1], sections[0]) for c in section.checks}


def test_every_check_has_a_trace_that_breaks_it_and_one_that_does_not():
    assert {check.id for check in CHECKS} == set(cases()) | BY_THEMSELVES
    for pairs in cases().values():
        statuses = {status for status, _ in pairs}
        assert statuses & {"fail", "warn"}
        assert "ok" in statuses


@pytest.fixture(scope="module")
def examined(tmp_path_factory):
    """Outcomes of what a writer writes; the content traces are those of many checks."""
    return cache(lambda write: outcomes(write(tmp_path_factory.mktemp("written"))))


@pytest.mark.parametrize("name", NAMES)
def test_check(examined, name):
    for number, (status, write) in enumerate(cases()[name]):
        outcome = examined(write)[name]
        assert (number, outcome.status) == (number, status), outcome
        assert outcome.found
        assert bool(outcome.meaning and outcome.fix) == (status in ("fail", "warn"))


def test_a_warning_that_no_check_knows_is_named(tmp_path):
    [path] = as_kineto(base())(tmp_path)
    trace = traceprobe.load(path)
    evidence = Evidence(trace, part_of(trace, Options()), read_audit(path))
    [check] = [c for c in written.CHECKS if c.id == "other-warnings"]
    assert check(evidence).status == "ok"
    trace.quality.warn("truncated-file", "known")
    assert check(evidence).status == "ok"
    trace.quality.warn("of-tomorrow", "new")
    assert check(evidence).status == "warn"
    assert "of-tomorrow" in check(evidence).found


def test_numbers_of_two_processes_are_not_mixed(tmp_path):
    """Each process counts its own backward pass."""
    scenario = base()
    first = Operator(NODE.format("Add"), 1042, kernel().t0, kernel().t1, 1000, 7)
    second = Operator(NODE.format("Mul"), 1042, kernel().t0, kernel().t1, 2000, 7)
    write = as_nsight(replace(scenario, operators=(first, second)), emit_nvtx=True)
    assert outcomes(write(tmp_path))["backward-sequence"].status == "ok"


def test_what_is_found_is_counted_exactly(tmp_path):
    early = with_ops(lambda i, o: later(-MS)(i, o) if i % 30 == 0 else o)
    count = len([o for i, o in enumerate(early.ops) if i % 30 == 0])
    found = outcomes(as_kineto(early)(tmp_path))["kernel-causality"].found
    assert found.startswith(f"{count} of {len(early.ops)} GPU ops start before")
    lag = MS - min(o.t0 - o.launch.t0 for o in base().ops)
    assert f"{lag / 1e3:.0f} µs" in found


def test_times_in_whole_microseconds_may_be_rounded_past_each_other(tmp_path):
    """PyTorch's validator counts this one: it does not ask how fine the clock is."""
    rounded = with_ops(before_launch(1000), forward_ns=8 * MS)
    assert outcomes(as_kineto(rounded)(tmp_path))["kernel-causality"].status == "ok"


def test_every_input_has_a_section_and_the_run_one(tmp_path):
    diagnosis = examine(ranks({}, {})(tmp_path))
    assert [s.subject for s in diagnosis.sections] == ["rank0.json", "rank1.json", "run"]


VALIDATOR = {
    "check_gpu_kernel_causality": "kernel-causality",
    "check_stream_wait_corr_id_populated": "wait-record-noted",
    "check_stream_sync_overlap": "stream-sync-overlap",
    "check_stream_wait_corr_id_in_past": "wait-record-past",
    "check_nccl_metadata": "collective-metadata",
    "check_backward_seq_id_uniqueness": "backward-sequence",
}


@pytest.fixture(scope="module")
def validate():
    """PyTorch's own rules, where this PyTorch has them: the names of those that are broken."""
    validator = pytest.importorskip("torch.profiler._trace_validator")

    def broken(path):
        _, violations = validator.validate_trace(str(path))
        return {VALIDATOR[v.rule_name.lstrip("_")] for v in violations}

    return broken


@pytest.mark.parametrize("name", sorted(VALIDATOR.values()))
def test_pytorch_judges_the_same_traces_alike(tmp_path, validate, name):
    for number, (status, write) in enumerate(cases()[name]):
        if write.__qualname__.startswith("as_kineto"):
            folder = tmp_path / str(number)
            folder.mkdir()
            [path] = write(folder)
            judged = name in validate(path)
            assert (number, judged) == (number, status in ("fail", "warn"))


def test_pytorch_and_the_doctor_agree_on_the_corpus(corpus, validate):
    judged = {}
    for path in sorted(p for p in corpus.glob("kineto/*") if p.stat().st_size < LARGE):
        found = outcomes([path])
        ours = {name for name in VALIDATOR.values() if found[name].status in ("fail", "warn")}
        judged[path.name] = (ours, validate(path))
    assert len(judged) > 5
    assert {name for name, (ours, theirs) in judged.items() if ours != theirs} == set()
