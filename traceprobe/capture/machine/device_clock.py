"""The clock of the GPU that a program computes on, read all the while by a thread."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from itertools import count
from typing import Any

from traceprobe.capture.machine.clock_readings import Reading, summarize_readings
from traceprobe.capture.machine.nvml import Nvml, NvmlDevice, NvmlMissing
from traceprobe.capture.machine.smi_readings import SmiReadings

INTERVAL_MS = 50.0
"""Between two readings; NVML changes what it says of a clock each 100 ms (H200, driver 580).

A call costs 1 to 3 µs, but each hands Python's lock over and back, which a loop that launches short
kernels without a pause feels: 1.6 % at 305 calls a second, of which 65 are left."""
SMI_INTERVAL_MS = 200
"""The same for nvidia-smi, which takes much longer for each."""
ALL_EVERY = 4
"""Readings of which one is whole; the others are of the clock, and what lowers it."""
FEWEST_S = 0.5
"""Shortest time over which the driver is asked what others use: five of its samples."""
MOST_READINGS = 200_000
"""Readings that are kept, the last ones: more than an hour."""


class DeviceClock:
    """Reads a GPU's clock until it is stopped; `start` makes one.

    It never fails and never waits for the GPU. Where there is nothing to read, there are no
    readings. In a process that was forked there are only those from before.
    """

    def __init__(self, interval_ms: float) -> None:
        self._interval_ms = interval_ms
        self._readings: deque[Reading] = deque(maxlen=MOST_READINGS)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._smi: SmiReadings | None = None
        self._device: NvmlDevice | None = None
        self._began = time.perf_counter_ns()
        self._pid = os.getpid()

    @classmethod
    def start(cls, index: int | None = None, interval_ms: float = INTERVAL_MS) -> DeviceClock:
        """Read from now on.

        A program that has not used CUDA yet has no device: start it when the first step was made.

        Args:
            index: of the device, as PyTorch counts; the calling thread's current one for None.
            interval_ms: between two readings.
        """
        clock = cls(interval_ms)
        uuid = _device_uuid(index)
        if uuid is not None:
            try:
                clock._begin(uuid)
            except Exception:  # a driver that is in trouble is not the program's trouble
                clock.stop()
        return clock

    def _begin(self, uuid: str) -> None:
        try:
            self._device = Nvml().device(uuid)
            readings = self._ask(self._device)
        except NvmlMissing:
            self._interval_ms = max(self._interval_ms, SMI_INTERVAL_MS)
            self._smi = SmiReadings(uuid, int(self._interval_ms))
            readings = iter(self._smi)
        self._thread = threading.Thread(
            target=self._gather, args=(readings,), name="traceprobe-device-clock", daemon=True
        )
        self._thread.start()
        atexit.register(self.stop)

    def _ask(self, device: NvmlDevice) -> Iterator[Reading]:
        """Readings at each interval, until it is stopped."""
        reading = device.read()
        for number in count(1):
            yield reading
            if self._ended.wait(self._interval_ms / 1e3):
                return
            reading = device.read_clock(reading) if number % ALL_EVERY else device.read()

    def _gather(self, readings: Iterator[Reading]) -> None:
        """Keep the readings; the thread's whole life."""
        try:
            for reading in readings:
                if self._ended.is_set():
                    return
                self._readings.append(reading)
        except Exception:  # those so far hold
            return

    @property
    def readings(self) -> list[Reading]:
        """All that are kept, in order of time."""
        return list(self._readings.copy())

    @property
    def latest(self) -> Reading | None:
        """The last reading; None before the first."""
        return self._readings[-1] if self._readings else None

    def between(self, t0_ns: int, t1_ns: int) -> dict[str, Any]:
        """The fields of `BlockClock` over a time that ends now, as `summarize_readings` makes them.

        Empty where nothing was read. `spin_mhz` is not among them: `spin_kernel` measures it.

        Args:
            t0_ns, t1_ns: the time, by `time.perf_counter_ns`.
        """
        found = summarize_readings(self.readings, t0_ns, t1_ns, int(self._interval_ms * 1e6))
        others = self._others_percent(t0_ns) if found else None
        return found if others is None else {**found, "others_percent": others}

    def _others_percent(self, t0_ns: int) -> float | None:
        """What other processes have used of the device since then.

        Over a short time the samples are too few, so the mean is one over `FEWEST_S` at least, but
        never of a time before this clock: a job that ended just before is no neighbour.
        """
        if self._device is None or os.getpid() != self._pid:
            return None
        now = time.perf_counter_ns()
        since = max(min(t0_ns, now - int(FEWEST_S * 1e9)), self._began)
        return self._device.others_percent((now - since) / 1e9)

    def stop(self) -> None:
        """Read no more; may be called twice, and by a process that was forked."""
        self._ended.set()
        if os.getpid() != self._pid:
            return
        atexit.unregister(self.stop)
        if self._smi is not None:
            self._smi.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=2)


def _device_uuid(index: int | None) -> str | None:
    """The UUID of a device of this process, in NVML's form; None where it has none.

    It never starts CUDA: a program that forks before it does would lose it.
    """
    import torch

    try:
        if torch.version.hip or not torch.cuda.is_initialized():
            return None
        device = torch.cuda.current_device() if index is None else index
        uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    except Exception:
        return None
    return None if uuid is None else f"GPU-{uuid}"
