"""What of a rank only a close look needs, packed: of a large run few ranks show it.

Gaps, pictures, operators and iterations to be played are most of what is left of a trace. All ranks
have them until it is known which are looked at closely, and packed they take a tenth.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from traceprobe.pipeline.join_pictures import PlannedPicture, WindowRows, window_rows
from traceprobe.records.operator_calls import OperatorCalls
from traceprobe.records.picture import Picture
from traceprobe.records.rank import Gap, Rank
from traceprobe.records.replay import Replay

FASTEST = 1
"""Level of zlib; the best one takes ten times as long for a tenth less."""


class _Details(msgspec.Struct, frozen=True):
    gaps: list[Gap]
    picture: Picture
    replay: Replay | UnsetType = UNSET
    operators: list[OperatorCalls] | UnsetType = UNSET


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Details)


class RankDetails(msgspec.Struct, frozen=True):
    """The packed details of one device.

    Args:
        data: deflated.
        windows: those of the picture.
    """

    data: bytes
    windows: Sequence[WindowRows]

    def replay(self) -> Replay | UnsetType:
        """The iterations to be played."""
        return self._unpacked().replay

    def operators(self) -> list[OperatorCalls] | UnsetType:
        """Of its summary."""
        return self._unpacked().operators

    def put_back(self, record: Rank, shown: PlannedPicture | None) -> Rank:
        """The record with its details.

        Args:
            shown: what its picture shows; None for none.
        """
        details = self._unpacked()
        picture = UNSET if shown is None else shown.drawn(details.picture)
        summary = replace(record.summary, operators=details.operators)
        return replace(
            record, gaps=details.gaps, replay=details.replay, picture=picture, summary=summary
        )

    def _unpacked(self) -> _Details:
        return _DECODER.decode(zlib.decompress(self.data))


def without_details(
    record: Rank, picture: Picture, operators: list[OperatorCalls] | UnsetType
) -> tuple[Rank, RankDetails]:
    """A record without its details, and these.

    Args:
        picture: the whole one of its trace. operators: of its summary, which has none so far.
    """
    details = _Details(record.gaps, picture, record.replay, operators)
    data = zlib.compress(_ENCODER.encode(details), FASTEST)
    brief = replace(record, gaps=[], replay=UNSET)
    return brief, RankDetails(data, window_rows(picture))
