"""Ladders: one workload run again and again, each time with one more thing changed.

A ladder is a TOML file. What a rung sets holds for the rungs after it, until one of them sets it
anew or drops it. A side rung shows what one change alone does; the next rung does not build on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from traceprobe.capture.process.program import WORKLOADS, workloads_folder
from traceprobe.errors import UsageError
from traceprobe.sweep.ladder_bounds import (
    MOST_ACTIVE,
    MOST_RANKS,
    MOST_RUNGS,
    MOST_STEPS,
    InvalidLadder,
    check_environment,
    check_settings,
    check_text,
)
from traceprobe.system.reading import read_saved

Value = bool | int | float | str
_Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=60)]
_Steps = Annotated[int, msgspec.Meta(ge=1, le=MOST_STEPS)]
_CHANGEABLE = ("settings", "ranks", "environment")
_Ranks = Annotated[int, msgspec.Meta(ge=1, le=MOST_RANKS)]


@dataclass(frozen=True)
class Rung:
    """A run of the workload, with everything that the rungs before it set.

    Args:
        change: in words, what is different from the rung before.
        settings: of the workload; True and False stand for `--name` and `--no-name`.
        side: whether the rungs after it do without its change.
        base: name of the rung that it builds on; empty for the first.
    """

    name: str
    change: str
    ranks: int = 1
    settings: Mapping[str, Value] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    side: bool = False
    base: str = ""

    @property
    def arguments(self) -> list[str]:
        """Its settings on the command line of the workload."""
        return [_argument(name, value) for name, value in self.settings.items()]


@dataclass(frozen=True)
class Ladder:
    """Rungs in order, and how each is recorded.

    Args:
        note: what the ladder is and where it comes from.
    """

    name: str
    note: str
    workload: str
    profile: LadderProfile
    rungs: tuple[Rung, ...]


class LadderProfile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Steps and backend of each recording, as of a `RecordingPlan`."""

    warmup: _Steps = 5
    calibrate: _Steps = 20
    active: Annotated[int, msgspec.Meta(ge=3, le=MOST_ACTIVE)] = 8
    backend: Literal["torch", "nsys"] = "torch"


class _Rung(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: _Name
    change: str
    set: dict[_Name, Any] = {}
    drop: list[str] = []
    ranks: _Ranks | None = None
    environment: dict[str, str] = {}
    side: bool = False


class _File(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: _Name
    workload: str
    rungs: Annotated[list[_Rung], msgspec.Meta(min_length=1, max_length=MOST_RUNGS)]
    note: str = ""
    shared: list[str] = []
    profile: LadderProfile = LadderProfile()
    settings: dict[_Name, Any] = {}


def find_ladder(argument: str) -> Path:
    """The file of a ladder: a path, or the name of a built-in one.

    Raises:
        UsageError: there is no such file; the message lists the built-in ones.
    """
    if argument.endswith(".toml"):
        path = Path(argument)
        if not path.exists():
            raise UsageError(f"{path}: there is no such file")
        return path
    folder = workloads_folder() / "ladders"
    known = {path.stem: path for path in sorted(folder.glob("*.toml"))}
    if argument not in known:
        raise UsageError(
            f"{argument}: there is no ladder of that name; name one of {', '.join(known)}, or a "
            "file that ends in .toml, before any other option"
        )
    return known[argument]


def read_ladder(path: Path, ranks: int | None = None) -> Ladder:
    """The ladder in a file, with every rung worked out.

    Args:
        ranks: of the rungs that have several, instead of what the file says.

    Raises:
        UsageError: the file is none, or contradicts itself; the message names file, rung and key.
    """
    try:
        text = read_saved(path)
        check_text(text)
        return _ladder(msgspec.toml.decode(text, type=_File), ranks)
    except InvalidLadder as error:
        raise UsageError(f"{path}: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{path}: is no ladder: it is nested too deeply") from error
    except ValueError as error:  # also of numbers with too many digits
        raise UsageError(f"{path}: is no ladder: {error}") from error


def _ladder(file: _File, ranks: int | None) -> Ladder:
    if file.workload not in WORKLOADS:
        raise InvalidLadder(
            f"workload: there is none called {file.workload!r}; one of {', '.join(WORKLOADS)}"
        )
    if file.rungs[0].side:
        raise InvalidLadder(f"{_of(file.rungs[0])}: side: the first rung has none before it")
    check_settings("settings", file.settings)
    known = set(file.settings).union(*(entry.set for entry in file.rungs))
    for name in file.shared:
        if name not in known:
            raise InvalidLadder(f"shared: {name!r} is set nowhere")
    rungs: list[Rung] = []
    before = Rung("", "", settings=file.settings)
    for entry in file.rungs:
        if entry.name in {rung.name for rung in rungs}:
            raise InvalidLadder(f"{_of(entry)}: name: there is another of that name")
        rung = _next(before, entry, ranks)
        if rungs and all(getattr(rung, name) == getattr(before, name) for name in _CHANGEABLE):
            raise InvalidLadder(f"{_of(entry)}: changes nothing")
        rungs.append(_divided(rung, file.shared))
        before = before if rung.side else rung
    return Ladder(file.name, file.note, file.workload, file.profile, tuple(rungs))


def _next(before: Rung, entry: _Rung, ranks: int | None) -> Rung:
    """A rung on top of the one that it builds on."""
    check_settings(f"{_of(entry)}: set", entry.set)
    check_environment(_of(entry), entry.environment)
    for name in entry.drop:
        if name not in before.settings:
            raise InvalidLadder(f"{_of(entry)}: drop: {name!r} is not set before")
        if name in entry.set:
            raise InvalidLadder(f"{_of(entry)}: drop: {name!r} is also set")
    count = before.ranks if entry.ranks is None else entry.ranks
    if entry.ranks is not None and entry.ranks > 1:
        count = ranks or entry.ranks
    settings = {name: v for name, v in before.settings.items() if name not in entry.drop}
    return Rung(
        name=entry.name,
        change=entry.change,
        ranks=count,
        settings=settings | entry.set,
        environment={**before.environment, **entry.environment},
        side=entry.side,
        base=before.name,
    )


def _divided(rung: Rung, shared: Sequence[str]) -> Rung:
    """The rung with each rank's part of what all ranks share."""
    settings = dict(rung.settings)
    for name in shared:
        value = settings.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value % rung.ranks:
            raise InvalidLadder(
                f"rung {rung.name!r}: {name}: {value!r} cannot be shared by {rung.ranks} ranks"
            )
        settings[name] = value // rung.ranks
    return replace(rung, settings=settings)


def _of(entry: _Rung) -> str:
    return f"rung {entry.name!r}"


def _argument(name: str, value: Value) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name}={value}"
