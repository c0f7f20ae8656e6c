"""Packed tables and pictures: what is written is read, and what is damaged is refused."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceprobe.records.packed import MOST_BYTES, Table

NUMBERS = st.lists(st.tuples(*3 * [st.integers(0, 256**MOST_BYTES - 1)]), max_size=50)


def table_of(rows):
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return dict(zip(("start", "name", "bytes"), columns, strict=True))


@given(rows=NUMBERS)
def test_a_packed_table_is_read_as_it_was(rows):
    columns = table_of(rows)
    written = msgspec.json.encode(Table.of(columns))
    found = msgspec.json.decode(written, type=Table).columns()
    assert set(found) == set(columns)
    for name, values in columns.items():
        np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize("number", [-1, 256**MOST_BYTES])
def test_a_number_that_does_not_fit_is_refused(number):
    with pytest.raises(ValueError, match="column start"):
        Table.of({"start": np.array([1, number])})


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 4},
        {"rows": 2},
        {"rows": -1},
        {"rows": 10**12},
        {"widths": {"start": 9}},
        {"widths": {"start": 0}},
        {"data": b"no zlib"},
    ],
)
def test_a_damaged_table_cannot_be_read(change):
    table = Table.of({"start": np.arange(3)})
    with pytest.raises(ValueError, match="packed table"):
        msgspec.structs.replace(table, **change).columns()


def test_a_table_that_unpacks_to_more_than_it_says_is_cut_short():
    """A small file may hold a stream that fills the memory."""
    bomb = Table.of({"start": np.zeros(2_000_000, dtype=np.int64)})
    with pytest.raises(ValueError, match="another size"):
        msgspec.structs.replace(bomb, rows=1).columns()
