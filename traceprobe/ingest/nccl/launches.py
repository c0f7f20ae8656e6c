"""Which entries of a dump are launched as one: a batch of messages, or coalesced collectives."""

from __future__ import annotations

from collections.abc import Sequence

from traceprobe.model.flight_record import Entry

WHOLE = "coalesced"
"""Operation of the entry that PyTorch adds when it launches those before it as one."""


def launches(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Entries by launch, in the order of issue; with several, the entry of the whole is the last.

    PyTorch counts a new collective when such a group begins, and gives its number to all of it,
    messages too. What comes later with that number is a message of its own.

    Args:
        entries: in the order of issue.
    """
    last = {_key(entry): n for n, entry in enumerate(entries) if entry.operation == WHOLE}
    found: list[list[Entry]] = []
    open_ones: dict[tuple[str, str, int], list[Entry]] = {}
    for n, entry in enumerate(entries):
        key = _key(entry)
        if n > last.get(key, -1):
            found.append([entry])
        elif entry.operation == WHOLE:
            found.append([*open_ones.pop(key, []), entry])
        else:
            open_ones.setdefault(key, []).append(entry)
    return found


def _key(entry: Entry) -> tuple[str, str, int]:
    """In one dump a name is one group; to hash the ranks of a large one takes long."""
    return entry.group.name, entry.group.description, entry.launch
