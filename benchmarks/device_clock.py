"""What a GPU's clock is read from, held against loads that are known: costs, throttling, others.

    python benchmarks/device_clock.py measure OUT   # on a machine with a GPU, one minute
    python benchmarks/device_clock.py page          # the page beside docs/validation's .json

`measure` writes OUT/device-clock.json after each of its parts.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from traceprobe.capture.machine.clock_readings import Reading, reason_names  # noqa: E402
from traceprobe.capture.machine.device_clock import (  # noqa: E402
    ALL_EVERY,
    INTERVAL_MS,
    DeviceClock,
    _device_uuid,
)
from traceprobe.capture.machine.nvml import Nvml, NvmlDevice  # noqa: E402
from traceprobe.capture.machine.smi_readings import SmiReadings  # noqa: E402
from traceprobe.capture.machine.spin_kernel import spin_mhz  # noqa: E402

FOLDER = ROOT / "docs" / "validation"
CALLS = 500
"""Of each function, whose cost is their median."""
READ_CALLS, CLOCK_CALLS = 7, 2
"""Of the driver in a whole reading, and in one of the clock."""
READ = (
    "sm_mhz",
    "memory_mhz",
    "power_w",
    "temperature_c",
    "busy_percent",
    "reasons",
    "processes",
    "others_percent",
)


class Card:
    """The GPU, and work for it."""

    def __init__(self) -> None:
        import torch

        torch.cuda.init()
        self.torch = torch
        self.uuid = str(_device_uuid(None))
        self.nvml = Nvml()
        self.device: NvmlDevice = self.nvml.device(self.uuid)
        self.small = torch.randn(64, 64, device="cuda")
        self.large = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)

    def multiply(self, seconds: float) -> tuple[int, int, list[float]]:
        """Matrix products for some seconds: begin, end and the ms of each ten of them."""
        end = time.perf_counter() + seconds
        began, times = time.perf_counter_ns(), []
        while time.perf_counter() < end:
            t = time.perf_counter()
            for _ in range(10):
                self.large @ self.large
            self.torch.cuda.synchronize()
            times.append((time.perf_counter() - t) * 1e3)
        return began, time.perf_counter_ns(), times


def facts(card: Card) -> dict[str, Any]:
    """The GPU, its driver, and what they tell of processes."""
    version = ctypes.create_string_buffer(80)
    card.nvml.call("nvmlSystemGetDriverVersion", version, ctypes.c_uint(80))
    processes = card.device.processes()
    return {
        "gpu": card.torch.cuda.get_device_name(),
        "torch": card.torch.__version__,
        "driver": version.value.decode(),
        "most_sm_mhz": card.device.most_sm_mhz(),
        "power_limit_w": card.device.power_limit_w(),
        "persistent": card.device.persistent(),
        "own_pid": os.getpid(),
        "pids": None if processes is None else [p.pid for p in processes],
        "devices": len(card.nvml.devices()),
    }


def costs(card: Card) -> dict[str, Any]:
    """Microseconds of each call, while the GPU has work; the whole reading, idle and busy."""
    found: dict[str, Any] = {"idle_us": {}, "busy_us": {}}
    for state in ("idle", "busy"):
        for name in (*READ, "read"):
            took = []
            for number in range(CALLS if name != "others_percent" else CALLS // 10):
                if state == "busy" and number % 10 == 0:
                    card.large @ card.large
                t = time.perf_counter_ns()
                getattr(card.device, name)()
                took.append((time.perf_counter_ns() - t) / 1e3)
            found[f"{state}_us"][name] = {"median": median(took), "most": max(took)}
            card.torch.cuda.synchronize()
    return found


def quiet(card: Card) -> dict[str, Any]:
    """Two seconds without work."""
    clock = DeviceClock.start()
    began = time.perf_counter_ns()
    time.sleep(2)
    between = clock.between(began, time.perf_counter_ns())
    clock.stop()
    return {"between": between, "series": _series(clock.readings), "reasons": card.device.reasons()}


def spins(card: Card) -> dict[str, Any]:
    """The kernel of known cycles beside NVML's clock, on a GPU that has nothing else to do."""
    time.sleep(0.5)
    pairs = [(spin_mhz(), card.device.sm_mhz()) for _ in range(20)]
    return {"spin_mhz": [spin for spin, _ in pairs], "nvml_mhz": [mhz for _, mhz in pairs]}


def changes(card: Card) -> dict[str, Any]:
    """When NVML says another clock, polled each half millisecond at the power limit."""
    work = threading.Thread(target=card.multiply, args=(1.7,))
    work.start()
    time.sleep(0.5)
    began, at, last, polls = time.perf_counter(), [], card.device.sm_mhz(), 0
    while time.perf_counter() < began + 1:
        now = card.device.sm_mhz()
        if now != last:
            at.append(round(1e3 * (time.perf_counter() - began), 1))
        last, polls = now, polls + 1
        time.sleep(0.0005)
    work.join()
    return {"polls": polls, "changes_ms": at}


def power(card: Card) -> dict[str, Any]:
    """Large products, then the kernel of known cycles beside NVML's clock."""
    clock = DeviceClock.start()
    began, ended, times = card.multiply(4)
    pairs = []
    for _ in range(10):
        pairs.append((spin_mhz(), card.device.sm_mhz()))
        card.multiply(0.1)
    clock.stop()
    return {
        "between": clock.between(began, ended),
        "series": _series(clock.readings),
        "ten_products_ms": {"first": times[0], "median": median(times), "longest": max(times)},
        "spin_mhz": [spin for spin, _ in pairs],
        "nvml_mhz": [mhz for _, mhz in pairs],
    }


_NEIGHBOUR = """
import sys, time, torch
a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
torch.cuda.synchronize()
print("ready", flush=True)
end = time.time() + float(sys.argv[1])
while time.time() < end:
    for _ in range(20): a @ a
    torch.cuda.synchronize()
"""


def neighbour(card: Card) -> dict[str, Any]:
    """The same products, alone and beside another process that computes."""
    alone = card.multiply(1)[2]
    # Not our child: it is started by a shell that ends, as another user's would be.
    command = f'exec setsid {sys.executable} -c "$CODE" 4 < /dev/null'
    starter = subprocess.Popen(
        ["sh", "-c", f"({command}) & echo started"],
        env={**os.environ, "CODE": _NEIGHBOUR},
        stdout=subprocess.PIPE,
        text=True,
    )
    for _ in range(2):
        if starter.stdout:
            starter.stdout.readline()
    beside, others = [], []
    end = time.perf_counter() + 5.5
    while time.perf_counter() < end:
        beside.append(median(card.multiply(0.15)[2]))
        others.append(card.device.others_percent())
    return {"alone_ms": median(alone), "beside_ms": beside, "others_percent": others}


def overhead(card: Card) -> dict[str, Any]:
    """A loop of short kernels, which the host limits, with and without the thread, in turns."""
    found: dict[str, list[float]] = {"without": [], "with": []}
    for turn in range(80):
        name = ("without", "with", "with", "without")[turn % 4]
        clock = DeviceClock.start() if name == "with" else None
        began, count = time.perf_counter(), 0
        while time.perf_counter() < began + 0.2:
            for _ in range(100):
                card.small.add_(1)
            card.torch.cuda.synchronize()
            count += 100
        found[name].append((time.perf_counter() - began) / count * 1e6)
        if clock is not None:
            clock.stop()
    times = {f"{name}_us": median(each) for name, each in found.items()}
    return {**times, "calls_per_second": _calls_per_second()}


def _calls_per_second() -> int:
    """Of the driver, by the thread: the clock and its reasons each time, all else sometimes."""
    whole = 1 / ALL_EVERY
    return round(1e3 / INTERVAL_MS * (whole * READ_CALLS + (1 - whole) * CLOCK_CALLS))


def smi(card: Card) -> dict[str, Any]:
    """The same by nvidia-smi."""
    began = time.perf_counter()
    readings = SmiReadings(card.uuid, 200)
    found = []
    for reading in readings:
        found.append(reading)
        if len(found) == 5:
            break
    readings.stop()
    return {"seconds": time.perf_counter() - began, "series": _series(found)}


def _series(readings: list[Reading]) -> list[dict[str, Any]]:
    """Up to 40 of the readings, at equal distances."""
    return [
        {
            "at_ms": round((r.at_ns - readings[0].at_ns) / 1e6, 1),
            "sm_mhz": r.sm_mhz,
            "power_w": r.power_w,
            "busy_percent": r.busy_percent,
            "reasons": reason_names(r.reasons) + (["gpu_idle"] if (r.reasons or 0) & 1 else []),
            "others_percent": r.others_percent,
        }
        for r in readings[:: max(1, len(readings) // 40)]
    ]


PARTS: tuple[Callable[[Card], dict[str, Any]], ...] = (
    facts,
    quiet,
    spins,
    costs,
    power,
    changes,
    neighbour,
    overhead,
    smi,
)


def measure(out: Path) -> None:
    """All parts; one that fails does not take the others along."""
    out.mkdir(parents=True, exist_ok=True)
    card, found = Card(), {}
    for part in PARTS:
        try:
            found[part.__name__] = part(card)
        except Exception as error:
            traceback.print_exc()
            found[part.__name__] = {"failed": repr(error)[:300]}
        (out / "device-clock.json").write_text(json.dumps(found, indent=1))
        print(part.__name__, flush=True)


def page(found: dict[str, Any]) -> str:
    """What was measured, for people."""
    about, power, spins = found["facts"], found["power"], found["spins"]
    idle, busy = found["costs"]["idle_us"], found["costs"]["busy_us"]
    rows = [
        f"| `{name}` | {idle[name]['median']:.1f} | {busy[name]['median']:.1f} |"
        for name in (*READ, "read")
    ]
    off = [abs(a / b - 1) for a, b in zip(spins["spin_mhz"], spins["nvml_mhz"], strict=True)]
    capped = [abs(a / b - 1) for a, b in zip(power["spin_mhz"], power["nvml_mhz"], strict=True)]
    series = [r["sm_mhz"] for r in power["series"]]
    neighbour, cost = found["neighbour"], found["overhead"]
    others = [o for o in neighbour["others_percent"] if o]
    return f"""<!-- written by benchmarks/device_clock.py -->
# What readings of a GPU's clock are worth

{about["gpu"]}, driver {about["driver"]}, PyTorch {about["torch"]}; highest clock
{about["most_sm_mhz"]} MHz, power limit {about["power_limit_w"]:.0f} W, as they were set.

- **Resolution.** Polled {found["changes"]["polls"]} times in a second at the power limit, NVML said
  another clock {len(found["changes"]["changes_ms"])} times, multiples of 100 ms apart. So it is
  read each 50 ms.
- **Without work** the clock was {found["quiet"]["between"]["sm_mhz"]:.0f} MHz, and no reason for a
  lower one was given.
- **At the power limit** (products of matrices of 8192, bf16) it was
  {power["between"]["sm_mhz"]:.0f} MHz in the mean of four seconds, between {min(series):.0f} and
  {max(series):.0f} MHz in readings, for the reason `{", ".join(power["between"]["throttled"])}`. It
  never rests there: the lowest of many readings says nothing of a change.
- **The kernel of known cycles** is at most {100 * max(off):.1f} % from NVML's clock where that
  rests ({len(off)} times), and up to {100 * max(capped):.0f} % at the power limit, where both see
  another moment.
- **Another process** with the same work: the median of ten products is
  {median(neighbour["beside_ms"]):.1f} ms instead of {neighbour["alone_ms"]:.1f} ms. The driver's
  share of the others is 0 before, rises while its mean of the last time fills, and is then between
  {min(others[-6:]):.0f} and {max(others[-6:]):.0f} %.
- **Cost.** A loop of launches without a pause took {cost["without_us"]:.2f} µs a launch without the
  thread and {cost["with_us"]:.2f} µs with it, at {cost["calls_per_second"]} calls of the driver a
  second. The thread makes {_calls_per_second()} of them by default.

| call | µs, idle | µs, busy |
| --- | --: | --: |
{chr(10).join(rows)}
"""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("measure", "page"))
    parser.add_argument("out", type=Path, nargs="?", default=FOLDER)
    given = parser.parse_args()
    if given.what == "measure":
        measure(given.out)
        return
    found = json.loads((given.out / "device-clock.json").read_text())
    (FOLDER / "device-clock.md").write_text(page(found))


if __name__ == "__main__":
    main()
