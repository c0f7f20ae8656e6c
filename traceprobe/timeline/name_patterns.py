"""Regular expressions of users, searched in the names of a trace.

They are matched by an engine without backtracking (Rust's, in polars): whatever the expression,
twice the text takes twice the time. It knows no look-around and no references to groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from traceprobe.errors import UsageError
from traceprobe.model.codes import Bools

LONGEST = 1_000
"""Characters of an expression: to compile one takes time, too."""


class NamePattern:
    """An expression that an option gave.

    Args:
        option: with its value, for messages.
        ignore_case: whether `a` fits `A`.

    Raises:
        UsageError: it is no regular expression, or a huge one.
    """

    def __init__(self, option: str, pattern: str, *, ignore_case: bool = False) -> None:
        self.pattern = pattern
        self._compiled = f"(?i){pattern}" if ignore_case else pattern
        if len(pattern) > LONGEST:
            raise UsageError(
                f"{option[:60]}…: is longer than {LONGEST:,} characters; write a shorter expression"
            )
        try:
            self.find([""])
        except pl.exceptions.ComputeError as error:
            raise UsageError(
                f"{option} is not a regular expression: {_reason(str(error))}"
            ) from error

    def find(self, names: Sequence[str]) -> Bools:
        """Which names have it somewhere."""
        texts = pl.Series(names, dtype=pl.String)
        return np.asarray(texts.str.contains(self._compiled).to_numpy(), dtype=np.bool_)


def _reason(message: str) -> str:
    """The engine's last words, without where in its own query they were said."""
    reason = message.partition("\n\nThis error occurred")[0].removeprefix("regex error: ")
    return reason.rpartition("error: ")[2].strip()
