"""NVIDIA's management library, as far as a GPU's clock needs it, without its Python bindings.

The library comes with the driver. Each call costs microseconds and starts nothing on the GPU. What
a GPU, a container or a driver does not tell is None.
"""

from __future__ import annotations

import ctypes
import os
import time
from ctypes import Structure, byref, c_char_p, c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass, replace

from traceprobe.capture.machine.clock_readings import Reading
from traceprobe.system.process_tree import descends_from

LIBRARY = "libnvidia-ml.so.1"
_SM, _MEMORY = 1, 2
_GPU_TEMPERATURE = 0
_MOST_PROCESSES = 256
_MILLI = 1000.0
_NOT_FOUND = 6
LATELY_S = 1.0
"""Time over which the driver averages what each process uses, if not told otherwise. It samples ten
times a second: over much less a process that has half of the GPU's time may seem to have none, or
all."""


class NvmlMissing(Exception):
    """There is no library, no driver or no such GPU."""


class _Utilization(Structure):
    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class _ProcessSample(Structure):
    """nvmlProcessUtilizationSample_t."""

    _fields_ = (
        ("pid", c_uint),
        ("time_us", c_ulonglong),
        ("sm", c_uint),
        ("memory", c_uint),
        ("encoder", c_uint),
        ("decoder", c_uint),
    )


class _Process(Structure):
    """nvmlProcessInfo_t of the functions that end in _v2 and _v3."""

    _fields_ = (
        ("pid", c_uint),
        ("memory_bytes", c_ulonglong),
        ("gpu_instance", c_uint),
        ("compute_instance", c_uint),
    )


@dataclass(frozen=True)
class GpuProcess:
    """A process that computes on a GPU.

    Args:
        memory_bytes: that it uses; None where the driver does not tell.
    """

    pid: int
    memory_bytes: int | None


class Nvml:
    """The library, ready for use.

    Args:
        library: its file, or its name for the loader.

    Raises:
        NvmlMissing: it cannot be loaded, or finds no driver.
    """

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise NvmlMissing(str(error)) from error
        code = self.call("nvmlInit_v2")
        if code != 0:
            raise NvmlMissing(f"nvmlInit_v2 returns {code}")

    def call(self, name: str, *arguments: object) -> int | None:
        """What a function of the library returns, 0 for success; None where it has none such."""
        function = getattr(self._library, name, None)
        return None if function is None else int(function(*arguments))

    def device(self, uuid: str) -> NvmlDevice:
        """A GPU by its UUID, as `GPU-…`.

        Raises:
            NvmlMissing: the library does not know it. So it is with a part of one (MIG).
        """
        handle = c_void_p()
        if self.call("nvmlDeviceGetHandleByUUID", c_char_p(uuid.encode()), byref(handle)) != 0:
            raise NvmlMissing(f"no GPU {uuid}")
        return NvmlDevice(self, handle)

    def devices(self) -> list[NvmlDevice]:
        """All GPUs of the machine, as the driver numbers them."""
        count = c_uint()
        found = []
        if self.call("nvmlDeviceGetCount_v2", byref(count)) == 0:
            for index in range(count.value):
                handle = c_void_p()
                if self.call("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(handle)) == 0:
                    found.append(NvmlDevice(self, handle))
        return found


class NvmlDevice:
    """A GPU; None where it does not tell."""

    def __init__(self, nvml: Nvml, handle: c_void_p) -> None:
        self._nvml, self._handle = nvml, handle

    def _number(self, name: str, *arguments: object) -> int | None:
        value = c_uint()
        code = self._nvml.call(name, self._handle, *arguments, byref(value))
        return int(value.value) if code == 0 else None

    def _scaled(self, name: str) -> float | None:
        value = self._number(name)
        return None if value is None else value / _MILLI

    def sm_mhz(self) -> int | None:
        """Clock of the multiprocessors."""
        return self._number("nvmlDeviceGetClockInfo", c_uint(_SM))

    def most_sm_mhz(self) -> int | None:
        """The highest clock of the multiprocessors."""
        return self._number("nvmlDeviceGetMaxClockInfo", c_uint(_SM))

    def memory_mhz(self) -> int | None:
        """Clock of the memory."""
        return self._number("nvmlDeviceGetClockInfo", c_uint(_MEMORY))

    def power_w(self) -> float | None:
        """Power that the board draws."""
        return self._scaled("nvmlDeviceGetPowerUsage")

    def power_limit_w(self) -> float | None:
        """Power that it is allowed."""
        return self._scaled("nvmlDeviceGetEnforcedPowerLimit")

    def temperature_c(self) -> int | None:
        """Temperature of the GPU."""
        return self._number("nvmlDeviceGetTemperature", c_uint(_GPU_TEMPERATURE))

    def persistent(self) -> bool | None:
        """Whether the driver stays loaded when nobody uses the GPU."""
        mode = self._number("nvmlDeviceGetPersistenceMode")
        return None if mode is None else bool(mode)

    def busy_percent(self) -> int | None:
        """Time in which a kernel ran, lately."""
        rates = _Utilization()
        code = self._nvml.call("nvmlDeviceGetUtilizationRates", self._handle, byref(rates))
        return int(rates.gpu) if code == 0 else None

    def reasons(self) -> int | None:
        """Why the clock is lower than it could be: bits of `clock_readings.REASONS`."""
        mask = c_ulonglong()
        for name in (  # the second is what drivers before 535 call it
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
        ):
            if self._nvml.call(name, self._handle, byref(mask)) == 0:
                return int(mask.value)
        return None

    def processes(self) -> list[GpuProcess] | None:
        """Those that compute on it, by the numbers of the driver's namespace of processes."""
        count = c_uint(_MOST_PROCESSES)
        found = (_Process * _MOST_PROCESSES)()
        for name in (
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetComputeRunningProcesses_v2",
        ):
            if self._nvml.call(name, self._handle, byref(count), found) == 0:
                unknown = c_ulonglong(-1).value
                return [
                    GpuProcess(p.pid, None if p.memory_bytes == unknown else p.memory_bytes)
                    for p in found[: count.value]
                ]
        return None

    def others_percent(self, seconds: float = LATELY_S) -> float | None:
        """Time in which kernels of processes ran that are not this one nor its children, lately.

        None where the driver counts processes by other numbers than this one does, as it does in
        many containers: then nobody knows whose they are.

        Args:
            seconds: until now, over which it is the mean.
        """
        processes = self.processes()
        if processes is None or not any(descends_from(p.pid, os.getpid()) for p in processes):
            return None
        others = {p.pid for p in processes if not descends_from(p.pid, os.getpid())}
        if not others:
            return 0.0
        shares = self.process_percent(seconds)
        if shares is None:
            return None
        return float(min(sum(share for pid, share in shares.items() if pid in others), 100))

    def process_percent(self, seconds: float = LATELY_S) -> dict[int, int] | None:
        """Time in which kernels of each process ran, the mean of the last seconds."""
        count = c_uint(_MOST_PROCESSES)
        samples = (_ProcessSample * _MOST_PROCESSES)()
        code = self._nvml.call(
            "nvmlDeviceGetProcessUtilization",
            self._handle,
            samples,
            byref(count),
            c_ulonglong(int((time.time() - seconds) * 1e6)),
        )
        if code == _NOT_FOUND:
            return {}
        if code != 0:
            return None
        told = [s for s in samples[: count.value] if s.sm <= 100]
        return {int(s.pid): int(s.sm) for s in sorted(told, key=lambda s: s.time_us)}

    def read(self) -> Reading:
        """All that changes, at this moment."""
        return Reading(
            sm_mhz=self.sm_mhz(),
            memory_mhz=self.memory_mhz(),
            power_w=self.power_w(),
            temperature_c=self.temperature_c(),
            busy_percent=self.busy_percent(),
            reasons=self.reasons(),
            others_percent=self.others_percent(),
            at_ns=time.perf_counter_ns(),
        )

    def read_clock(self, earlier: Reading) -> Reading:
        """The clock and what lowers it at this moment, the rest as it was earlier."""
        return replace(
            earlier, sm_mhz=self.sm_mhz(), reasons=self.reasons(), at_ns=time.perf_counter_ns()
        )
