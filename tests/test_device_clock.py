"""The clock of a GPU: what a library like NVIDIA's says, and what readings say of a time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from traceprobe.capture.machine.clock_readings import Reading, reason_names, summarize_readings
from traceprobe.capture.machine.device_clock import FEWEST_S, INTERVAL_MS, DeviceClock
from traceprobe.capture.machine.nvml import Nvml, NvmlMissing
from traceprobe.capture.machine.smi_readings import parse_line
from traceprobe.capture.machine.spin_kernel import spin_mhz
from traceprobe.model.sidecar import BlockClock
from traceprobe.system.process_tree import descends_from

MS = 1_000_000
SOURCE = Path(__file__).parent / "fake_nvml.c"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with NVML's functions, of which some are missing as in an old driver."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build a library like NVML")
    path = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", path, SOURCE], check=True)
    return path


def test_reads_a_device(library: Path) -> None:
    device = Nvml(str(library)).device("GPU-12345678")
    first, second, third = (device.read() for _ in range(3))
    assert (first.sm_mhz, second.sm_mhz, third.sm_mhz) == (1980, 1980, 1200)
    assert (third.memory_mhz, third.power_w, third.busy_percent) == (3201, 698.5, 97)
    assert (device.most_sm_mhz(), device.power_limit_w()) == (1980, 700.0)
    assert (first.reasons, reason_names(third.reasons)) == (
        0,
        ["sw_power_cap", "hw_thermal_slowdown"],
    )
    assert first.at_ns < second.at_ns < third.at_ns


def test_what_a_device_does_not_tell_is_none(library: Path) -> None:
    (device,) = Nvml(str(library)).devices()
    assert device.temperature_c() is None  # refused
    assert device.processes() is None  # no such function
    assert device.others_percent() is None
    assert device.persistent() is None


def test_refuses_what_it_does_not_know(library: Path) -> None:
    with pytest.raises(NvmlMissing, match="GPU-0"):
        Nvml(str(library)).device("GPU-0")
    with pytest.raises(NvmlMissing):
        Nvml("libtraceprobe-has-no-such.so.1")


def test_a_clock_without_a_gpu_reads_nothing() -> None:
    clock = DeviceClock.start()
    assert clock.readings == []
    assert clock.between(0, time.perf_counter_ns()) == {}
    clock.stop()
    clock.stop()
    assert spin_mhz() is None


_READS = """
import os, sys, time
import traceprobe.capture.machine.device_clock as module
module._device_uuid = lambda index: "GPU-12345678"
module.Nvml.__init__.__defaults__ = (sys.argv[1],)
began = time.perf_counter_ns()
clock = module.DeviceClock.start(interval_ms=1)
while len(clock.readings) < 5:
    time.sleep(0.001)
if pid := os.fork():
    assert os.waitpid(pid, 0)[1] == 0
else:
    before = len(clock.readings)
    clock.stop()
    os._exit(0 if before >= 5 else 1)
found = clock.between(began, time.perf_counter_ns())
assert found["lowest_sm_mhz"] == 1200 < found["sm_mhz"], found
assert found["throttled"] == ["sw_power_cap", "hw_thermal_slowdown"], found
if sys.argv[2] == "stop":
    clock.stop()
    count = len(clock.readings)
    time.sleep(0.02)
    assert len(clock.readings) == count
"""


@pytest.mark.parametrize("end", ["stop", "exit"])
def test_a_thread_reads_until_the_end(library: Path, end: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _READS, library, end], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("ago_s", "block_s", "asked_s"), [(60, 5, 5), (60, 0.1, FEWEST_S), (0.3, 0.1, 0.3)]
)
def test_others_count_for_a_block_or_what_is_known_before_it(ago_s, block_s, asked_s) -> None:
    asked = []

    class Device:
        def others_percent(self, seconds: float) -> float:
            asked.append(seconds)
            return 30.0

    clock = DeviceClock(INTERVAL_MS)
    now = time.perf_counter_ns()
    clock._device, clock._began = Device(), now - int(ago_s * 1e9)
    clock._readings.append(Reading(now, 1500.0))
    assert clock.between(now - int(block_s * 1e9), now)["others_percent"] == 30.0
    assert asked == [pytest.approx(asked_s, abs=0.1)]


def test_means_weigh_by_time() -> None:
    readings = [
        Reading(0, 1000.0, reasons=0),
        Reading(10 * MS, 1000.0, reasons=0),
        Reading(20 * MS, 2000.0, reasons=4),
        Reading(60 * MS, 1500.0),
    ]
    found = summarize_readings(readings, 10 * MS, 50 * MS, 10 * MS)
    # 10-15 ms at 1000, 15-40 at 2000, 40-50 at 1500
    assert found == {
        "sm_mhz": (5 * 1000 + 25 * 2000 + 10 * 1500) / 40,
        "lowest_sm_mhz": 1000,
        "throttled": ["sw_power_cap"],
        "samples": 3,
    }
    assert msgspec.convert(found, BlockClock).memory_mhz is None


def test_a_short_time_has_the_nearest_reading_but_none_from_long_ago() -> None:
    readings = [Reading(0, 1000.0), Reading(20 * MS, 2000.0)]
    assert summarize_readings(readings, 11 * MS, 12 * MS, 20 * MS)["sm_mhz"] == 2000
    assert summarize_readings(readings, 5000 * MS, 5001 * MS, 20 * MS) == {}


def test_an_idle_clock_counts_only_where_there_is_no_other() -> None:
    idle = [Reading(0, 345.0, busy_percent=0.0), Reading(10 * MS, 345.0, reasons=1)]
    busy = [Reading(20 * MS, 1980.0, busy_percent=80.0, reasons=0)]
    mixed = summarize_readings([*idle, *busy], 0, 20 * MS, 10 * MS)
    assert (mixed["sm_mhz"], mixed["lowest_sm_mhz"], mixed["throttled"]) == (1980, 1980, [])
    assert summarize_readings(idle, 0, 20 * MS, 10 * MS)["sm_mhz"] == 345


def test_lines_of_nvidia_smi() -> None:
    line = "1980, 3201, 412.57, 45, 98, 0x0000000000000004\n"
    assert parse_line(line, 7) == Reading(7, 1980, 3201, 412.57, 45, 98, 4)
    missing = parse_line("1980, [N/A], [Not Supported], 45, 98, [N/A]", 7)
    assert missing == Reading(7, 1980, None, None, 45, 98, None)
    assert parse_line("No devices were found", 7) is None


def test_processes_below_this_one() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert descends_from(child.pid, os.getpid())
        assert not descends_from(os.getpid(), child.pid)
        child.communicate(b"\n")
    assert descends_from(os.getpid(), os.getpid())
    assert not descends_from(1 << 30, os.getpid())
