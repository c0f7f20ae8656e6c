"""Who had the machine's cores while a program was recorded, and what is said of that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

import pytest
from msgspec.structs import replace

from tests import records
from tests.builders import kineto
from tests.builders.kernels import kernels_lasting
from tests.evidence import evidence
from tests.records import step
from tests.report_factory import make_report
from traceprobe import analyze
from traceprobe.capture.machine.cpu_readings import CpuReading, cpu_between, read_cpu
from traceprobe.findings.cpu_oversubscribed import cpu_oversubscribed
from traceprobe.findings.first_fixes import first_fixes
from traceprobe.findings.host_overhead import host_overhead
from traceprobe.findings.recorded_cores import recorded_cores, taken
from traceprobe.ingest.read_trace import read_trace
from traceprobe.model.sidecar import Block, BlockCpu
from traceprobe.records.rank import DeviceInfo

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts waits for a core")
SECOND = 10**9


def cores(ran, waited, loop=0.0, others=0.0, count=2):
    return BlockCpu(ran=ran, waited=waited, loop_waited=loop, others=others, cores=count)


def block(cpu, *, profiled=False, kept=True, ms=100.0):
    return Block(profiled=profiled, kept=kept, steps=10, step_ms=ms, cpu=cpu)


def test_means_are_over_the_time_of_blocks_that_count():
    found = recorded_cores(
        [
            block(cores(1.0, 0.0), ms=100),
            block(cores(2.0, 0.0), profiled=True, ms=100),
            block(cores(2.0, 0.0), kept=False, ms=100),
            block(cores(2.0, 0.4, loop=0.2, others=0.8), ms=300),
        ]
    )
    assert (found.ran, found.waited) == pytest.approx((1.75, 0.3))
    assert (found.loop_waited, found.others) == pytest.approx((0.15, 0.6))
    assert recorded_cores([Block(profiled=False, steps=10, step_ms=1.0)]) is None


@pytest.mark.parametrize(
    ("cpu", "shared", "busy"),
    [
        (cores(2.0, 0.02), False, False),
        (cores(1.1, 0.85, loop=0.41, others=0.74), True, True),
        (cores(0.34, 0.66, loop=0.66, others=1.66), True, True),
        (cores(1.0, 0.9, loop=0.45, others=0.0), False, False),
        (cores(2.0, 0.1, loop=0.09, others=0.5), True, False),
        (cores(1.0, 1.0, loop=0.5, others=None), False, False),
    ],
)
def test_cores_lack_because_of_others_or_of_the_program_itself(cpu, shared, busy):
    found = recorded_cores([block(cpu)])
    assert (found.shared, found.busy) == (shared, busy)


def of_cpu():
    return replace(
        records.rank(step(), coverage=None), device=DeviceInfo(index=0, name=None, kind="cpu")
    )


def examine(rank, *blocks):
    return cpu_oversubscribed(replace(evidence(rank), blocks={0: list(blocks)}))


@pytest.mark.parametrize(
    ("waited", "loop", "status"), [(0.4, 0.04, "pass"), (0.4, 0.09, "warn"), (0.7, 0.27, "fail")]
)
def test_threads_beyond_the_cores_are_a_finding_on_a_cpu(waited, loop, status):
    found = examine(of_cpu(), block(cores(2.0, waited, loop)))
    assert (found.status, found.saving_ms_per_step) == (status, None)
    assert ("OMP_NUM_THREADS" in found.advice) is (status != "pass")


def test_on_a_gpu_only_idle_time_of_a_late_host_can_go():
    late = records.rank(step(overhead=300))
    found = examine(late, block(cores(1.0, 0.5, loop=0.4)))
    assert (found.status, found.saving_ms_per_step) == ("fail", pytest.approx(300.0))
    ahead = records.rank(step())
    assert examine(ahead, block(cores(1.0, 0.5, loop=0.4))).status == "pass"


def test_cores_of_other_programs_are_no_finding():
    assert examine(of_cpu(), block(cores(1.0, 1.0, 0.5, others=1.0))).status == "pass"
    assert examine(of_cpu()).status == "not-applicable"


@pytest.mark.parametrize(
    ("cpu", "status"),
    [
        (cores(1.0, 0.5, loop=0.1, others=0.0), "warn"),
        (cores(1.0, 0.5, loop=0.04, others=0.5), "warn"),
        (cores(1.0, 0.5, loop=0.14, others=0.5), "pass"),
    ],
    ids=["its own threads", "a little", "all of it"],
)
def test_what_other_programs_took_is_no_slow_host(cpu, status):
    late = evidence(records.rank(step(idle_host=100)))
    found = host_overhead(replace(late, blocks={0: [block(cpu)]}))
    assert found.status == status


def test_one_rank_without_a_core_is_not_all_of_them():
    lacking, fine = block(cores(1.0, 0.5, loop=0.4, others=0.5)), block(cores(1.0, 0.0))
    assert taken([[lacking]]) == pytest.approx(0.4)
    assert taken([[lacking], [fine], [fine], [fine]]) == pytest.approx(0.1)


@pytest.mark.parametrize(("others", "busy"), [(1.5, True), (0.0, False)])
def test_a_busy_machine_is_told_and_the_programs_own_threads_come_first(tmp_path, others, busy):
    path = kineto.write(kernels_lasting([100] * 9), tmp_path / "trace.json")
    document = json.loads(path.read_text())
    cpu = {"ran": 0.6, "waited": 1.2, "loop_waited": 0.65, "others": others, "cores": 2}
    document["traceprobe"] = {
        "unprofiled_step_ms": 1.2,
        "blocks": [
            {"profiled": p, "steps": 800, "step_ms": 1.2, "cpu": cpu} for p in (False, True)
        ],
    }
    path.write_text(json.dumps(document))
    report = analyze(read_trace(path))
    said = [w.message for w in report.quality.warnings if w.code == "busy-machine"]
    assert bool(said) is busy
    page, told = report.to_html(), report.to_markdown()
    assert ("Before you rely on it" in page) is busy
    assert ("- ⚠ The machine was busy" in told) is busy
    if busy:
        assert "had no core 65.0 % of the time" in said[0]
        assert "used 1.5 of the 2 cores" in said[0]
    assert "cpu-oversubscribed" not in [fix.id for fix in first_fixes(report)[busy:]]


def test_counters_become_cores():
    loop = threading.get_native_id()
    before = CpuReading(0, {loop: (0, 0), 2: (5, 5), 3: (0, 0)}, {10: 100, 11: 0}, 1000)
    after = CpuReading(
        2 * SECOND,
        {loop: (SECOND, SECOND // 2), 2: (5 + 2 * SECOND, 5), 4: (SECOND, 0)},
        {10: 100, 11: 100, 12: 50},
        1000 + 4 * os.sysconf("SC_CLK_TCK"),
    )
    ticks = 150 / os.sysconf("SC_CLK_TCK")
    found = cpu_between(before, after)
    assert found.pop("cores") >= 1
    assert found == pytest.approx(
        {"ran": 1.5, "waited": 0.25, "loop_waited": 0.25, "others": (4 - ticks) / 2}
    )
    assert "others" not in cpu_between(CpuReading(0, before.threads), after)
    assert cpu_between(CpuReading(0), after) == {}


@linux
def test_a_thread_that_computes_runs_or_waits_all_the_time():
    before, until = read_cpu(os.getpid()), time.monotonic() + 0.3
    while time.monotonic() < until:
        pass
    found = cpu_between(before, read_cpu(os.getpid()))
    assert found["ran"] + found["waited"] > 0.8


@linux
def test_what_a_program_started_is_no_other_program():
    command = "import time; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", command]) as child:
        try:
            assert {os.getpid(), child.pid} <= read_cpu(os.getpid()).family.keys()
            assert os.getpid() not in read_cpu(child.pid).family
        finally:
            child.kill()


@pytest.mark.parametrize(("status", "first"), [("fail", True), ("warn", False)])
def test_threads_that_take_the_loops_core_come_first_whatever_the_bound(status, first):
    report = make_report("communication")
    found = examine(of_cpu(), block(cores(2.0, 0.7, loop=0.3 if first else 0.1)))
    assert found.status == status
    others = [f for f in report.findings if f.id != found.id]
    report = replace(report, findings=[*others, found])
    fixes = [fix.id for fix in first_fixes(report)]
    assert (fixes[0] == "cpu-oversubscribed") is first
    assert len(fixes) <= 3
