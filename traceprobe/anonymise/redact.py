"""A result without the names that a trace recorded: kernels, ranges, files.

What may be passed on is in `disclosure`, field by field. A name becomes a digest of itself, the
same in every result, so that two redacted ones can still be compared. Who knows a name can find it
again; who does not cannot read it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from traceprobe.anonymise.disclosure import Rule, rule_of
from traceprobe.model.taxonomy import BUSY_LABELS
from traceprobe.vocabulary import digest, facts, known, own_tokens, told

__all__ = ["digest", "redact"]

Result = TypeVar("Result", bound=msgspec.Struct)
Change = Callable[[Rule, str], str]

_PHASES = {*BUSY_LABELS, "data", ""}
"""Phases and classes, which are words of traceprobe."""
_OPTIMIZERS = frozenset(
    {
        *("Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "LBFGS", "Muon"),
        *("NAdam", "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam", "ZeroRedundancyOptimizer"),
    }
)
_CHECKSUM = re.compile(r"[0-9a-f]{64}")
_COLUMN = re.compile(r"-?\d{1,20}( -?\d{1,20})*")
_LEAST = 6
"""Shorter names, such as `step`, are words that sentences use themselves."""


def redact(result: Result) -> Result:
    """The same numbers; names replaced, and what the program said of its workload left out.

    Args:
        result: a report or any other record that traceprobe saves.
    """
    names: set[str] = set()
    sentences: list[str] = []

    def collect(rule: Rule, text: str) -> str:
        if rule is Rule.SENTENCE:
            sentences.append(text)
        elif rule is Rule.NAME or _changed(rule, text) != text:
            names.add(text)
        return text

    _record(result, collect)
    quoted = _quoted(names, "\n".join(sentences))

    def change(rule: Rule, text: str) -> str:
        if rule is Rule.SENTENCE:
            return told(quoted.sub(lambda match: digest(match[0]), text) if quoted else text)
        return _changed(rule, text)

    return _record(result, change)


def _changed(rule: Rule, text: str) -> str:
    """A text that is no sentence, by its rule."""
    if rule is Rule.COLUMN:
        return text if _COLUMN.fullmatch(text) else ""
    tests: Mapping[Rule, Callable[[str], object]] = {
        Rule.KEEP: known,
        Rule.PHASE: _PHASES.__contains__,
        Rule.OPTIMIZER: _OPTIMIZERS.__contains__,
        Rule.CHECKSUM: _CHECKSUM.fullmatch,
    }
    stays = tests.get(rule)
    return text if stays is not None and stays(text) else digest(text)


def _quoted(names: Iterable[str], sentences: str) -> re.Pattern[str] | None:
    """An expression for the names that sentences quote, the longest first; None for none."""
    found = [
        name
        for name in names
        # A number tells nothing, and a word of ours is one in sentences too.
        if len(name) >= _LEAST and not name.isdigit() and name.casefold() not in own_tokens()
        if name in sentences
    ]
    if not found:
        return None
    ordered = sorted(found, key=lambda name: (-len(name), name))
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, ordered))})(?!\w|\.\d)")


def _record(record: Result, change: Change) -> Result:
    """A record with every field by its rule; what is left out gets its default."""
    kinds, kept = _kinds(type(record)), {}
    for field in record.__struct_fields__:
        rule = rule_of(type(record), field)
        kept[field] = (
            _nothing(kinds[field])
            if rule is Rule.DROP
            else _value(getattr(record, field), rule, change)
        )
    return type(record)(**kept)


def _value(value: Any, rule: Rule, change: Change) -> Any:
    if isinstance(value, msgspec.Struct):
        return _record(value, change)
    if isinstance(value, str):
        return change(rule, value)
    if isinstance(value, dict):
        if rule is Rule.FACTS:
            return facts(value)
        return {change(rule, str(k)): _value(item, rule, change) for k, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_value(item, rule, change) for item in value]
    return value if isinstance(value, (int, float, msgspec.UnsetType)) else None


@cache
def _kinds(record: type[msgspec.Struct]) -> Mapping[str, inspect.Field]:
    kind = inspect.type_info(record)
    assert isinstance(kind, inspect.StructType)
    return {field.name: field for field in kind.fields}


def _nothing(field: inspect.Field) -> Any:
    """The value of a field that is left out: its default, or the least that its type allows."""
    if not field.required:
        if field.default_factory is not msgspec.NODEFAULT:
            return field.default_factory()
        return field.default
    return _least(field.type)


def _least(kind: inspect.Type) -> Any:
    if isinstance(kind, inspect.UnionType):
        return None if kind.includes_none else _least(kind.types[0])
    if isinstance(kind, inspect.StructType):
        return kind.cls(**{field.name: _nothing(field) for field in kind.fields})
    if isinstance(kind, inspect.LiteralType):
        return kind.values[0]
    empty: Mapping[type, Any] = {
        inspect.StrType: "",
        inspect.DictType: {},
        inspect.ListType: [],
        inspect.VarTupleType: (),
        inspect.BoolType: False,
        inspect.IntType: 0,
        inspect.FloatType: 0.0,
    }
    return empty.get(type(kind))
