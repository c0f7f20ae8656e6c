"""What PyTorch's profiler leaves in a process that goes on training."""

from __future__ import annotations

import os

TEARDOWN = "TEARDOWN_CUPTI"
"""Asked by the profiler's library when a profile ends."""
SAFE_SINCE = 12, 6
"""Version of CUDA before which a program with CUDA graphs may crash when a profiler comes back."""


def detach_after_profiles() -> None:
    """Have NVIDIA's profiling interface leave the process whenever a profile ends.

    It otherwise stays, and slows every launch that follows: on an H200, loops that the host limits
    took 10 to 35 % longer after a profile than before it. Who has set the variable is not
    overruled. It stays set, because the interface is also told when the next profile begins.
    """
    import torch

    version = torch.version.cuda
    if version is not None and tuple(map(int, version.split(".")[:2])) >= SAFE_SINCE:
        os.environ.setdefault(TEARDOWN, "1")
