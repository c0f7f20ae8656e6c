"""Values that break readers, and damage to bytes that knows no format."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

NAMES = [
    "",
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\x1b]0;owned\x07\x1b[31mred",
    "\u202etxt.exe\u2066\u2069",
    "ProfilerStep#-1",
    "ProfilerStep#99999999999999999999",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "Memcpy HtoD (Pageable -> Device)",
    "Optimizer.step#Adam.step",
    "aten::addmm, seq = 18446744073709551615, op_id = -1",
    "x" * 10_000,
    "\x00",
    "{{ 7 * 7 }}",
    "\U0001f600" * 50,
    "stream ²",
    "stream 7 ٣",
    "half a character \ud800",
    "step " + "1 " * 3_000,
    "9" * 400,
]
NUMBERS: list[Any] = [
    *(0, -1, 1, 0.5, -0.0, 1e-300, 1e300, -1e300, 2**31, 2**53 + 1),
    *(10**400, -(10**400), 5e-324, 10**11, 2**62, 2**63 - 20_000_000),
    *(2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64 - 1, 2**64, 10**30, 4_294_967_295),
]
OTHERS: list[Any] = [
    None,
    True,
    False,
    [],
    {},
    [[]],
    {"a": {"b": []}},
    "NaN",
    "1e5",
    " 12 ",
    "0x10",
    "1" + "0" * 400,
    [[[[[[[[[[]]]]]]]]]],
    {"a": "x" * 300_000},
]


def nasty(random: Random) -> Any:
    """A value that some field does not expect."""
    # A copy: it may be changed further, and the next input is made of the same values.
    return copy.deepcopy(random.choice(random.choice([NAMES, NUMBERS, OTHERS])))


def scramble(data: bytes, random: Random) -> bytes:
    """Bytes cut, flipped, repeated or replaced."""
    if not data:
        return data
    changed = bytearray(data)
    for _ in range(random.choice([1, 1, 1, 3, 20])):
        at = random.randrange(len(changed)) if changed else 0
        how = random.randrange(5)
        if how == 0 and changed:
            changed[at] = random.randrange(256)
        elif how == 1:
            changed[at:at] = random.choice(
                [b"\0", b"\xff\xfe", b"NaN", b'"', b"{", b"]", b"\n" * 9]
            )
        elif how == 2:
            del changed[at : at + random.choice([1, 2, 16, 300])]
        elif how == 3:
            changed[at:at] = changed[at : at + random.choice([1, 40, 800])]
        else:
            del changed[at:]
    return bytes(changed)
