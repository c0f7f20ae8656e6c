"""Which rank each process of the inputs is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from traceprobe.errors import UsageError
from traceprobe.ingest.trace_folder import named_rank
from traceprobe.pipeline.trace_part import TracePart

_NUMBER = re.compile(r"(?:^|[-_.])r?(\d{1,6})(?=\.)", re.IGNORECASE)


def rank_numbers(parts: Sequence[TracePart]) -> dict[tuple[int, int], int]:
    """Rank of each (input, process): from the file, else from its name, else by position.

    Where files contradict each other, their names decide.

    Raises:
        UsageError: two inputs claim the same rank.
    """
    processes = [
        (s, pid) for s, p in enumerate(parts) for pid in sorted({d.record.pid for d in p.devices})
    ]
    claimed = {(s, pid): parts[s].rank_of[pid] for s, pid in processes if pid in parts[s].rank_of}
    claimed |= overruled_ranks(parts)
    owner: dict[int, tuple[int, int]] = {}
    for key, rank in claimed.items():
        if rank in owner:
            first, second = parts[owner[rank][0]].input.name, parts[key[0]].input.name
            raise UsageError(
                f"{first} and {second} both say that they are rank {rank}; give the files of "
                "one run"
            )
        owner[rank] = key
    for key, rank in _named(parts, [key for key in processes if key not in claimed]).items():
        if rank not in owner:
            claimed[key] = rank
            owner[rank] = key
    free = iter(r for r in range(len(processes) + len(owner) + 1) if r not in owner)
    return {key: claimed[key] if key in claimed else next(free) for key in processes}


def overruled_ranks(parts: Sequence[TracePart]) -> dict[tuple[int, int], int]:
    """Ranks by file names of processes whose files all claim one rank, as some launchers let them.

    Where the names do not tell them apart nothing is overruled: those are files of several runs.
    """
    claims = [(s, pid, rank) for s, part in enumerate(parts) for pid, rank in part.rank_of.items()]
    often = Counter(rank for _, _, rank in claims)
    doubtful = [(s, pid) for s, pid, rank in claims if often[rank] > 1]
    named = _named(parts, doubtful)
    sure = {rank for _, _, rank in claims if often[rank] == 1}
    told = len(named) == len(doubtful) and not sure & set(named.values())
    return named if told else {}


def _named(
    parts: Sequence[TracePart], unknown: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], int]:
    """Ranks by the names of files that hold one process; none where two names say the same.

    A number without the word `rank` says something only beside those of other files.
    """
    alone = Counter(source for source, _ in unknown)
    found = {}
    for key in unknown:
        name, several = parts[key[0]].input.name, len(parts) > 1
        rank = named_rank(name)
        if rank is None and several and (number := _NUMBER.search(name)):
            rank = int(number[1])
        if rank is not None and alone[key[0]] == 1:
            found[key] = rank
    return found if len(set(found.values())) == len(found) else {}
