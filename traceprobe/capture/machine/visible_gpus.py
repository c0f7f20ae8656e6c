"""The GPUs of this machine, as PyTorch counts them."""

from __future__ import annotations

import re

from traceprobe.capture.process.program import torch_interpreter
from traceprobe.capture.process.supervised import SupervisorLost, capture_output
from traceprobe.system import isolated

_CODE = "import torch; print(torch.cuda.device_count())"
_SECONDS = 120.0
"""On a cold network file system the import alone takes half a minute."""


def visible_gpus() -> int:
    """GPUs that PyTorch sees, asked in a process of its own; CUDA_VISIBLE_DEVICES counts.

    None are seen where it fails or hangs.

    Raises:
        UsageError: there is no PyTorch.
    """
    torch_interpreter()
    try:
        output = capture_output(isolated.command(_CODE), _SECONDS)
    except (OSError, SupervisorLost):
        return 0
    count = re.search(rb"(\d{1,6})\s*\Z", output.stdout)  # libraries may print before
    return int(count[1]) if count and output.exit_code == 0 else 0
