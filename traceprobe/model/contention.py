"""How much slower kernels are beside a collective than alone, measured.

"""

from __future__ import annotations

from collections.abc import Mapping

SLOWDOWN: Mapping[str, float] = {}
UNKNOWN_CLASS = 1.1
"""Of classes that were not measured."""
