"""Names without what is private in them, that still mean the same to the analysis.

A name stays as far as it consists of words that names of PyTorch and of CUDA's libraries consist
of. Every other word becomes a digest of itself, the same in every file. Then all the expressions by
which names are known are asked again: where one answers differently, more of the name is kept if it
is a piece of such an expression, or else nothing at all.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

from traceprobe.ingest import collective_metadata, communication_kernels, event_kinds
from traceprobe.ingest.kineto import dialects as kineto_other
from traceprobe.ingest.kineto import ranges as kineto_ranges
from traceprobe.ingest.nsight import nccl as nsight_nccl
from traceprobe.ingest.nsight import ranges as nsight_ranges
from traceprobe.model import garbage, kernel_classes
from traceprobe.timeline import kernel_period, phases, step_markers
from traceprobe.vocabulary import WORD, public_words

_TOKEN = re.compile(r"[a-zA-Z0-9]+|[^\x20-\x7e]+")
_ADDRESS = re.compile(r"\d+(?:\.\d+){3,}|[0-9a-fA-F]*(?::[0-9a-fA-F]*){4,}(?![\w:])")
_NUMBER = re.compile(r"\d+")
# A hash or a number in hexadecimal; `f32f32` and its kind are types.
_HEXADECIMAL = re.compile(r"(?!(?:b?f\d\d?)+\Z)(?=.*\d)(?=.*[a-f])[0-9a-f]{7,}", re.IGNORECASE)
_LITERAL = re.compile(r"[a-zA-Z]{3,}")
_ALPHABET = "jkqvwxyz"
"""No public word is made of these alone, and no digit counts a step."""
_DIGEST = 12
_DIGITS = 6
"""Of longer numbers the last so many stay: steps count up, and keys of jobs are no steps."""
_SALTS = 3
_LIBRARIES = kernel_classes.WORDS | frozenset(
    re.findall(
        WORD,
        """
    active address available blocks cache driver entry exec free function gen get host malloc
    managed max micro module multiprocessor occupancy point pool potential priority proc register
    reserve symbol unload unregister up warmup
    """,
    )
)
"""Words of the names of kernels, and of the calls of CUDA and HIP that set something up."""


def _expressions(value: Any) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (dict, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _expressions(item)


_ASKED = (
    *map(vars, (event_kinds, collective_metadata, kineto_other, kineto_ranges, nsight_nccl)),
    *map(vars, (nsight_ranges, kernel_classes, step_markers, phases)),
    *map(vars, (communication_kernels, garbage, kernel_period)),
    {name: re.compile(text, re.IGNORECASE) for name, text in phases.RANGE_NAMES.items()},
)
EXPRESSIONS = tuple(dict.fromkeys(found for names in _ASKED for found in _expressions(names)))
"""Whatever the analysis asks of a name."""
_PARTS = ("pageable", "memcpy", "memset", "nccl")
"""What it looks for without an expression."""


def known_meaning(name: str) -> tuple[object, ...]:
    """What the analysis knows of a name."""
    lower = name.lower()
    return (
        kernel_classes.kernel_class(name),
        event_kinds.kernel_kind(name),
        *(expression.search(name) is not None for expression in EXPRESSIONS),
        *(part in lower for part in _PARTS),
    )


@lru_cache(maxsize=1 << 16)
def public_name(name: str) -> str:
    """A name without its private words: of some, the one that keeps most of its meaning."""
    known = known_meaning(name)
    best, kept = digest(name), 0
    for pieces in (False, True):
        for salt in range(_SALTS):
            found = _replaced(name, salt, pieces=pieces)
            meaning = known_meaning(found)
            if meaning == known:
                return found
            same = sum(a == b for a, b in zip(meaning, known, strict=True))
            if meaning[0] == known[0] and same > kept:
                best, kept = found, same
    return best


def digest(text: str, salt: int = 0) -> str:
    """A text in twelve letters that no public word has."""
    whole = hashlib.blake2b(f"{salt}{text}".encode("utf-8", "replace")).digest()
    return "".join(_ALPHABET[byte & 7] for byte in whole[:_DIGEST])


def _replaced(name: str, salt: int, *, pieces: bool) -> str:
    """A name whose unknown words are digests, but for pieces of expressions where asked."""

    def token(match: re.Match[str]) -> str:
        text = match[0]
        if _HEXADECIMAL.fullmatch(text):
            return f"{digest(text, salt)}0"
        if not text.isalnum():  # signs and controls, which end a word
            return f"-{digest(text, salt)}-"
        if not text.isascii():
            return digest(text, salt)
        return _NUMBER.sub(lambda m: m[0][-_DIGITS:], re.sub(WORD, word, text))

    def word(match: re.Match[str]) -> str:
        text = match[0]
        lower = text.lower()
        if len(text) == 1 or lower in public_words() or lower in _LIBRARIES:
            return text
        if not pieces:
            return digest(text, salt)
        kept = _pieces().split(text)
        # Of a split with one group, every second part is what the group matched.
        return "".join(
            part if n % 2 else digest(part, salt) if part else "" for n, part in enumerate(kept)
        )

    return _TOKEN.sub(token, _ADDRESS.sub(lambda m: f"{digest(m[0], salt)}0", name))


@cache
def _pieces() -> re.Pattern[str]:
    """The words of all expressions, the longest first."""
    found = {piece.lower() for e in EXPRESSIONS for piece in _LITERAL.findall(e.pattern)}
    ordered = sorted({*found, *_PARTS}, key=lambda piece: (-len(piece), piece))
    return re.compile(f"({'|'.join(ordered)})", re.IGNORECASE)
