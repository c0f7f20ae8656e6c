"""Which entries of a dump are launched as one: a batch of messages, or coalesced collectives."""

from __future__ import annotations

from collections.abc import Sequence

from traceprobe.model.flight_record import Entry

WHOLE = "coalesced"
"""Operation of the entry that PyTorch adds when it launches those before it as one."""


def launches(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Entries by launch, in the order of issue; with several, the entry of the whole is the last.

    What is launched as one comes right before the whole in its group, and shares a number with it:
    that of the collective, or of the message.

    Args:
        entries: in the order of issue.
    """
    found: list[list[Entry]] = []
    before: dict[tuple[str, str], list[list[Entry]]] = {}
    for entry in entries:
        # In one dump a name is one group; to hash the ranks of a large one takes long.
        own = before.setdefault((entry.group.name, entry.group.description), [])
        launch = [entry]
        if entry.operation == WHOLE:
            while own and _is_part(own[-1], launch[-1], entry):
                launch += own.pop()
            launch.reverse()
        own.append(launch)
        found.append(launch)
    parts = {id(part) for launch in found if len(launch) > 1 for part in launch[:-1]}
    return [launch for launch in found if len(launch) > 1 or id(launch[0]) not in parts]


def _is_part(candidate: Sequence[Entry], first: Entry, whole: Entry) -> bool:
    """Whether an entry is a part of the launch of `whole`, whose `first` part so far is known."""
    entry = candidate[0]
    if len(candidate) > 1 or entry.operation == WHOLE:
        return False
    if first is not whole and entry.point_to_point != first.point_to_point:
        return False
    return entry.sequence == (whole.batch if entry.point_to_point else whole.sequence)
