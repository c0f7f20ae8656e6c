"""What the texts of records are, and so what of them a redacted record may pass on.

A text without one of these types is left out of a redacted record with its whole field, so that a
new one is private until somebody decides otherwise. Numbers and closed lists of words stay.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

from msgspec import Meta


class Disclosure(Enum):
    """What becomes of a text, or of all texts of a mapping."""

    WORD = "stays, if all its words are traceprobe's own; else its digest"
    NAME = "its digest"
    PHASE = "stays, if it is a phase or class of traceprobe's; else its digest"
    OPTIMIZER = "stays, if it is a class of PyTorch; else its digest"
    SENTENCE = "stays but for words that are neither traceprobe's nor those of public libraries"
    CHECKSUM = "stays, if it is one; else its digest"
    DIGITS = "stays, if it is a whole number; else empty"
    FACTS = "known keys stay, with numbers and texts of known words"
    NUMBERS = "stays: bytes that hold nothing but numbers"
    PRIVATE = "left out"


def _decided(disclosure: Disclosure) -> Meta:
    return Meta(extra={"disclosure": disclosure})


Word = Annotated[str, _decided(Disclosure.WORD)]
Name = Annotated[str, _decided(Disclosure.NAME)]
"""What a trace, a recording or a file gave a name."""
PhaseName = Annotated[str, _decided(Disclosure.PHASE)]
OptimizerName = Annotated[str, _decided(Disclosure.OPTIMIZER)]
Sentence = Annotated[str, _decided(Disclosure.SENTENCE)]
"""What traceprobe or a library says; it may quote names."""
Checksum = Annotated[str, _decided(Disclosure.CHECKSUM)]
Digits = Annotated[str, _decided(Disclosure.DIGITS)]
Facts = Annotated[dict[str, Any], _decided(Disclosure.FACTS)]
"""What a recording noted of machine and program."""
Numbers = Annotated[bytes, _decided(Disclosure.NUMBERS)]
"""Of a record whose `problems` read them as such."""
PRIVATE = _decided(Disclosure.PRIVATE)
"""Of what is left out whatever it holds."""
