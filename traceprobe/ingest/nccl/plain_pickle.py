"""Pickles that hold plain data, read without running anything.

A pickle is a program: it may import any function and call it. PyTorch's flight recorder writes its
dumps as pickles of dictionaries, lists, tuples, texts and numbers, which take a few of the opcodes
(https://github.com/python/cpython/blob/main/Lib/pickletools.py). Only those are known here; a file
with any other is refused where it stands, before anything after it is looked at.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

MOST_VALUES = 4_000_000
"""Values that are put on the stack; a dump of 20,000 collectives with their stacks has two million.
The smallest takes a byte of the file and an empty dictionary 64 of memory."""
_LONGEST_NUMBER = 16
"""Bytes of an integer."""
_PROTOCOLS = range(2, 6)


class NotPlain(Exception):
    """The pickle is damaged, or would do more than hold data; the message says where."""


def loads(data: bytes) -> Any:
    """The value of a pickle of protocol 2 to 5.

    Values that the pickle refers to twice are the same object; it may hold itself. Whoever walks it
    must not follow it to any depth.

    Raises:
        NotPlain: it holds anything but plain data, is cut short, or holds too many values.
    """
    reader = _Reader(data)
    try:
        return reader.read()
    except (IndexError, struct.error, KeyError) as error:
        raise NotPlain(f"is damaged at byte {reader.at:,}") from error


class _Mark:
    """Where a collection on the stack begins."""


_MARK = _Mark()


class _Reader:
    """The stack machine of a pickle, as far as plain data needs it."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.values = 0

    def read(self) -> Any:
        """Run to the end."""
        if self.take(1) != b"\x80" or self.take(1)[0] not in _PROTOCOLS:
            raise NotPlain("is no pickle of protocol 2 to 5")
        while True:
            start = self.at
            code = self.take(1)
            if code == b".":
                break
            act = _OPCODES.get(code)
            if act is None:
                raise NotPlain(_refusal(code, start))
            act(self)
        (value,) = self.stack if len(self.stack) == 1 else (_MARK,)
        if value is _MARK:
            raise IndexError
        return value

    def take(self, count: int) -> bytes:
        """The next bytes."""
        end = self.at + count
        if end > len(self.data):
            raise NotPlain(f"is cut short: {len(self.data):,} bytes are not all of it")
        found = self.data[self.at : end]
        self.at = end
        return found

    def number(self, form: str) -> int:
        """The next integer, of a format of `struct`."""
        found: int
        (found,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return found

    def push(self, value: Any) -> None:
        """Put a value on the stack."""
        self.values += 1
        if self.values > MOST_VALUES:
            raise NotPlain(f"holds more than {MOST_VALUES:,} values, as no dump does")
        self.stack.append(value)

    def popped(self) -> Any:
        """The value on top, which is then gone."""
        value = self.stack.pop()
        if value is _MARK:
            raise IndexError
        return value

    def since_mark(self) -> list[Any]:
        """The values down to the last mark, which are then gone with it."""
        for place in range(len(self.stack) - 1, -1, -1):
            if self.stack[place] is _MARK:
                found = self.stack[place + 1 :]
                del self.stack[place:]
                return found
        raise IndexError

    def text(self, length: int) -> None:
        """Push a text of so many bytes."""
        self.push(self.take(length).decode("utf-8", "replace"))

    def integer(self, length: int) -> None:
        """Push a little-endian integer of so many bytes."""
        if length > _LONGEST_NUMBER:
            raise NotPlain(f"holds an integer of {length:,} bytes at byte {self.at:,}")
        self.push(int.from_bytes(self.take(length), "little", signed=True))

    def tuple_of(self, count: int) -> None:
        """Push a tuple of so many values."""
        values = [self.popped() for _ in range(count)]
        self.push(tuple(reversed(values)))

    def remember(self, key: int) -> None:
        """Keep the value on top for later."""
        if self.stack[-1] is _MARK:
            raise IndexError
        self.memo[key] = self.stack[-1]

    def append(self, values: list[Any]) -> None:
        """Append to the list on top."""
        if type(self.stack[-1]) is not list:
            raise IndexError
        self.stack[-1].extend(values)

    def set(self, values: list[Any]) -> None:
        """Put pairs of keys and values into the dictionary on top."""
        keys = values[::2]
        if type(self.stack[-1]) is not dict or len(values) % 2:
            raise IndexError
        # Numbers can be chosen so that their hashes collide, and to hash a tuple of tuples takes as
        # many frames of C as it is deep.
        if not all(type(key) is str for key in keys):
            raise NotPlain(f"has a key that is no text before byte {self.at:,}")
        self.stack[-1].update(zip(keys, values[1::2], strict=True))


def _refusal(code: bytes, at: int) -> str:
    what = _DANGEROUS.get(code)
    if what is None:
        return f"holds the opcode {code!r} at byte {at:,}, which no dump has"
    return f"{what} (opcode {code!r} at byte {at:,}), which is not done"


_DANGEROUS = {
    **dict.fromkeys((b"c", b"\x93"), "wants to import a function or a class"),
    **dict.fromkeys((b"R", b"o", b"i", b"\x81", b"\x92"), "wants to call a function"),
    b"b": "wants to change an object",
    **dict.fromkeys((b"P", b"Q"), "refers to an object outside of the file"),
    **dict.fromkeys((b"\x82", b"\x83", b"\x84"), "refers to an extension of Python"),
}
_OPCODES: dict[bytes, Callable[[_Reader], Any]] = {
    b"N": lambda r: r.push(None),
    b"\x88": lambda r: r.push(True),
    b"\x89": lambda r: r.push(False),
    b"K": lambda r: r.push(r.number("<B")),
    b"M": lambda r: r.push(r.number("<H")),
    b"J": lambda r: r.push(r.number("<i")),
    b"\x8a": lambda r: r.integer(r.number("<B")),
    b"\x8b": lambda r: r.integer(r.number("<I")),
    b"G": lambda r: r.push(*struct.unpack(">d", r.take(8))),
    b"X": lambda r: r.text(r.number("<I")),
    b"\x8c": lambda r: r.text(r.number("<B")),
    b"\x8d": lambda r: r.text(r.number("<Q")),
    b"B": lambda r: r.push(r.take(r.number("<I"))),
    b"C": lambda r: r.push(r.take(r.number("<B"))),
    b"(": lambda r: r.push(_MARK),
    b"]": lambda r: r.push([]),
    b"}": lambda r: r.push({}),
    b")": lambda r: r.push(()),
    b"\x85": lambda r: r.tuple_of(1),
    b"\x86": lambda r: r.tuple_of(2),
    b"\x87": lambda r: r.tuple_of(3),
    b"t": lambda r: r.push(tuple(r.since_mark())),
    b"a": lambda r: r.append([r.popped()]),
    b"e": lambda r: r.append(r.since_mark()),
    b"s": lambda r: r.set([*reversed([r.popped(), r.popped()])]),
    b"u": lambda r: r.set(r.since_mark()),
    b"q": lambda r: r.remember(r.number("<B")),
    b"r": lambda r: r.remember(r.number("<I")),
    b"\x94": lambda r: r.remember(len(r.memo)),
    b"h": lambda r: r.push(r.memo[r.number("<B")]),
    b"j": lambda r: r.push(r.memo[r.number("<I")]),
    b"\x95": lambda r: r.take(8),  # the length of a frame, which only helps to read ahead
}
"""What builds dictionaries, lists, tuples, texts, bytes and numbers, and refers back to them."""
