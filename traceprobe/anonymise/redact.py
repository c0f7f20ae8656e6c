"""A result without the names that a trace recorded: kernels, ranges, files.

What may be passed on is in the types of the records' fields, see `records.texts`. A name becomes a
digest of itself, the same in every result, so that two redacted ones can still be compared. Who
knows a name can find it again; who does not cannot read it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from traceprobe.model.taxonomy import PATH_LABELS
from traceprobe.records.texts import Disclosure
from traceprobe.vocabulary import digest, facts, known, own_tokens, told

__all__ = ["digest", "redact"]

Result = TypeVar("Result", bound=msgspec.Struct)
Change = Callable[[Disclosure, str], str]

_PHASES = {*PATH_LABELS, "data", ""}
"""Phases and classes, which are words of traceprobe."""
_OPTIMIZERS = frozenset(
    {
        *("Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "LBFGS", "Muon"),
        *("NAdam", "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam", "ZeroRedundancyOptimizer"),
    }
)
_CHECKSUM = re.compile(r"[0-9a-f]{64}")
_DIGITS = re.compile(r"-?\d{1,20}")
_TEXTLESS = (
    *(inspect.IntType, inspect.FloatType, inspect.BoolType),
    *(inspect.NoneType, inspect.LiteralType, inspect.StructType),
)
"""Types without a text, or with words of a closed list, or records."""
_LEAST = 6
"""Shorter names, such as `step`, are words that sentences use themselves."""


def redact(result: Result) -> Result:
    """The same numbers; names replaced, and what the program said of its workload left out.

    Args:
        result: a report or any other record that traceprobe saves.
    """
    names: set[str] = set()
    sentences: list[str] = []

    def collect(rule: Disclosure, text: str) -> str:
        if rule is Disclosure.SENTENCE:
            sentences.append(text)
        elif rule is Disclosure.NAME or _changed(rule, text) != text:
            names.add(text)
        return text

    _record(result, collect)
    quoted = _quoted(names, "\n".join(sentences))

    def change(rule: Disclosure, text: str) -> str:
        if rule is Disclosure.SENTENCE:
            return told(quoted.sub(lambda match: digest(match[0]), text) if quoted else text)
        return _changed(rule, text)

    return _record(result, change)


def _changed(rule: Disclosure, text: str) -> str:
    """A text that is no sentence, by its rule."""
    if rule is Disclosure.DIGITS:
        return text if _DIGITS.fullmatch(text) else ""
    tests: Mapping[Disclosure, Callable[[str], object]] = {
        Disclosure.WORD: known,
        Disclosure.PHASE: _PHASES.__contains__,
        Disclosure.OPTIMIZER: _OPTIMIZERS.__contains__,
        Disclosure.CHECKSUM: _CHECKSUM.fullmatch,
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
    kept = {}
    for field in _fields(type(record)):
        rule = disclosure_of(field.type)
        kept[field.name] = (
            _nothing(field)
            if rule is Disclosure.PRIVATE
            else _value(getattr(record, field.name), rule, change)
        )
    return type(record)(**kept)


def disclosure_of(kind: inspect.Type) -> Disclosure:
    """What becomes of the texts of a type: `PRIVATE` where they are not all decided alike."""
    found = set(_disclosures(kind))
    if len(found) > 1:
        return Disclosure.PRIVATE
    return found.pop() if found else Disclosure.WORD


def _disclosures(kind: inspect.Type) -> Iterator[Disclosure]:
    """Of each text of a type; records inside have their own."""
    if isinstance(kind, inspect.Metadata):
        yield (kind.extra or {})["disclosure"]
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _disclosures(each)
    elif isinstance(kind, inspect.DictType):
        yield from _disclosures(kind.key_type)
        yield from _disclosures(kind.value_type)
    elif isinstance(kind, (inspect.ListType, inspect.VarTupleType)):
        yield from _disclosures(kind.item_type)
    elif not isinstance(kind, _TEXTLESS):
        yield Disclosure.PRIVATE


def _value(value: Any, rule: Disclosure, change: Change) -> Any:
    if isinstance(value, msgspec.Struct):
        return _record(value, change)
    if isinstance(value, str):
        return change(rule, value)
    if isinstance(value, bytes) and rule is Disclosure.NUMBERS:
        return value
    if isinstance(value, dict):
        if rule is Disclosure.FACTS:
            return facts(value)
        return {change(rule, str(k)): _value(item, rule, change) for k, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_value(item, rule, change) for item in value]
    return value if isinstance(value, (int, float, msgspec.UnsetType)) else None


@cache
def _fields(record: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    kind = inspect.type_info(record)
    assert isinstance(kind, inspect.StructType)
    return kind.fields


def _nothing(field: inspect.Field) -> Any:
    """The value of a field that is left out: its default, or the least that its type allows."""
    if not field.required:
        if field.default_factory is not msgspec.NODEFAULT:
            return field.default_factory()
        return field.default
    return _least(field.type)


def _least(kind: inspect.Type) -> Any:
    if isinstance(kind, inspect.Metadata):
        return _least(kind.type)
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
