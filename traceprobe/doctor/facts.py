"""What the checks of a machine know of it. Gathered in `gather`, so that the checks are pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

Version = tuple[int, ...]


class Torch(msgspec.Struct, frozen=True):
    """What a process of its own found out about PyTorch.

    Args:
        state: "absent" where it is not installed, "hangs" and "broken" where it does not answer.
        error: the name of the exception or of the signal, where there was one.
        version: None where the import failed.
        cuda: CUDA (or "ROCm x") that it was built for; None is a CPU build.
        stage: the last thing that it answered: "", "import", "cuda", "profiler".
        cupti: base name of the libcupti that is loaded; `bundled_cupti` the one that came with
            PyTorch; `cupti_from_path` whether LD_LIBRARY_PATH chose it.
    """

    state: Literal["absent", "ok", "broken", "hangs"] = "absent"
    error: str = ""
    stage: str = ""
    version: str | None = None
    cuda: str | None = None
    cuda_available: bool = False
    devices: tuple[str, ...] = ()
    kineto: bool | None = None
    activities: tuple[str, ...] = ()
    distributed: bool = False
    nccl: str | None = None
    cupti: str | None = None
    bundled_cupti: str | None = None
    cupti_from_path: bool = False


class Gpu(msgspec.Struct, frozen=True):
    """A GPU at the moment, as its driver tells; None is what it does not.

    Args:
        most_sm_mhz: the highest clock of its multiprocessors.
        busy_percent: time in which a kernel ran, lately.
        throttled: reasons for a lower clock, by NVML's names.
        processes: how many compute on it; `memory_bytes` what they hold together.
        persistent: the driver stays loaded when nobody uses the GPU.
    """

    sm_mhz: float | None = None
    most_sm_mhz: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    busy_percent: float | None = None
    throttled: tuple[str, ...] = ()
    processes: int | None = None
    memory_bytes: int | None = None
    persistent: bool | None = None


class Facts(msgspec.Struct, frozen=True):
    """A machine as this process sees it. None is what could not be found out.

    Args:
        packages: dependency to installed version, None where it is missing.
        required: dependency to version specifiers, as in `>=2.0,<3`.
        driver: version of the NVIDIA driver; None without one.
        gpus: all that the driver lists, also those that are hidden.
        hidden_gpus: CUDA_VISIBLE_DEVICES leaves none.
        admin_only: the driver keeps performance counters for administrators.
        sys_admin: this process has CAP_SYS_ADMIN.
        paranoid: /proc/sys/kernel/perf_event_paranoid.
        around: environment variables that a profiler around this process sets.
        monitors: services that may hold the GPU's counters.
        temporary_free: bytes free where temporary files go; `temporary_writable` whether any can.
        memory: bytes that this process may use, `memory_limited` whether a control group says so.
        cores: of the affinity; `quota` the cores of time that a control group grants.
    """

    python: Version
    packages: Mapping[str, str | None]
    required: Mapping[str, str] = msgspec.field(default_factory=dict)
    torch: Torch = msgspec.field(default_factory=Torch)
    nsys: str | None = None
    nsys_error: str = ""
    driver: str | None = None
    gpus: tuple[Gpu, ...] = ()
    hidden_gpus: bool = False
    admin_only: bool | None = None
    sys_admin: bool | None = None
    paranoid: int | None = None
    around: tuple[str, ...] = ()
    monitors: tuple[str, ...] = ()
    dali: str | None = None
    temporary_free: int | None = None
    temporary_writable: bool = True
    memory: int | None = None
    memory_limited: bool = False
    cores: int = 1
    quota: float | None = None
