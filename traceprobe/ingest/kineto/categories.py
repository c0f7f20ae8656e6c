"""The categories of Chrome events that are read, by what they hold."""

from __future__ import annotations

GPU = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
CALLS = (
    *("cuda_runtime", "cuda_driver", "Runtime", "xpu_runtime", "xpu_driver", "mtia_runtime"),
    *("privateuse1_runtime", "privateuse1_driver"),
)
OPERATORS = ("cpu_op", "Operator")
RANGES = ("user_annotation", "User")
OVERHEAD = ("overhead",)
STACKS = ("python_function", "Python")
BLAME = ("blame",)
"""Frames and modules that our own recordings borrow from a second capture."""
MEMORY = ("cpu_instant_event",)
WORK = ("kernel", "memcpy", "memset")
"""What a category of `GPU` means; the column `category` holds indices into this."""
WORK_OF = {category: WORK.index(category.lower().removeprefix("gpu_")) for category in GPU}
