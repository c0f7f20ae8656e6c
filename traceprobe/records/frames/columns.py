"""A table of a record: names and types of its columns, and its rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")
Columns = Mapping[str, str]
"""Name to type, as the documentation writes it: a key of `_dtypes`."""
_KINDS: Mapping[type[msgspec.inspect.Type], str] = {
    msgspec.inspect.BoolType: "bool",
    msgspec.inspect.FloatType: "float",
    msgspec.inspect.IntType: "int",
    msgspec.inspect.LiteralType: "str",
    msgspec.inspect.StrType: "str",
}


class Frame(msgspec.Struct, frozen=True):
    """A table of a kind of record.

    Args:
        columns: in order.
        rows: of a record, each with a value for every column.
    """

    columns: Columns
    rows: Callable[[Any], Iterable[Iterable[object]]]

    def of(self, record: object) -> pl.DataFrame:
        """The table of `record`."""
        import polars as pl

        rows = [[known(cell) for cell in row] for row in self.rows(record)]
        types = _dtypes()
        schema = {name: types[kind] for name, kind in self.columns.items()}
        return pl.DataFrame(rows, schema=schema, orient="row")


def known(value: T | msgspec.UnsetType) -> T | None:
    """What a record holds; None where it has been left out."""
    return None if isinstance(value, msgspec.UnsetType) else value


def columns_of(
    struct: type[msgspec.Struct], without: Collection[str] = (), prefix: str = ""
) -> Columns:
    """The fields of a record with a single value or a list in each, as columns."""
    return {
        prefix + field.encode_name: _kind(field.type)
        for field in _fields(struct)
        if field.name not in without
    }


def values_of(record: msgspec.Struct, without: Collection[str] = ()) -> list[object]:
    """What `columns_of` has columns for, in the same order."""
    return [getattr(record, f.name) for f in _fields(type(record)) if f.name not in without]


def _fields(struct: type[msgspec.Struct]) -> tuple[msgspec.inspect.Field, ...]:
    described = msgspec.inspect.type_info(struct)
    assert isinstance(described, msgspec.inspect.StructType)
    return described.fields


def _kind(described: msgspec.inspect.Type) -> str:
    """The type of a column, by that of a field.

    Raises:
        KeyError: the field is no value of a table; leave it out.
    """
    if isinstance(described, msgspec.inspect.Metadata):
        return _kind(described.type)
    if isinstance(described, msgspec.inspect.UnionType):
        absent = (msgspec.inspect.NoneType, msgspec.inspect.CustomType)
        (described,) = (t for t in described.types if not isinstance(t, absent))
        return _kind(described)
    if isinstance(described, msgspec.inspect.ListType):
        return f"list of {_kind(described.item_type)}"
    return _KINDS[type(described)]


def _dtypes() -> dict[str, Any]:
    import polars as pl

    plain = {"bool": pl.Boolean, "float": pl.Float64, "int": pl.Int64, "str": pl.String}
    lists = {f"list of {kind}": pl.List(dtype) for kind, dtype in plain.items()}
    return {**plain, **lists, **{f"list of {kind}": pl.List(t) for kind, t in lists.items()}}
