"""The entries of a dump: dictionaries that may hold anything to `Entry`."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from pathlib import PurePosixPath
from typing import Any, TypeVar, cast

from traceprobe.ingest.untrusted_values import LONGEST_TEXT, bounded_text, integer
from traceprobe.model.codes import UNKNOWN
from traceprobe.model.flight_record import Entry, GroupKey, State, Tensors

_MOST_TENSORS = 4_096
_MOST_DIMENSIONS = 64
_MOST_FRAMES = 256
_LONGEST_PATH = 4_096
LARGEST_SEQUENCE = 1 << 50
"""No group counts so far."""
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/torch/", "/lib/python3.", "<frozen ")
"""What the files of libraries have in their paths."""
_PEERS = re.compile(r"(send|recv) (\d{1,9})(->|<-)(\d{1,9})")
_STATES = ("scheduled", "started", "completed")
_NEVER_SEEN_TO_END = ("gloo",)
"""Backends without events of a device: of theirs, an entry that is retired has ended."""
Made = TypeVar("Made", bound=Hashable)
Part = TypeVar("Part")


def group_of(row: Mapping[str, Any], groups: Mapping[str, GroupKey]) -> GroupKey:
    """The group of an entry; of one that the dump does not list, without its ranks."""
    given = row.get("process_group")
    name, description = (
        (plain_text(given[0]), plain_text(given[1]))
        if isinstance(given, (list, tuple)) and len(given) == 2
        else ("", "")
    )
    return groups.get(name) or GroupKey(name, description, ())


class EntryParser:
    """Entries of one dump. Lists that a pickle shares are read once."""

    def __init__(self, groups: Mapping[str, GroupKey]) -> None:
        self._groups = groups
        self._read: dict[tuple[int, str], Any] = {}
        self._values: dict[Any, Any] = {}
        self._tensors_read: dict[tuple[int, int], Tensors] = {}

    def entry(self, row: Mapping[str, Any]) -> Entry:
        """One entry; what it does not say is empty or UNKNOWN."""
        backend, _, called = plain_text(row.get("profiling_name")).rpartition(":")
        peers = _PEERS.fullmatch(called)
        state = row.get("state")
        point_to_point = row.get("is_p2p") is True or peers is not None
        done = state == "completed" or (
            row.get("retired") is True and backend in _NEVER_SEEN_TO_END
        )
        return Entry(
            number=integer(row.get("record_id")),
            group=group_of(row, self._groups),
            # Versions below 2.0 had one number for both.
            sequence=_sequence(
                row.get("p2p_seq_id" if point_to_point else "collective_seq_id", row.get("seq_id"))
            ),
            batch=_sequence(row.get("p2p_seq_id")),
            backend=backend,
            operation=called.partition(" ")[0],
            point_to_point=point_to_point,
            peers=None if peers is None else _ends(peers),
            inputs=self._tensors(row.get("input_sizes"), row.get("input_dtypes")),
            outputs=self._tensors(row.get("output_sizes"), row.get("output_dtypes")),
            state=cast("State", state) if state in _STATES else "scheduled",
            done=done,
            created_ns=integer(row.get("time_created_ns")),
            line=self._line(row.get("frames")),
        )

    def _line(self, frames: object) -> str | None:
        if not isinstance(frames, list) or not frames:
            return None
        (place,) = self._once(frames, "frames", _own_line)
        return self._kept(place)

    def _tensors(self, sizes: object, dtypes: object) -> Tensors:
        key = (id(sizes), id(dtypes))
        if key not in self._tensors_read:
            read = self._once(sizes, "sizes", _sizes)
            names = self._once(dtypes, "dtypes", _texts)
            self._tensors_read[key] = self._kept(Tensors(read, names))
        return self._tensors_read[key]

    def _kept(self, value: Made) -> Made:
        """The first value that equals it: most calls are of few sizes, at few lines."""
        kept: Made = self._values.setdefault(value, value)
        return kept

    def _once(
        self, value: object, what: str, make: Callable[[list[Any]], tuple[Part, ...]]
    ) -> tuple[Part, ...]:
        if not isinstance(value, list):
            return ()
        key = (id(value), what)
        if key not in self._read:
            self._read[key] = make(value)
        found: tuple[Part, ...] = self._read[key]
        return found


def _sequence(value: object) -> int:
    found = integer(value)
    return found if found < LARGEST_SEQUENCE else UNKNOWN


def _ends(peers: re.Match[str]) -> tuple[int, int]:
    """Source and target of `send 1->2` or `recv 3<-0`."""
    first, second = int(peers[2]), int(peers[4])
    return (first, second) if peers[3] == "->" else (second, first)


def _sizes(value: list[Any]) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(integer(side) for side in sides[:_MOST_DIMENSIONS])
        for sides in value[:_MOST_TENSORS]
        if isinstance(sides, list)
    )


def _texts(value: list[Any]) -> tuple[str, ...]:
    return tuple(plain_text(each) for each in value[:_MOST_TENSORS] if isinstance(each, str))


def plain_text(value: object, longest: int = LONGEST_TEXT) -> str:
    """A bounded text. Nothing else is written out: a list may hold another a billion times."""
    return bounded_text(value, longest) if isinstance(value, str) else ""


def _own_line(frames: list[Any]) -> tuple[str | None]:
    """The place of the innermost frame of the program, else of the outermost of all."""
    inner = [frame for frame in frames[:_MOST_FRAMES] if isinstance(frame, dict)]
    own = (frame for frame in inner if not _of_library(frame))
    found = next(own, inner[-1] if inner else None)
    return (None if found is None else _place(found),)


def _of_library(frame: Mapping[str, Any]) -> bool:
    file = plain_text(frame.get("filename"), _LONGEST_PATH)
    return not file or any(word in file for word in _LIBRARIES)


def _place(frame: Mapping[str, Any]) -> str:
    """`train.py(57): step`; folders are nobody's business."""
    file = plain_text(frame.get("filename"), _LONGEST_PATH).replace("\\", "/")
    function = plain_text(frame.get("name"))
    return (
        f"{PurePosixPath(file).name or 'unknown'}({max(integer(frame.get('line')), 0)}): {function}"
    )
