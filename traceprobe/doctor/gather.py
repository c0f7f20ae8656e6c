"""Facts of this machine. Whatever cannot be found out stays unknown; nothing here raises."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from traceprobe.capture.process.nsys_tool import installed_nsys
from traceprobe.capture.process.supervised import SupervisorLost, capture_output
from traceprobe.doctor.facts import Facts, Gpu, Torch
from traceprobe.system import isolated
from traceprobe.system.control_group import cpu_quota, memory_limit
from traceprobe.system.cores import affinity

PROBE = Path(__file__).with_name("torch_probe.py")
PROBE_SECONDS = 120.0
"""On a cold network file system the import alone takes half a minute."""
TOOL_SECONDS = 30.0
PACKAGES = ("polars", "pandas", "numpy", "msgspec", "jinja2", "altair", "typer", "rich")
_AROUND = (
    *("NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"),
    *("NV_NSIGHT_INJECTION_PORT_BASE", "NV_COMPUTE_PROFILER_PERFWORKS_DIR"),
)
_DALI = ("nvidia-dali-cuda110", "nvidia-dali-cuda120", "nvidia-dali-cuda130")
_MONITORS = ("nv-hostengine", "dcgm-exporter")
_CAP_SYS_ADMIN = 21
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)\s*\(?([<>=!~][^;)]*)?")


def gather() -> Facts:
    """Look around. Takes as long as PyTorch takes to import."""
    nsys, error = _nsys()
    memory, limited = _memory()
    writable, free = _temporary()
    return Facts(
        python=sys.version_info[:3],
        packages={name: _installed(name) for name in PACKAGES},
        required=_required(),
        torch=probe(),
        nsys=nsys,
        nsys_error=error,
        driver=_first(r"\b(\d+\.\d+(?:\.\d+)?)\b", _read("/proc/driver/nvidia/version")),
        gpus=gpus(),
        hidden_gpus=os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"),
        admin_only=_admin_only(),
        sys_admin=_sys_admin(),
        paranoid=_integer(_read("/proc/sys/kernel/perf_event_paranoid")),
        around=tuple(name for name in _AROUND if os.environ.get(name)),
        monitors=tuple(name for name in _MONITORS if name[:15] in set(_commands())),
        dali=next((v for v in map(_installed, _DALI) if v is not None), None),
        temporary_free=free,
        temporary_writable=writable,
        memory=memory,
        memory_limited=limited,
        cores=affinity(),
        quota=cpu_quota(),
    )


def probe(command: tuple[str, ...] = (), seconds: float = PROBE_SECONDS) -> Torch:
    """What PyTorch answers, asked in a process of its own.

    Args:
        command: what to run instead of `torch_probe.py`.
    """
    asked = list(command) or isolated.script(str(PROBE))
    try:
        output = capture_output(asked, seconds)
    except (OSError, SupervisorLost) as error:
        return Torch(state="broken", error=type(error).__name__)
    ended = output.exit_code
    known: dict[str, Any] = {}
    for answer in _answers(output.stdout):
        known |= answer
    stage = known.pop("stage", "")
    if stage == "absent":
        return Torch()
    for name in ("devices", "activities"):
        known[name] = tuple(known.get(name, ()))
    why = known.pop("error", "")
    if ended is None:
        return Torch(state="hangs", stage=stage, **known)
    if stage == "profiler" and not ended:
        return Torch(state="ok", stage=stage, **known)
    if ended < 0:
        why = signal.Signals(-ended).name
    stage = "" if stage == "error" else stage
    return Torch(state="broken", error=why or f"exit code {ended}", stage=stage, **known)


def _answers(said: bytes) -> Iterator[dict[str, Any]]:
    """The lines that are the probe's own; libraries may print too."""
    for line in said.decode("utf-8", "replace").splitlines():
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        if isinstance(answer, dict) and "stage" in answer:
            yield answer


def gpus(command: tuple[str, ...] = ()) -> tuple[Gpu, ...]:
    """What the driver tells of each GPU, asked in a process of its own: drivers hang.

    Args:
        command: what to run instead of `gpu_probe`.
    """
    code = "from traceprobe.doctor.gpu_probe import main; main()"
    try:
        output = capture_output(list(command) or isolated.command(code), TOOL_SECONDS)
        found = msgspec.json.decode(output.stdout, type=list[Gpu])
    except (OSError, SupervisorLost, msgspec.DecodeError):
        return ()
    return tuple(found)


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _required() -> dict[str, str]:
    """Lower and upper bounds from the package's own metadata; empty in a bare source tree.

    What only some Pythons or extras need has a marker, after a semicolon.
    """
    try:
        lines = metadata.requires("traceprobe") or []
    except metadata.PackageNotFoundError:
        return {}
    matches = (_REQUIREMENT.match(line) for line in lines if ";" not in line)
    return {m[1].lower(): (m[2] or "").replace(" ", "") for m in matches if m}


def _nsys() -> tuple[str | None, str]:
    """Version of nsys, and why there is none although it is installed."""
    tool = installed_nsys()
    if tool is None:
        return None, ""
    try:
        output = capture_output([tool, "--version"], TOOL_SECONDS)
    except (OSError, SupervisorLost) as error:
        return None, type(error).__name__
    if output.exit_code is None:
        return None, "TimeoutExpired"
    version = _first(r"(\d{4}\.\d+(?:\.\d+)*)", output.stdout.decode("utf-8", "replace"))
    return version, "" if version else f"exit code {output.exit_code}"


def _admin_only() -> bool | None:
    text = _read("/proc/driver/nvidia/params")
    value = _first(r"RmProfilingAdminOnly:\s*(\d+)", text)
    return None if value is None else value != "0"


def _sys_admin() -> bool | None:
    bits = _first(r"CapEff:\s*([0-9a-fA-F]+)", _read("/proc/self/status"))
    return None if bits is None else bool(int(bits, 16) >> _CAP_SYS_ADMIN & 1)


def _commands() -> Iterator[str]:
    """Names of the running programs, cut to 15 characters by the kernel."""
    for path in Path("/proc").glob("[0-9]*/comm"):
        text = _read(path)
        if text is not None:
            yield text.strip()


def _temporary() -> tuple[bool, int | None]:
    """Whether temporary files can be written, and how much fits."""
    try:
        with tempfile.TemporaryDirectory(prefix="traceprobe-") as folder:
            return True, shutil.disk_usage(folder).free
    except OSError:
        return False, None


def _memory() -> tuple[int | None, bool]:
    """Bytes of memory for this process, and whether its control group sets them."""
    total = _integer(_first(r"MemTotal:\s*(\d+) kB", _read("/proc/meminfo")))
    machine = None if total is None else total * 1024
    limit = memory_limit()
    if limit is not None and (machine is None or limit < machine):
        return limit, True
    return machine, False


def _read(path: str | Path) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _first(pattern: str, text: str | None) -> str | None:
    match = re.search(pattern, text or "")
    return match[1] if match else None


def _integer(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None
