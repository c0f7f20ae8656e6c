"""What PyTorch's flight recorder notes of the collectives of a rank, as plain values.

Field names follow PyTorch (`torch/csrc/distributed/c10d/FlightRecorder.hpp`, format 2.10).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

State = Literal["scheduled", "started", "completed"]


class GroupKey(NamedTuple):
    """A process group; PyTorch may give one name to several groups of different ranks.

    Args:
        ranks: of the whole run, ascending; empty where the dump does not say (Gloo).
    """

    name: str
    description: str
    ranks: tuple[int, ...]


class Tensors(msgspec.Struct, frozen=True):
    """The inputs or the outputs of a call. Both are as long; a scalar has no dimensions."""

    sizes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]


class Entry(msgspec.Struct, frozen=True):
    """One operation that a rank issued.

    Args:
        number: of the record, ascending in the order of issue.
        sequence: `collective_seq_id`; of point-to-point operations `p2p_seq_id`.
        batch: `p2p_seq_id` of either, which messages that are launched as one share.
        backend, operation: `nccl` and `all_reduce` of `nccl:all_reduce`.
        point_to_point: whether two ranks take part in it, and not all of the group.
        peers: source and target inside the group, of a send or a receive.
        done: whether it ended, as far as the recorder saw.
        line: of the program, `train.py(57): step`; None where the dump has no stacks.
    """

    number: int
    group: GroupKey
    sequence: int
    batch: int
    backend: str
    operation: str
    point_to_point: bool
    peers: tuple[int, int] | None
    inputs: Tensors
    outputs: Tensors
    state: State
    done: bool
    created_ns: int
    line: str | None


class FlightRecord(msgspec.Struct, frozen=True):
    """The dump of one rank.

    Args:
        name: base name of the file. version: of the format.
        groups: by name, as the dump lists them.
        completed: by group, the last collective known to have ended there. Older dumps do not say.
    """

    name: str
    rank: int
    version: str
    groups: Mapping[str, GroupKey]
    entries: Sequence[Entry]
    completed: Mapping[GroupKey, int]
