"""Dumps of PyTorch's flight recorder: pickle or JSON to `FlightRecord`.

Written by PyTorch when a collective times out (`nccl_trace_rank_N`, `comm_lib_trace_rank_N`), when
its debug pipe is written to, or by `torch._C._distributed_c10d._dump_fr_trace()` and
`_dump_fr_trace_json()`. The format is that of FlightRecorder.hpp, read as of PyTorch 2.13 (version
2.10 of the format) and of the versions 2.x before. The JSON has no stacks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from traceprobe.errors import DamagedInput, UnsupportedInput
from traceprobe.ingest.nccl.entries import (
    LARGEST_SEQUENCE,
    EntryParser,
    group_of,
    plain_text,
)
from traceprobe.ingest.nccl.launches import launches
from traceprobe.ingest.nccl.plain_pickle import NotPlain, loads
from traceprobe.ingest.trace_folder import natural_order
from traceprobe.ingest.untrusted_values import integer, json_object, rank_number
from traceprobe.model.flight_record import Entry, FlightRecord, GroupKey
from traceprobe.system.reading import open_regular

MOST_BYTES = 128 << 20
"""Of a dump; one of 20,000 collectives with their stacks has some 10 MB."""
MOST_ENTRIES = 200_000
"""The recorder keeps 2,000 unless it is told otherwise."""
MOST_MEMBERS = 1 << 22
"""Members of all groups of a dump together."""
_LONGEST_RANKS = 1 << 20
"""Characters of a list of ranks: a group of 100,000 has 700 thousand."""
_RANK = re.compile(r"(\d{1,9})(?:\.(?:json|pickle|pkl|pt|bin|dump))?$", re.IGNORECASE)
_RANKS = re.compile(r"\[[\d,\s]*\]")


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


def no_rank(name: str) -> str:
    """What is said of a dump whose name has no rank."""
    return (
        f"{name}: no rank is in its name, and the dump does not say whose it is; call it "
        f"{name}_rank_0, with the number of its rank"
    )


def no_dump(name: str) -> str:
    """What is said of another file."""
    return (
        f"{name}: is no dump of PyTorch's flight recorder (a pickle or JSON with version, "
        "pg_config and entries); name the nccl_trace_rank_N files"
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
        raise UnsupportedInput(no_rank(name))
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
        raise UnsupportedInput(no_dump(name))
    return cast("Mapping[str, Any]", value)


def _record(name: str, rank: int, value: Mapping[str, Any]) -> FlightRecord:
    version = plain_text(value["version"])
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
    parse = EntryParser(groups)
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
    ended = {id(entry) for together in launches(entries) if together[-1].done for entry in together}
    return [
        replace(entry, done=True) if id(entry) in ended and not entry.done else entry
        for entry in entries
    ]


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
        text = plain_text(name)
        found[text] = GroupKey(text, plain_text(about.get("desc")), ranks)
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
            numbered.setdefault(str(integer(row.get("pg_id"))), group_of(row, groups))
    found = {}
    for number, about in status.items() if isinstance(status, dict) else ():
        last = integer(about.get("last_completed_collective")) if isinstance(about, dict) else -1
        group = numbered.get(plain_text(number))
        if group is not None and 0 < last < LARGEST_SEQUENCE:
            found[group] = last
    return found
