"""A place in the program that time belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from traceprobe.formatting import is_function
from traceprobe.records.texts import Name


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the program, or where the trace has none what encloses it."""

    line: Name | None
    """`train.py(57): train_step`, or `train.py: train_step` where the trace names functions and
    not their lines; None where it has no frames of the program."""
    within: Name | None
    """Path of the module, else of the range of the program; None outside of any."""
    call: Name | None
    """The operator, or else the call or the kernel, that most of the time is in."""
    ms_per_step: float
    """Time of the finding that belongs to it, of the mean rank, or of the straggler where the
    saving is its own."""
    part: float
    """The same as a part of what the finding is about."""
    before: bool = False
    """Whether the device idled before the call and until it: what ended a gap did not fill it."""

    @property
    def kind(self) -> Literal["line", "function"] | None:
        """What of the program's code is known."""
        if self.line is None:
            return None
        return "function" if is_function(self.line) else "line"

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if self.line is None and self.within is None and self.call is None:
            yield "a site is nowhere"
        if not (0 <= self.part <= 1 and self.ms_per_step >= 0):
            yield "a site has more time than its finding, or less than none"
