"""Which words may be passed on: those of traceprobe's own sentences, and those of public libraries.

A sentence is cut into tokens at white space. A token stays if it is one that traceprobe's source
writes itself (`ours.txt`), a number with its unit, or made of words that names of PyTorch and CUDA
consist of (`public.txt`). Whatever else is in it, such as a file, a host, a folder, an address or
somebody's name, is not known, and goes.

`scripts/write_vocabulary.py` writes the first list, `scripts/write_words.py` the second.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

# Compiled when first matched: a report without foreign texts needs none of them.
_CHUNK = r"\S+"
_BEFORE = r"[^\w#+±~≈<>≤≥./\\-]*"
"""Punctuation before a token; a sign belongs to it, and so does what makes it a folder."""
_LONGEST = 200
"""Characters of a token; no word of ours has as many."""
_PLACE = r"[@\\=~]|://|^/|^\.+/"
"""What addresses, folders and settings of an environment have, and ordinary compounds do not."""
_JOINT = r"[-/,–—→+×·|()\[\]{}<>\"'`:;&]+|\.\.+"
_UNITS = (
    r"%|x|×|ns|us|µs|ms|s|min|h|d|px|[kKMGT]?i?B|bit|bits|nm|[kMG]?Hz|W|USD|TFLOPs?|GFLOPs?|FLOPs?"
)
_SIGN = r"[-+±~≈<>≤≥]?"
_SHORT = rf"{_SIGN}\d{{1,6}}(\.\d{{1,6}})?({_UNITS})?"
_NUMBER = rf"{_SIGN}\d{{1,19}}(\.\d{{1,12}})?(e[-+]?\d{{1,3}})?({_UNITS})?"
# Of an address neither: it has four groups, and none begins with a year.
_VERSION = (
    r"v?\d{1,4}(\.\d{1,6}){2}(\+(cu|rocm)[\d.]{1,6}|\+cpu|rc\d{1,2})?"
    r"|20[12]\d(\.\d{1,4}){1,3}(-\d{1,15}v\d)?"
)
_DIGEST = r"#[0-9a-f]{8}"
_LETTERS = r"[a-zA-Z]{2,}"
WORD = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_a-zA-Z]+"
"""A word in a name."""
_MISSING = "…"


def words(name: str) -> list[str]:
    """The words in a name: `cudaLaunchKernel` has three."""
    return re.findall(WORD, name)


@cache
def public_words() -> frozenset[str]:
    """Words that names of public libraries are made of, in small letters."""
    return _list("public.txt")


@cache
def own_tokens() -> frozenset[str]:
    """Tokens of traceprobe's own sentences, in small letters."""
    return _list("ours.txt")


def _list(name: str) -> frozenset[str]:
    return frozenset(Path(__file__).with_name(name).read_text(encoding="utf-8").split())


def tokens(sentence: str) -> list[str]:
    """The tokens of a sentence in small letters, without the punctuation around them."""
    found = (_core(chunk)[1].casefold() for chunk in re.findall(_CHUNK, sentence))
    return [token for token in found if token]


def digest(name: str) -> str:
    """A name in eight hexadecimal digits, the same in every file; a digest stays itself."""
    if not name or re.fullmatch(_DIGEST, name):
        return name
    return "#" + hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]


def known(text: str) -> bool:
    """Whether every token is one of traceprobe's own, or a number: a word of a closed list is."""
    return all(len(core) <= _LONGEST and _may_pass(core, _NUMBER, _own) for core in _cores(text))


def told(sentence: str) -> str:
    """A sentence of traceprobe's with the names that it quotes as digests."""
    return _replaced(sentence, digest, _NUMBER)


def quoted(text: str, most: int = 300) -> str:
    """A text that somebody else wrote, with an ellipsis for what is no known word.

    Args:
        most: characters that it may have.
    """
    visible = "".join(c if c.isprintable() else " " for c in text[: 4 * most])
    cut = _replaced(visible, lambda token: _MISSING, _SHORT)
    short = re.sub(rf"{_MISSING}(\W*{_MISSING})+", _MISSING, cut)
    return short if len(short) <= most else short[: most - 1] + _MISSING


def _replaced(text: str, instead: Callable[[str], str], number: str) -> str:
    def chunk(match: re.Match[str]) -> str:
        before, core, after = _core(match[0])
        passes = not core or (len(core) <= _LONGEST and _may_pass(core, number))
        return before + (core if passes else instead(core)) + after

    return re.sub(_CHUNK, chunk, text)


def _core(chunk: str) -> tuple[str, str, str]:
    """A chunk as punctuation, token, punctuation; a sign or a unit belongs to the token."""
    before = re.match(_BEFORE, chunk)
    start, end = before.end() if before else 0, len(chunk)
    while end > start and not chunk[end - 1].isalnum():
        end -= 1
    end += chunk[end : end + 1] in ("%", "×") and end > start
    return chunk[:start], chunk[start:end], chunk[end:]


def _cores(text: str) -> list[str]:
    return [core for chunk in re.findall(_CHUNK, text) if (core := _core(chunk)[1])]


def _own(token: str, number: str) -> bool:
    return (
        token.casefold() in own_tokens()
        or re.fullmatch(number, token) is not None
        or re.fullmatch(_VERSION, token) is not None
        or re.fullmatch(_DIGEST, token) is not None
    )


def _public(token: str, number: str) -> bool:
    return _own(token, number) or (
        re.fullmatch(_LETTERS, token) is not None
        and all(word.lower() in public_words() for word in words(token))
    )


@lru_cache(maxsize=1 << 15)
def _may_pass(
    token: str,
    number: str,
    is_known: Callable[[str, str], bool] = _public,
) -> bool:
    """Whether a token or, of a compound, each of its pieces is known."""
    if is_known(token, number):
        return True
    if re.search(_PLACE, token):
        return False
    pieces = [piece.strip(".!?_") for piece in re.split(_JOINT, token)]
    return len(pieces) > 1 and all(is_known(piece, number) for piece in pieces if piece)


def facts(value: Any) -> Any:
    """What a recording notes under known keys: numbers, and texts of known words, however deep.

    A key is known if all its parts between underscores are. Texts with other words become None.
    """
    if isinstance(value, dict):
        return {key: facts(item) for key, item in value.items() if _is_key(str(key))}
    if isinstance(value, list):
        return [facts(item) for item in value]
    if isinstance(value, str):
        return value if told(value) == value else None
    return value if isinstance(value, (int, float)) else None


def _is_key(key: str) -> bool:
    return key.isidentifier() and all(_public(part, _NUMBER) for part in key.split("_") if part)
