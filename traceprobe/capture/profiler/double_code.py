"""Which kernels that inductor generated compute with 64 bits, as their texts say.

Their names do not tell, and Nsight Systems has no types of what they are called with.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from traceprobe.model.owner_limits import LONGEST_OWNER, MOST_DOUBLE

_KERNEL = re.compile(r"async_compile\.triton\('(\w+)', '''(.*?)'''", re.DOTALL)
_DOUBLE = re.compile(r"\.to\(tl\.float64\)|'\*fp64'")
"""It makes numbers so long, or is called with tensors of such."""


def double_code() -> list[str]:
    """Names of Triton kernels that have 64 bits in each of their texts; graphs number their own."""
    cache: Any = getattr(sys.modules.get("torch._inductor.codecache"), "PyCodeCache", None)
    found: dict[str, bool] = {}
    for module in getattr(cache, "modules", ()):
        for name, text in _KERNEL.findall(Path(module.__file__).read_text(encoding="utf-8")):
            found[name] = found.get(name, True) and _DOUBLE.search(text) is not None
    names = [name for name, double in found.items() if double and len(name) <= LONGEST_OWNER]
    return names[:MOST_DOUBLE]
