"""What a collective is: its operation, the bytes of its message, the group of ranks that take part.

The size of a message follows nccl-tests: an all-gather and a gather count their whole output,
everything else counts its input. A size that the file does not give stays unknown.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from traceprobe.ingest.communication_kernels import own_name
from traceprobe.ingest.joins import per_name
from traceprobe.ingest.untrusted_values import MOST_BYTES, NAME_LENGTH, bounded_text
from traceprobe.model.codes import UNKNOWN, Int64s, Ints, Kind, Operation

# Longer names first: "reduce" is in "all_reduce" and "reduce_scatter", "gather" in "all_gather".
# Tokens are dispatched to experts, and their results combined, by messages from all to all.
_OPERATIONS = (
    (r"all_?reduce|cross_?device_?reduce", Operation.ALL_REDUCE),
    (r"reduce_?scatter", Operation.REDUCE_SCATTER),
    (r"all_?gather", Operation.ALL_GATHER),
    (r"all_?to_?all|all2all|dispatch|combine", Operation.ALL_TO_ALL),
    (r"broad_?cast", Operation.BROADCAST),
    (r"barrier", Operation.BARRIER),
    (r"PtoP|P2P|Peer", Operation.COPY),
    (r"send|recv", Operation.SEND_RECV),
    (r"gather", Operation.GATHER),
    (r"scatter", Operation.SCATTER),
    (r"reduce", Operation.REDUCE),
)
_LONGEST_MEMBERS = 1 << 20
"""Characters of a list of the ranks of a group."""
OF_MESSAGES = (Operation.SEND_RECV, Operation.ALL_TO_ALL, Operation.GATHER, Operation.SCATTER)
"""Operations that NCCL runs as sends and receives."""
OF_ONE_RANK = (
    *(Operation.ALL_GATHER, Operation.REDUCE_SCATTER, Operation.ALL_TO_ALL),
    *(Operation.GATHER, Operation.SCATTER),
)
"""Operations of whose message NCCL is given the part of one rank."""
_OUTPUT = (Operation.ALL_GATHER, Operation.GATHER)
_ITEM_BYTES = {
    **dict.fromkeys(("double", "long", "int64", "uint64", "complexfloat"), 8),
    **dict.fromkeys(("float", "int", "int32", "uint32", "complexhalf"), 4),
    **dict.fromkeys(("half", "bfloat16", "short", "int16", "uint16"), 2),
    **dict.fromkeys(("byte", "char", "bool", "int8", "uint8"), 1),
    "complexdouble": 16,
}


def collective_operation(name: str) -> Operation:
    """The operation in the name of a kernel, a copy or a collective; OTHER where it says none.

    Of a kernel's name the part before its arguments counts: their types mention other operations.
    """
    own = own_name(name)
    matching = (found for text, found in _OPERATIONS if re.search(text, own, re.IGNORECASE))
    return next(matching, Operation.OTHER)


def collective_operations(kind: Ints, name: Ints, names: Sequence[str]) -> Int64s:
    """Operation of each GPU op by its name; UNKNOWN for what is no communication."""
    found = np.full(len(kind), UNKNOWN, dtype=np.int64)
    rows = kind == int(Kind.COMM)
    if rows.any():
        found[rows] = per_name(name[rows], names, collective_operation)
    return found


def item_bytes(dtype: object) -> int:
    """Bytes of one element of a PyTorch type; UNKNOWN for a type that is not known."""
    name = bounded_text(dtype).lower()
    return 1 if name.startswith("float8") else _ITEM_BYTES.get(name, UNKNOWN)


def message_bytes(kind: Operation, elements_in: int, elements_out: int, dtype: object) -> int:
    """Bytes of the message; UNKNOWN where the number or the type of its elements is."""
    elements = elements_out if kind in _OUTPUT else elements_in
    size = item_bytes(dtype)
    whole = elements * size if elements >= 0 and size > 0 else UNKNOWN
    return whole if whole <= MOST_BYTES else UNKNOWN


def group_id(name: object, members: object) -> int:
    """A number for a process group that is the same in the files of all its ranks.

    Ranks may number their groups each for itself, so the members are part of the identity.
    """
    if name is None:
        return UNKNOWN
    identity = f"{bounded_text(name, NAME_LENGTH)}\n{bounded_text(members, _LONGEST_MEMBERS)}"
    return (_cached_number if len(identity) <= NAME_LENGTH else _number)(identity)


def _number(identity: str) -> int:
    return int.from_bytes(hashlib.blake2b(identity.encode(), digest_size=7).digest(), "big")


_cached_number = lru_cache(maxsize=1024)(_number)
