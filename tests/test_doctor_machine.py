"""Each check of a machine, on facts that break it and on facts that do not; and gathering them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.machine_facts import BARE_MACHINE, CALM_GPU, GIB, GOOD_MACHINE, TORCH
from traceprobe.doctor import examine_machine, gather
from traceprobe.doctor.facts import Gpu, Torch
from traceprobe.doctor.machine import CHECKS
from traceprobe.system import control_group
from traceprobe.system.cores import cores


def torch(**changes):
    return replace(GOOD_MACHINE, torch=replace(TORCH, **changes))


def facts(**changes):
    return replace(GOOD_MACHINE, **changes)


CAPPED = Gpu(1481, 1980, 690.0, 700.0, 62, 99, ("sw_power_cap",), 2, 3 * GIB, True)
HOT = ("sw_thermal_slowdown", "hw_thermal_slowdown")
LOCKED = ("applications_clocks_setting",)
NO_GPU = {"cuda_available": False, "devices": (), "activities": ("CPU",), "nccl": None}
SHADOWED = {"cupti": "libcupti.so.2022.3.0", "cupti_from_path": True}
CASES = {
    "python": [("fail", facts(python=(3, 9, 18)), "3.9.18")],
    "dependencies": [
        ("fail", facts(packages={"polars": None}), "polars is missing"),
        ("fail", facts(packages={"polars": "1.9.9"}), "polars 1.9.9 (needs >=2.0)"),
        ("fail", facts(packages={"altair": "6.4.0"}), "altair 6.4.0"),
        ("ok", facts(packages={"altair": "6.3.99"}), "6.3.99"),
        ("ok", facts(packages={"polars": "2.0"}), "2.0"),
        ("ok", facts(packages={"other": "0.1"}), "0.1"),
    ],
    "torch": [
        ("warn", BARE_MACHINE, "not installed"),
        ("fail", facts(torch=Torch("broken", "ImportError")), "the import ended with ImportError"),
        ("fail", facts(torch=Torch("broken", "SIGSEGV")), "SIGSEGV"),
        ("fail", facts(torch=Torch("hangs")), "the import hangs"),
        ("fail", torch(state="hangs", stage="import"), "CUDA hangs"),
        ("fail", torch(state="broken", stage="cuda", error="SIGABRT"), "the profiler ended"),
        ("ok", torch(cuda=None), "for the CPU"),
        ("ok", torch(cuda="ROCm 6.3"), "for ROCm 6.3"),
    ],
    "cuda": [
        ("not-applicable", BARE_MACHINE, "not installed"),
        ("unknown", torch(state="hangs"), ""),
        ("warn", replace(torch(**NO_GPU), driver=None), "no GPU driver"),
        ("warn", torch(**NO_GPU, cuda=None), "built for the CPU"),
        ("warn", replace(torch(**NO_GPU), hidden_gpus=True), "CUDA_VISIBLE_DEVICES"),
        ("fail", torch(**NO_GPU), "CUDA 12.8 finds no GPU with driver 580.65.06"),
    ],
    "gpu-clock": [
        ("not-applicable", BARE_MACHINE, ""),
        ("ok", facts(), "GPU 0, 1: 1980 of 1980 MHz, 88 of 700 W, 40 °C"),
        ("ok", facts(gpus=(Gpu(345, 1980),)), "345 of 1980 MHz"),
        (
            "warn",
            facts(gpus=(CALM_GPU, CAPPED)),
            "GPU 1: 1481 of 1980 MHz, 690 of 700 W, 62 °C, low",
        ),
        ("warn", facts(gpus=(Gpu(900, throttled=HOT),)), "900 MHz, lowered by heat"),
        ("ok", facts(gpus=(Gpu(900, throttled=LOCKED),)), "a clock that somebody set"),
        ("unknown", facts(gpus=(Gpu(),)), "does not tell the clock"),
    ],
    "gpu-alone": [
        ("not-applicable", BARE_MACHINE, ""),
        ("ok", facts(), "GPU 0, 1: 0 processes, busy for 0 % of the time"),
        ("warn", facts(gpus=(CALM_GPU, CAPPED)), "GPU 1: 2 processes with 3.00 GiB, busy for 99 %"),
        ("warn", facts(gpus=(Gpu(1980, busy_percent=43),)), "busy for 43 %"),
        ("unknown", facts(gpus=(Gpu(1980),)), "does not tell who"),
    ],
    "kineto": [
        ("not-applicable", BARE_MACHINE, ""),
        ("unknown", torch(state="broken"), ""),
        ("fail", torch(kineto=False), "without Kineto"),
        ("fail", torch(activities=("CPU",)), "no CUDA"),
        ("ok", torch(**NO_GPU), "records CPU"),
    ],
    "cupti": [
        ("not-applicable", BARE_MACHINE, ""),
        ("warn", torch(**SHADOWED), "libcupti.so.2022.3.0 before libcupti.so.2025.1.0"),
        ("ok", torch(**SHADOWED, bundled_cupti=None), "no other"),
        ("ok", torch(cupti_from_path=True), "LD_LIBRARY_PATH"),
    ],
    "nsys": [
        ("warn", BARE_MACHINE, "not installed"),
        ("warn", facts(nsys=None, nsys_error="PermissionError"), "PermissionError"),
        ("fail", facts(nsys="2024.6.2"), "needs 2025.3"),
        ("warn", facts(nsys="2023.3.1", driver="535.1.1"), "older than 2023.4"),
        ("warn", facts(nsys="2022.4.2", driver=None), "older than 2023.4"),
        ("fail", facts(nsys="2022.3.1", driver="535.1.1"), "needs 2022.4"),
        ("ok", facts(nsys="2024.6.2", driver="570.86.10"), "2024.6.2"),
        ("ok", facts(nsys="2025.10.1"), "2025.10.1"),
    ],
    "counters": [
        ("not-applicable", BARE_MACHINE, ""),
        ("warn", facts(admin_only=True), "ERR_NVGPUCTRPERM"),
        ("ok", facts(admin_only=True, sys_admin=True), "CAP_SYS_ADMIN"),
        ("unknown", facts(admin_only=None), ""),
    ],
    "perf-events": [
        ("not-applicable", BARE_MACHINE, ""),
        ("warn", facts(paranoid=4), "4"),
        ("ok", facts(paranoid=4, sys_admin=True), "4"),
        ("unknown", facts(paranoid=None), ""),
    ],
    "subscriber": [
        ("fail", facts(around=("NSYS_PROFILING_SESSION_ID",)), "NSYS_PROFILING_SESSION_ID"),
        ("warn", facts(monitors=("nv-hostengine",)), "nv-hostengine"),
    ],
    "nccl": [
        ("not-applicable", BARE_MACHINE, ""),
        ("not-applicable", torch(devices=("NVIDIA H200",)), ""),
        ("warn", torch(nccl=None), "no NCCL"),
        ("unknown", torch(state="broken"), ""),
    ],
    "dali": [("not-applicable", BARE_MACHINE, "")],
    "temporary-space": [
        ("fail", facts(temporary_writable=False, temporary_free=None), "no temporary file"),
        ("fail", facts(temporary_free=GIB // 5), "free"),
        ("warn", facts(temporary_free=GIB), "1.00 GiB"),
        ("unknown", facts(temporary_free=None), ""),
    ],
    "memory": [
        ("warn", facts(memory=GIB, memory_limited=True), "limit of the control group"),
        ("unknown", facts(memory=None), ""),
    ],
    "cores": [("warn", facts(quota=2.5), "2.5"), ("ok", facts(quota=16.0), "16 cores")],
}
SPEAKS_ALWAYS = {"dali"}
"""Checks that only inform."""


def outcomes(known):
    [section] = examine_machine(known).sections
    return {outcome.id: outcome for outcome in section.checks}


def test_every_check_is_broken_by_some_facts():
    assert {check.id for check in CHECKS} == set(CASES)
    silent = {n for n, cases in CASES.items() if not {s for s, *_ in cases} & {"fail", "warn"}}
    assert silent == SPEAKS_ALWAYS


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_a_good_machine_passes(check):
    assert outcomes(GOOD_MACHINE)[check.id].status == "ok"


@pytest.mark.parametrize(
    ("name", "status", "known", "words"),
    [
        pytest.param(name, *case, id=f"{name}-{case[0]}-{number}")
        for name, cases in CASES.items()
        for number, case in enumerate(cases)
    ],
)
def test_check(name, status, known, words):
    outcome = outcomes(known)[name]
    assert outcome.status == status
    assert words in outcome.found
    assert bool(outcome.meaning and outcome.fix) == (status in ("fail", "warn"))


def test_nothing_fails_without_pytorch_gpu_and_nsys():
    assert not examine_machine(BARE_MACHINE).failed


def asked(code, seconds=30.0):
    return gather.probe((sys.executable, "-c", code), seconds)


def test_a_pytorch_that_kills_its_process_is_a_fact():
    found = asked("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert (found.state, found.error, found.stage) == ("broken", "SIGSEGV", "")


@pytest.mark.slow
def test_a_pytorch_that_never_answers_is_a_fact_with_what_it_said_before():
    told = '{"stage": "import", "version": "2.9.0", "cuda": "12.8"}'
    found = asked(f"import time; print('{told}', flush=True); time.sleep(60)", seconds=3.0)
    assert (found.state, found.stage, found.version) == ("hangs", "import", "2.9.0")
    assert "CUDA hangs" in outcomes(replace(GOOD_MACHINE, torch=found))["torch"].found


def test_a_pytorch_that_breaks_at_import_is_a_fact(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.12: cannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    found = gather.probe()
    assert (found.state, found.error) == ("broken", "ImportError")


def test_a_library_that_pytorch_misses_is_not_taken_for_pytorch(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("import there_is_no_such_module")
    monkeypatch.syspath_prepend(tmp_path)
    assert gather.probe().state == "broken"


def test_chatter_of_libraries_is_no_answer():
    found = asked('print("warning: x"); print("[1, 2]"); print(\'{"stage": "absent"}\')')
    assert found == Torch()


@pytest.mark.slow
@pytest.mark.usefixtures("pytorch")
def test_a_pytorch_that_works_says_so():
    found = gather.probe()
    assert found.state == "ok"
    assert found.version
    assert "CPU" in found.activities


def test_gpus_are_as_the_driver_tells_and_none_where_it_fails():
    told = '[{"sm_mhz": 1980, "throttled": ["sw_power_cap"], "processes": 1}]'
    (gpu,) = gather.gpus((sys.executable, "-c", f"print({told!r})"))
    assert gpu == Gpu(sm_mhz=1980, throttled=("sw_power_cap",), processes=1)
    for code in ("", "print('[{]')", "print([1])", "raise SystemExit(3)"):
        assert gather.gpus((sys.executable, "-c", code)) == ()


def test_the_facts_of_this_machine_hold_no_names_of_places(tmp_path, monkeypatch):
    """A Facts record is printed: folders and values of variables must not get into it."""
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "secret-value")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(gather, "probe", lambda: Torch())
    found = gather.gather()
    assert "NSYS_PROFILING_SESSION_ID" in found.around
    assert found.temporary_free
    assert found.memory
    assert found.packages["polars"]
    assert "secret-value" not in repr(found)
    assert str(tmp_path) not in repr(found)


def test_only_what_every_python_needs_is_required(monkeypatch):
    lines = ["polars>=2.0", "tomli>=2.0; python_version < '3.11'", "torch; extra == 'torch'"]
    monkeypatch.setattr(gather.metadata, "requires", lambda package: lines)
    monkeypatch.setattr(gather, "probe", lambda: Torch())
    assert gather.gather().required == {"polars": ">=2.0"}


@pytest.mark.parametrize(
    ("files", "memory", "limited", "quota"),
    [
        (
            {"cgroup": "0::/a/b\n", "memory.max": "1073741824\n", "cpu.max": "150000 100000"},
            GIB,
            True,
            1.5,
        ),
        (
            {"cgroup": "0::/a\n", "memory.max": "max\n", "cpu.max": "max 100000"},
            8 * GIB,
            False,
            None,
        ),
        (
            {
                "cgroup": "5:memory:/a\n3:cpu,cpuacct:/a\n",
                "memory.limit_in_bytes": "2147483648",
                "cpu.cfs_quota_us": "-1",
                "cpu.cfs_period_us": "100000",
            },
            2 * GIB,
            True,
            None,
        ),
        (
            {
                "cgroup": "3:cpu,cpuacct:/a\n",
                "cpu.cfs_quota_us": "200000",
                "cpu.cfs_period_us": "100000",
            },
            8 * GIB,
            False,
            2.0,
        ),
        ({}, 8 * GIB, False, None),
    ],
)
def test_limits_of_control_groups(monkeypatch, files, memory, limited, quota):
    contents = {"meminfo": "MemTotal:  8388608 kB\n", **files}
    for module in (gather, control_group):
        monkeypatch.setattr(module, "_read", lambda path: contents.get(Path(path).name))
    assert gather._memory() == (memory, limited)
    assert control_group.cpu_quota() == quota
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(16))
    assert cores() == (16 if quota is None else 2)
