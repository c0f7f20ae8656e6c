"""What a recording noted of the owners of kernels, in the form in which it is asked for."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

from traceprobe.model.codes import UNKNOWN
from traceprobe.model.owner_limits import LONGEST_OWNER
from traceprobe.model.sidecar import KernelOwners

Owner = tuple[int, int, tuple[int, ...]]
"""Operator, line and modules, each a place in the texts; UNKNOWN for none."""
NOBODY: Owner = (UNKNOWN, UNKNOWN, ())


class NotedOwners(msgspec.Struct):
    """What was noted, by what it is asked for.

    Args:
        entries: owners of the calls of a name, in order, by (code, name); of all code together by
            (UNKNOWN, name).
    """

    owners: list[Owner]
    nodes: list[list[tuple[str, int]]]
    replayed: list[int]
    texts: list[str]
    entries: dict[tuple[int, str], list[Owner]] = msgspec.field(default_factory=dict)
    codes: dict[str, int] = msgspec.field(default_factory=dict)

    @classmethod
    def of(cls, noted: KernelOwners) -> NotedOwners:
        """What a recording noted.

        Raises:
            ValueError: a place is in no list, or the calls of a graph are not all its nodes.
        """
        _check(noted)
        texts = noted.texts
        owners = [(each[0], each[1], tuple(n for n in each[2:] if n >= 0)) for each in noted.owners]
        nodes = []
        for graph in noted.graphs:
            number = np.arange(len(graph.calls)).repeat([count for count, _ in graph.calls])
            named = zip(graph.names, number.tolist(), strict=True)
            nodes.append([(texts[name], call) for name, call in named if name >= 0])
        found = cls(owners, nodes, list(noted.replays), texts)
        for code, compiled in enumerate(noted.compiled):
            if compiled.key:
                found.codes.setdefault(compiled.key, code)
            for name, owner in compiled.calls:
                for place in (code, UNKNOWN):
                    known = found.owner(owner)
                    found.entries.setdefault((place, texts[name]), []).append(known)
        return found

    def owner(self, number: int) -> Owner:
        """An owner by its number."""
        return self.owners[number] if number >= 0 else NOBODY


def _check(noted: KernelOwners) -> None:
    texts = [place for owner in noted.owners for place in owner]
    owners: list[int] = []
    for graph in noted.graphs:
        counts = [count for count, _ in graph.calls]
        if min(counts, default=0) < 0 or sum(counts) != len(graph.names):
            raise ValueError("the calls of a graph are not all its nodes")
        texts += graph.names
        owners += [owner for _, owner in graph.calls]
    for compiled in noted.compiled:
        if any(name < 0 for name, _ in compiled.calls):
            raise ValueError("a call has no name")
        texts += [name for name, _ in compiled.calls]
        owners += [owner for _, owner in compiled.calls]
    if max(texts, default=-1) >= len(noted.texts) or max(owners, default=-1) >= len(noted.owners):
        raise ValueError("a place is in no list")


def kernel_key(name: str) -> str:
    """A kernel's name as the recording notes it: a long one as its digest."""
    if len(name) <= LONGEST_OWNER:
        return name
    return "#" + hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=12).hexdigest()


def matched(
    items: Iterable[tuple[int, int, str, int]], found: NotedOwners
) -> Iterator[tuple[int, Owner]]:
    """Owners of things that were called in order.

    Args:
        items: the run or replay that each was in, its code, its name, and what is passed on.
    """
    together: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    for group, code, name, item in items:
        together[group, code, name].append(item)
    for (_, code, name), members in together.items():
        entries = found.entries.get((code, name)) or found.entries.get((UNKNOWN, name)) or []
        if not entries:
            continue
        if len(members) % len(entries):
            entries = [_common(entries)]
        for place, item in enumerate(members):
            owner = entries[place % len(entries)]
            if owner != NOBODY:
                yield item, owner


def _common(entries: Sequence[Owner]) -> Owner:
    """What some owners have in common."""
    operators, lines = {each[0] for each in entries}, {each[1] for each in entries}
    modules: list[int] = []
    for steps in zip(*(each[2] for each in entries), strict=False):
        if len(set(steps)) > 1:
            break
        modules.append(steps[0])
    return (
        operators.pop() if len(operators) == 1 else UNKNOWN,
        lines.pop() if len(lines) == 1 else UNKNOWN,
        tuple(modules),
    )
