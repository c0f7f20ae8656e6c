"""Between which bounds the shortest step is that software alone could reach."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from traceprobe.records.texts import Sentence, Word


class Floor(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why a step cannot be shorter."""

    name: Word
    ms: float
    why: Sentence


class Headroom(msgspec.Struct, frozen=True, kw_only=True):
    """At this precision and batch, with the same kernels' work on the same hardware."""

    now_ms: float
    floor_ms: float
    """No change of the software makes a step shorter: the largest of `floors`."""
    reachable_ms: float
    """What is within reach according to the replay: at least as short as this it can get."""
    floors: list[Floor]

    def problems(self) -> Iterator[str]:
        """What it contradicts itself in."""
        if not 0 <= self.floor_ms <= self.reachable_ms <= self.now_ms:
            yield "the bounds of the headroom are out of order"
        if not self.floors or abs(self.floor_ms - max(f.ms for f in self.floors)) > 1e-3:
            yield "the floor of the headroom is none of its floors"
