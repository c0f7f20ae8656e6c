"""Dumps of PyTorch's flight recorder: pickle or JSON to `FlightRecord`.

Written by PyTorch when a collective times out (`nccl_trace_rank_N`, `comm_lib_trace_rank_N`), when
its debug pipe is written to, or by `torch._C._distributed_c10d._dump_fr_trace()` and
`_dump_fr_trace_json()`. The format is that of FlightRecorder.hpp, read as of PyTorch 2.13 (version
2.10 of the format) and of the versions 2.x before. The JSON has no stacks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, cast

from traceprobe.errors import DamagedInput, UnsupportedInput
from traceprobe.ingest.nccl.plain_pickle import NotPlain, loads
from traceprobe.ingest.trace_folder import natural_order
from traceprobe.ingest.untrusted_values import (
    LONGEST_TEXT,
    bounded_text,
    integer,
    json_object,
    rank_number,
)
from traceprobe.model.events import UNKNOWN
from traceprobe.model.flight_record import Entry, FlightRecord, GroupKey, State, Tensors
from traceprobe.system.reading import open_regular

MOST_BYTES = 128 << 20
"""Of a dump; one of 20,000 collectives with their stacks has some 10 MB."""
MOST_ENTRIES = 200_000
"""The recorder keeps 2,000 unless it is told otherwise."""
MOST_MEMBERS = 1 << 22
"""Members of all groups of a dump together."""
_LONGEST_RANKS = 1 << 20
"""Characters of a list of ranks: a group of 100,000 has 700 thousand."""
_MOST_TENSORS = 4_096
_MOST_DIMENSIONS = 64
_MOST_FRAMES = 256
_LONGEST_PATH = 4_096
_LARGEST_SEQUENCE = 1 << 50
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/torch/", "/lib/python3.", "<frozen ")
"""What the files of libraries have in their paths."""
_RANK = re.compile(r"(\d{1,9})(?:\.(?:json|pickle|pkl|pt|bin|dump))?$", re.IGNORECASE)
_PEERS = re.compile(r"(send|recv) (\d{1,9})(->|<-)(\d{1,9})")
_RANKS = re.compile(r"\[[\d,\s]*\]")
_STATES = ("scheduled", "started", "completed")
_NEVER_SEEN_TO_END = ("gloo",)
"""Backends without events of a device: of theirs, an entry that is retired has ended."""
Made = TypeVar("Made", bound=Hashable)
Part = TypeVar("Part")


def rank_in_name(name: str) -> int | None:
    """The rank that the name of a dump ends in: `nccl_trace_rank_3` or `rank3.json`."""
    found = _RANK.search(name)
    return None if found is None else rank_number(found[1])


def is_dump(path: Path) -> bool:
    """Whether a file begins as a dump does."""
    with open_regular(path) as file:
        head = file.read(4096)
    if head[:1] == b"\x80":
        return b"version" in head and (b"pg_config" in head or b"entries" in head)
    return head.lstrip()[:1] == b"{" and any(
        word in head for word in (b'"comm_lib_version"', b'"collective_seq_id"', b'"pg_config"')
    )


def find_dumps(folder: Path) -> list[Path]:
    """The dumps in a folder whose names end in a rank, in natural order.

    Raises:
        OSError: it cannot be read.
    """
    files = (path for path in folder.iterdir() if path.name[0] != "." and path.is_file())
    named = [path for path in files if rank_in_name(path.name) is not None and is_dump(path)]
    return sorted(named, key=natural_order)


def read_flight_record(path: Path) -> FlightRecord:
    """The dump of the rank whose number its name ends in.

    Raises:
        UnsupportedInput: the file is no dump, or its name has no rank.
        DamagedInput: it is one, and damaged, or would do more than hold data.
        OSError: it cannot be read.
    """
    name = path.name
    with open_regular(path) as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise DamagedInput(f"{name}: has more than {MOST_BYTES >> 20} MiB, as no dump has")
    value = _value(name, data)
    rank = rank_in_name(name)
    if rank is None:
        raise UnsupportedInput(
            f"{name}: no rank is in its name, and the dump does not say whose it is; call it "
            f"{name}_rank_0, with the number of its rank"
        )
    return _record(name, rank, value)


def _value(name: str, data: bytes) -> Mapping[str, Any]:
    """The dictionary that a dump is."""
    if not data.strip():
        raise DamagedInput(f"{name}: is empty; its process was killed before it wrote the dump")
    if data[:1] == b"\x80":
        try:
            value = loads(data)
        except NotPlain as error:
            raise DamagedInput(f"{name}: {error}; dump it again") from None
    else:
        value = json_object(data)
        if value is None and data.lstrip()[:1] == b"{":
            raise DamagedInput(f"{name}: is no complete JSON; dump it again")
    known = isinstance(value, dict) and "version" in value
    if not known or not {"entries", "pg_config", "pg_status"} & {*value}:
        raise UnsupportedInput(
            f"{name}: is no dump of PyTorch's flight recorder (a pickle or JSON with version, "
            "pg_config and entries); name the nccl_trace_rank_N files"
        )
    return cast("Mapping[str, Any]", value)


def _record(name: str, rank: int, value: Mapping[str, Any]) -> FlightRecord:
    version = _text(value["version"])
    if not re.fullmatch(r"[12]\.\d{1,4}", version):
        raise UnsupportedInput(
            f"{name}: its format has version {version!r}, traceprobe reads 2.x; "
            "a newer traceprobe may read it"
        )
    groups = _groups(name, value.get("pg_config"))
    listed = value.get("entries")
    rows = listed if isinstance(listed, list) else []
    if len(rows) > MOST_ENTRIES:
        raise DamagedInput(f"{name}: has more than {MOST_ENTRIES:,} entries, as no dump has")
    parse = _Parser(groups)
    entries = [parse.entry(row) for row in rows if isinstance(row, dict)]
    return FlightRecord(
        name=name,
        rank=rank,
        version=version,
        groups=groups,
        entries=_settled(sorted(entries, key=lambda entry: entry.number)),
        completed=_completed(value.get("pg_status"), rows, groups),
    )


def _settled(entries: Sequence[Entry]) -> list[Entry]:
    """Of operations that are launched as one, the entry of the whole alone is seen to end."""
    whole = {_launch(entry): entry.done for entry in entries if entry.operation == "coalesced"}
    return [
        entry if entry.done or not whole.get(_launch(entry)) else replace(entry, done=True)
        for entry in entries
    ]


def _launch(entry: Entry) -> tuple[GroupKey, bool, int]:
    return entry.group, entry.point_to_point, entry.sequence


def _groups(file: str, config: object) -> dict[str, GroupKey]:
    """`{name: {desc, ranks}}`; what Gloo writes there has neither names nor ranks."""
    found: dict[str, GroupKey] = {}
    members = 0
    for name, about in config.items() if isinstance(config, dict) else ():
        if not isinstance(about, dict) or name == "":
            continue
        given = about.get("ranks")
        # What takes long to read counts, whatever it holds: many groups may share one text.
        length = len(given) if isinstance(given, list) else 0
        members += 1 + (len(given) // 16 if isinstance(given, str) else length)
        if members > MOST_MEMBERS:
            raise DamagedInput(
                f"{file}: has more than {MOST_MEMBERS:,} members of groups, as no dump has"
            )
        ranks = _members(given)
        members += len(ranks)
        text = _text(name)
        found[text] = GroupKey(text, _text(about.get("desc")), ranks)
    return found


def _members(given: object) -> tuple[int, ...]:
    """`"[0, 1]"`, or a list, as numbers in ascending order."""
    if isinstance(given, str) and len(given) < _LONGEST_RANKS and _RANKS.fullmatch(given):
        given = given.strip("[]").replace(",", " ").split()
    if not isinstance(given, list):
        return ()
    ranks = [rank_number(each) for each in given[: MOST_MEMBERS + 1]]
    return tuple(sorted({rank for rank in ranks if rank is not None}))


def _completed(
    status: object, rows: Sequence[Any], groups: Mapping[str, GroupKey]
) -> dict[GroupKey, int]:
    """The last collective that ended in each group, whose number (`pg_id`) the entries name."""
    numbered: dict[str, GroupKey] = {}
    for row in rows:
        if isinstance(row, dict):
            numbered.setdefault(str(integer(row.get("pg_id"))), _group(row, groups))
    found = {}
    for number, about in status.items() if isinstance(status, dict) else ():
        last = integer(about.get("last_completed_collective")) if isinstance(about, dict) else -1
        group = numbered.get(_text(number))
        if group is not None and 0 < last < _LARGEST_SEQUENCE:
            found[group] = last
    return found


def _group(row: Mapping[str, Any], groups: Mapping[str, GroupKey]) -> GroupKey:
    given = row.get("process_group")
    name, description = (
        (_text(given[0]), _text(given[1]))
        if isinstance(given, (list, tuple)) and len(given) == 2
        else ("", "")
    )
    return groups.get(name) or GroupKey(name, description, ())


class _Parser:
    """Entries of one dump. Lists that a pickle shares are read once."""

    def __init__(self, groups: Mapping[str, GroupKey]) -> None:
        self._groups = groups
        self._read: dict[tuple[int, str], Any] = {}
        self._values: dict[Any, Any] = {}

    def entry(self, row: Mapping[str, Any]) -> Entry:
        """One entry; what it does not say is empty or UNKNOWN."""
        backend, _, called = _text(row.get("profiling_name")).rpartition(":")
        peers = _PEERS.fullmatch(called)
        state = row.get("state")
        point_to_point = row.get("is_p2p") is True or peers is not None
        done = state == "completed" or (
            row.get("retired") is True and backend in _NEVER_SEEN_TO_END
        )
        return Entry(
            number=integer(row.get("record_id")),
            group=_group(row, self._groups),
            # Versions below 2.0 had one number for both.
            sequence=_sequence(
                row.get("p2p_seq_id" if point_to_point else "collective_seq_id", row.get("seq_id"))
            ),
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
        read = self._once(sizes, "sizes", _sizes)
        names = self._once(dtypes, "dtypes", _texts)
        return self._kept(Tensors(read, names))

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
    return found if found < _LARGEST_SEQUENCE else UNKNOWN


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
    return tuple(_text(each) for each in value[:_MOST_TENSORS] if isinstance(each, str))


def _text(value: object, longest: int = LONGEST_TEXT) -> str:
    """A bounded text. Nothing else is written out: a list may hold another a billion times."""
    return bounded_text(value, longest) if isinstance(value, str) else ""


def _own_line(frames: list[Any]) -> tuple[str | None]:
    """The place of the innermost frame of the program, else of the outermost of all."""
    inner = [frame for frame in frames[:_MOST_FRAMES] if isinstance(frame, dict)]
    own = (frame for frame in inner if not _of_library(_text(frame.get("filename"), _LONGEST_PATH)))
    found = next(own, inner[-1] if inner else None)
    return (None if found is None else _place(found),)


def _of_library(file: str) -> bool:
    return not file or any(word in file for word in _LIBRARIES)


def _place(frame: Mapping[str, Any]) -> str:
    """`train.py(57): step`; folders are nobody's business."""
    file = _text(frame.get("filename"), _LONGEST_PATH).replace("\\", "/")
    function = _text(frame.get("name"))
    return (
        f"{PurePosixPath(file).name or 'unknown'}({max(integer(frame.get('line')), 0)}): {function}"
    )
