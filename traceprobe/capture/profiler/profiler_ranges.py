"""Named ranges for both profilers at once, and for none at almost no cost."""

from __future__ import annotations

import os
from typing import Any

_UNDER_NSYS = "NSYS_PROFILING_SESSION_ID"


class ProfilerRanges:
    """Makes ranges: `record_function` under torch.profiler, NVTX under Nsight Systems."""

    def __init__(self) -> None:
        import torch

        self._enabled = torch.autograd._profiler_enabled
        self._record_function = torch.profiler.record_function
        self._nvtx = _nvtx() if _UNDER_NSYS in os.environ else None

    def __call__(self, name: str) -> ProfilerRange:
        """A context manager for one range."""
        if self._enabled():
            return ProfilerRange(name, self._record_function(name), self._nvtx)
        return NO_RANGE if self._nvtx is None else ProfilerRange(name, None, self._nvtx)


class ProfilerRange:
    """One range; entered and left on the same thread."""

    __slots__ = ("_function", "_name", "_nvtx")

    def __init__(self, name: str, function: Any, nvtx: Any) -> None:
        self._name, self._function, self._nvtx = name, function, nvtx

    def __enter__(self) -> None:
        if self._nvtx is not None:
            self._nvtx.range_push(self._name)
        if self._function is not None:
            self._function.__enter__()

    def __exit__(self, *error: object) -> None:
        if self._function is not None:
            self._function.__exit__(*error)
        if self._nvtx is not None:
            self._nvtx.range_pop()


NO_RANGE = ProfilerRange("", None, None)
"""What a range is while nobody records: one object, entered again and again."""


def _nvtx() -> Any:
    """NVTX bindings of torch; None on builds without CUDA, where calling them raises."""
    import torch

    return torch.cuda.nvtx if torch.cuda.is_available() else None
