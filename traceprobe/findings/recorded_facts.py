"""What a capture recorded of the machine and of the program's settings.

Any job may write into its trace, so what is not of the expected kind is as good as missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_EXACT = 1 << 53
"""The largest count that a float holds exactly, which is more than anything here has."""


def whole(recorded: object) -> int | None:
    """A count; None for what is none."""
    if not isinstance(recorded, int) or isinstance(recorded, bool):
        return None
    return recorded if 0 <= recorded <= _EXACT else None


def cores(capture: Mapping[str, Any]) -> int | None:
    """CPUs that a process of the program may use, where the capture recorded it."""
    return whole(_mapping(capture, "hardware").get("cpu_count")) or None


def has_nvlink(capture: Mapping[str, Any]) -> bool | None:
    """Whether NVLink joins the GPUs of the machine; None where the capture did not record it.

    As `nvidia-smi topo` calls connections: NV and the number of links.
    """
    joined = _mapping(capture, "hardware").get("links")
    names = [name for name in joined if name] if isinstance(joined, list) else []
    if not names:
        return None
    return any(isinstance(name, str) and name.startswith("NV") for name in names)


def allows_tf32(capture: Mapping[str, Any]) -> bool:
    """Whether the capture recorded that products and convolutions may both use TF32."""
    flags = _mapping(capture, "flags")
    products = flags.get("matmul_precision") in ("high", "medium")
    return products and flags.get("cudnn_allow_tf32") is True


def setting(workload: Mapping[str, Any] | None, name: str) -> object:
    """A setting of the program, where the capture recorded it; else None."""
    return _mapping(workload or {}, "settings").get(name)


def _mapping(recorded: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A mapping within what a capture recorded; empty where there is none."""
    found = recorded.get(name)
    return found if isinstance(found, Mapping) else {}
