"""Parts that wait for those of other files, packed: of a thousand ranks they are a tenth so."""

from __future__ import annotations

import pickle
import zlib

from traceprobe.pipeline.rank_details import FASTEST
from traceprobe.pipeline.trace_part import Lost, TracePart


def packed(part: TracePart | Lost) -> bytes:
    """A part for `unpacked`, which only a process of ours should be given."""
    return zlib.compress(pickle.dumps(part, pickle.HIGHEST_PROTOCOL), FASTEST)


def unpacked(parts: list[bytes]) -> list[TracePart | Lost]:
    """The parts, which are taken out of the list, so that none is in memory twice."""
    parts.reverse()
    return [_unpacked(parts.pop()) for _ in range(len(parts))]


def _unpacked(data: bytes) -> TracePart | Lost:
    part: TracePart | Lost = pickle.loads(zlib.decompress(data))
    return part
