"""What polars' allocator is told, by a variable that it reads once, as it is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping

VARIABLE = "_RJEM_MALLOC_CONF"
_BRIEFLY = "dirty_decay_ms:50,muzzy_decay_ms:0"


def keep_briefly() -> None:
    """Have it give back what is freed within 50 ms, not half a second, before it is loaded.

    An analysis asks for other sizes meanwhile: a tenth of its memory. What the user has told the
    allocator comes last, and counts.
    """
    os.environ[VARIABLE] = ",".join(filter(None, (_BRIEFLY, os.environ.get(VARIABLE))))


def as_it_was(variables: Mapping[str, str]) -> dict[str, str]:
    """An environment as it was before `keep_briefly`, for programs that are not ours."""
    told = variables.get(VARIABLE, "").removeprefix(_BRIEFLY).removeprefix(",")
    others = {name: value for name, value in variables.items() if name != VARIABLE}
    return {**others, VARIABLE: told} if told else others
