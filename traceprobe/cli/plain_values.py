"""Values of options that are plainly right are taken here, without pydantic.

Typer has pydantic check every value, even that of an option that is not given, and the import of
that takes longer than to read a small trace. What is not plainly right is left to Typer, and so is
every message about it. Where Typer looks for its checks elsewhere one day, they are its own again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any, get_args

_INTEGER = re.compile(r"-?[0-9]{1,15}", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?", re.ASCII)


class NotPlain(Exception):
    """A value that Typer should look at."""


class PlainValues:
    """Stands in the place of Typer's checks of one option until a value needs them."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as its type, as Typer's own function of this name gives it."""
        try:
            return _taken(value, param)
        except NotPlain:
            param._runtime_param = None
            return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def take_plainly(params: Iterable[Any]) -> None:
    """Put what is above before Typer's checks of these options and arguments."""
    for param in params:
        if getattr(param, "_runtime_param", param) is None:
            param._runtime_param = PlainValues()


def _taken(value: Any, param: Any) -> Any:
    several = param.multiple or param.nargs == -1
    if value is None:
        return () if several else None
    kind, info = param.type_descriptor.annotation, param.type_descriptor.parameter_info
    if not several:
        return _one(value, kind, info)
    if not isinstance(value, (list, tuple)):
        raise NotPlain
    (each,) = get_args(kind)
    return [_one(item, each, info) for item in value]


def _one(value: Any, kind: Any, info: Any) -> Any:
    """A single value as its type.

    Args:
        kind: what the function's argument is annotated with.
        info: what the option allows.

    Raises:
        NotPlain: it may be wrong, or mean something else.
    """
    if info.parser is not None or info.clamp:
        raise NotPlain
    if kind is str and isinstance(value, str):
        return value
    if kind is Path and isinstance(value, str):
        return _path(value, info)
    if kind in (int, float):
        return _number(value, kind, info)
    if isinstance(kind, type) and issubclass(kind, Enum) and isinstance(value, kind):
        return value
    raise NotPlain


def _number(value: Any, kind: Any, info: Any) -> Any:
    shape = _INTEGER if kind is int else _NUMBER
    if isinstance(value, bool) or not (isinstance(value, kind) or shape.fullmatch(str(value))):
        raise NotPlain
    number = kind(value)
    if (info.min is not None and number < info.min) or (info.max is not None and number > info.max):
        raise NotPlain
    return number


def _path(text: str, info: Any) -> Path:
    """A readable file, or a name that is free where it may be."""
    path = Path(text)
    special = info.path_type or info.resolve_path or info.writable or info.allow_dash
    free = not (info.exists or os.path.lexists(path))
    if special or not (free or (info.file_okay and path.is_file() and os.access(path, os.R_OK))):
        raise NotPlain
    return path
