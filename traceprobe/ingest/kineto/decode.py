"""Chunks of JSON to records of a type; what is damaged is mended, or counted as lost."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import msgspec

from traceprobe.ingest.kineto.repair import Salvage, salvage
from traceprobe.ingest.untrusted_values import JSON_ERRORS
from traceprobe.model.quality import Quality

Row = TypeVar("Row")
TWICE = "events name a key twice; the last value counts."


class Decoder(Generic[Row]):
    """Decodes chunks of whole events, without the array's brackets, into records of a type."""

    def __init__(self, row: type[Row]) -> None:
        self._many = msgspec.json.Decoder(list[row])  # type: ignore[valid-type]
        self._one = msgspec.json.Decoder(row)

    def decode(self, chunk: bytes) -> Salvage[Row]:
        """The events of a chunk. Nothing is raised, whatever it holds."""
        try:
            return Salvage(self._many.decode(b"".join((b"[", chunk, b"]"))))
        except JSON_ERRORS:
            return salvage(chunk, self._one.decode)


def decode_events(chunks: Iterable[bytes], row: type[Row], quality: Quality) -> Iterator[list[Row]]:
    """Events as records of a type; what had to be mended or is lost is counted."""
    decoder = Decoder(row)
    for chunk in chunks:
        found = decoder.decode(chunk)
        quality.events_repaired += found.repaired
        quality.events_lost += found.lost
        if found.twice:
            quality.damaged("duplicate-keys", found.twice, TWICE)
        yield found.events


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Events hold no cycles; the collector would scan millions of them for nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
