"""Parts that wait for those of other files, packed: of a thousand ranks they are a tenth so."""

from __future__ import annotations

import io
import pickle
import zlib

from traceprobe.pipeline.rank_details import FASTEST
from traceprobe.pipeline.trace_part import Lost, TracePart


class _Packer(pickle.Pickler):
    """Marks texts, so that a reader of several parts can have each once."""

    def persistent_id(self, obj: object) -> str | None:
        return obj if type(obj) is str else None


class _Unpacker(pickle.Unpickler):
    """The ranks of a run have the same names of kernels, operators and owners."""

    def __init__(self, data: bytes, texts: dict[str, str]) -> None:
        super().__init__(io.BytesIO(data))
        self._texts = texts

    def persistent_load(self, pid: str) -> str:
        return self._texts.setdefault(pid, pid)


def packed(part: TracePart | Lost) -> bytes:
    """A part for `unpacked`, which only a process of ours should be given."""
    data = io.BytesIO()
    _Packer(data, pickle.HIGHEST_PROTOCOL).dump(part)
    return zlib.compress(data.getbuffer(), FASTEST)


def unpacked(parts: list[bytes]) -> list[TracePart | Lost]:
    """The parts, which are taken out of the list, so that none is in memory twice."""
    texts: dict[str, str] = {}
    parts.reverse()
    return [_unpacked(parts.pop(), texts) for _ in range(len(parts))]


def _unpacked(data: bytes, texts: dict[str, str]) -> TracePart | Lost:
    part: TracePart | Lost = _Unpacker(zlib.decompress(data), texts).load()
    return part
