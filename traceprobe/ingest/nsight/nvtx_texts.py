"""Texts of NVTX rows as numbers: one for each distinct text.

Autograd's texts are nearly all distinct until the numbers at their ends are taken off, and an
export has millions of them: they come as one joined text for many rows, and are cut in columns.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import count, islice
from typing import Any

import numpy as np

from traceprobe.ingest.untrusted_values import NAME_LENGTH
from traceprobe.model.codes import UNKNOWN, Int64s, Ints

SEPARATOR = "\x1f"
"""Between texts that are joined."""
OWN = int(np.iinfo(np.int64).min)
"""Of a row with a text of its own: the id of no registered string."""
NOTED_SEQUENCE = (
    "CASE WHEN instr(text, ', seq = ') "
    "AND substr(text, instr(text, ', seq = ') + 8, 1) GLOB '[0-9]' THEN "
    "CAST(substr(text, instr(text, ', seq = ') + 8, 18) AS INTEGER) ELSE -1 END"
)
"""The sequence number in a text, in SQL."""
SEQUENCE = ", seq = ([0-9]{1,18})"
NUMBERS = r"(?s), (?:seq = |op_id = |sizes = \[).*"
"""What autograd's NVTX says after the name of an operator; it makes each such text unique."""
_LONGEST_NAME = 4 * NAME_LENGTH
"""Bytes: no character has more than four."""
_NUMBERS = (b", seq = ", b", op_id = ", b", sizes = [")
"""What autograd's NVTX says after the name of an operator; it makes each such text unique."""


def noted_sequence(text: str) -> int:
    """The sequence number that a text ends with, UNKNOWN without one."""
    noted = re.search(SEQUENCE, text)
    return int(noted[1]) if noted else UNKNOWN


def without_numbers(text: str) -> str:
    """The name of an operator, without what makes each text unique."""
    return re.sub(NUMBERS, "", text)


class NvtxTexts:
    """The texts of a table so far, not all distinct: own ones, else registered strings.

    Args:
        strings: registered ones, by id.
        stored: how the file stores texts, a codec's name.
        whole: leave operators their sequence number, id and sizes, which make each text unique.
    """

    def __init__(self, strings: Mapping[int, str], stored: str, *, whole: bool) -> None:
        self.texts: list[str] = []
        self._sequences: list[int] = []
        self._strings, self._whole = strings, whole
        self._utf8 = _to_utf8(stored)
        self._numbers: defaultdict[Any, int] = defaultdict(count().__next__)

    def of_page(self, joined: str, strings: Ints) -> tuple[Int64s, Int64s]:
        """The number of each row's text, and the sequence number in its own one, else UNKNOWN.

        Args:
            joined: all texts of the rows, empty ones of rows without. strings: ids, or OWN.

        Raises:
            ValueError: a text holds the separator.
        """
        pieces = joined.split(SEPARATOR)
        if len(pieces) != len(strings):
            raise ValueError("a text of NVTX holds the separator")
        sequence = np.full(len(pieces), UNKNOWN, dtype=np.int64)
        if ", " in joined:
            import polars as pl  # that takes its time, and other rows are read without

            text = pl.col("text")
            told = pl.DataFrame({"text": pieces}, schema={"text": pl.String}).select(
                text if self._whole else text.str.replace(NUMBERS, ""),
                sequence=text.str.extract(SEQUENCE).cast(pl.Int64).fill_null(UNKNOWN),
            )  # at once, on two cores
            pieces, sequence = told["text"].to_list(), told["sequence"].to_numpy()
        keys: list[str | int] = [*pieces]
        for row in np.flatnonzero(strings != OWN).tolist():
            keys[row] = int(strings[row])
        number = np.fromiter(map(self._numbers.__getitem__, keys), np.int64, len(keys))
        return number, sequence

    def of_row(self, text: bytes | None, string: Any) -> int:
        """The number of one row's text: for rows whose texts cannot be joined.

        Args:
            text: its own one. string: the id of a registered one.
        """
        if text is None:
            return self._numbers[string if isinstance(string, int) else None]
        text = self._utf8(text[:_LONGEST_NAME])
        if not self._whole and b", " in text:
            for begin in _NUMBERS:
                text = text[: text.find(begin)] if begin in text else text
        return self._numbers[text]

    def sequences(self, number: Int64s, own: Int64s) -> Int64s:
        """The sequence number of each row, in its own text or in the registered one.

        Makes `texts` complete, too.
        """
        for key in list(islice(self._numbers, len(self.texts), None)):
            registered = ""
            if isinstance(key, bytes):
                key = key.decode("utf-8", "replace")
            if not isinstance(key, str):
                registered = self._strings.get(key, "unnamed")
                key = registered if self._whole else without_numbers(registered)
            self._sequences.append(noted_sequence(registered))
            self.texts.append(key)
        return np.maximum(own, np.array(self._sequences, dtype=np.int64)[number])


def _to_utf8(stored: str) -> Callable[[bytes], bytes]:
    if stored == "UTF-8":
        return lambda text: text
    return lambda text: text.decode(stored, "replace").encode()
