"""What functions are called by the program that has them."""

from __future__ import annotations

import re

_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+")
"""What torch.compile calls the rest of a function after a break of its graph."""


def function_name(name: str) -> str:
    """The name of a function; of the rest of one after a graph break, that of the whole."""
    resumed = _RESUMED.fullmatch(name)
    return resumed[1] if resumed else name
