"""What a GPU's clock is read from, held against loads that are known: costs, throttling, others.

    python benchmarks/device_clock.py measure OUT   # on a machine with a GPU, one minute
    python benchmarks/device_clock.py page OUT      # docs/validation/device-clock.md and .json

`measure` writes OUT/device-clock.json after each of its parts.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from traceprobe.capture.clock_readings import Reading, reason_names  # noqa: E402
from traceprobe.capture.device_clock import DeviceClock, _device_uuid  # noqa: E402
from traceprobe.capture.nvml import Nvml, NvmlDevice  # noqa: E402
from traceprobe.capture.smi_readings import SmiReadings  # noqa: E402
from traceprobe.capture.spin_kernel import spin_mhz  # noqa: E402

FOLDER = ROOT / "docs" / "validation"
CALLS = 500
"""Of each function, whose cost is their median."""
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


def power(card: Card) -> dict[str, Any]:
    """Large products, then the spin kernel beside NVML's clock."""
    clock = DeviceClock.start()
    began, ended, times = card.multiply(4)
    spins = []
    for _ in range(10):
        t0 = time.perf_counter_ns()
        spin = spin_mhz()
        took = time.perf_counter_ns() - t0
        spins.append(
            {"spin_mhz": spin, "nvml_mhz": card.device.sm_mhz(), "took_ms": round(took / 1e6, 2)}
        )
        card.multiply(0.1)
    clock.stop()
    return {
        "between": clock.between(began, ended),
        "series": _series(clock.readings),
        "ten_products_ms": {"first": times[0], "median": median(times), "longest": max(times)},
        "spins": spins,
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
    command = f'exec setsid {sys.executable} -c "$CODE" 5 < /dev/null'
    starter = subprocess.Popen(
        ["sh", "-c", f"({command}) & echo started"],
        env={**os.environ, "CODE": _NEIGHBOUR},
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = [starter.stdout.readline().strip() for _ in range(2)] if starter.stdout else []
    clock = DeviceClock.start()
    began, ended, beside = card.multiply(3)
    spin = spin_mhz()
    clock.stop()
    processes = card.device.processes()
    return {
        "said": lines,
        "between": clock.between(began, ended),
        "others_seen": sorted({r.others_percent for r in clock.readings}, key=str),
        "alone_ms": median(alone),
        "beside_ms": median(beside),
        "spin_mhz": spin,
        "pids": None if processes is None else [p.pid for p in processes],
    }


def overhead(card: Card) -> dict[str, Any]:
    """A loop of short kernels, which the host limits, with and without the thread, in turns."""
    rates: dict[str, list[float]] = {"without": [], "with": []}
    for turn in range(24):
        name = ("without", "with")[turn % 2]
        clock = DeviceClock.start() if name == "with" else None
        began = time.perf_counter()
        count = 0
        while time.perf_counter() < began + 0.5:
            for _ in range(100):
                card.small.add_(1)
            card.torch.cuda.synchronize()
            count += 100
        rates[name].append(count / (time.perf_counter() - began))
        if clock is not None:
            clock.stop()
    slower = [a / b - 1 for a, b in zip(rates["without"], rates["with"], strict=True)]
    return {"slower_percent": 100 * mean(slower), "of_turns": [round(100 * s, 2) for s in slower]}


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
    costs,
    power,
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


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("measure",))
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    measure(given.out)


if __name__ == "__main__":
    main()
