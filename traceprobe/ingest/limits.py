"""How much of a file is read before it is taken for an attack or for garbage.

A few kilobytes can unpack to gigabytes, and one damaged column can claim a million devices. Each
limit is far above what a run has, and far below what memory or patience has.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import msgspec
from msgspec.structs import replace

from traceprobe.errors import DamagedInput, UsageError
from traceprobe.ingest.sparse_files import LEAST_UNPACKED, MOST_RATIO, stored_bytes

_DISK_KEPT = 64 << 20
"""Bytes of the temporary folder that are left to others."""
_SIZE = r"(?i)([0-9]{1,18})([KMGT]?)(?:i?B)?"
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


class Limits(msgspec.Struct, frozen=True):
    """What one file may hold.

    Args:
        unpacked: bytes behind gzip; None allows 4 GiB, or 64 times the file where that is more.
        names: distinct names of kernels, calls and ranges.
        devices: pairs of a process and a device that do work.
        streams: streams with work on a device.
        processes: processes with calls or ranges in one file.
        threads: host threads that make calls or have ranges.
        iterations: steps that the marker delimits.
        windows: those steps times the devices that they are accounted for.
    """

    unpacked: int | None = None
    names: int = 10_000_000
    devices: int = 1_024
    streams: int = 4_096
    processes: int = 256
    threads: int = 4_096
    iterations: int = 100_000
    windows: int = 250_000

    def check(self, limit: str, number: int, name: str) -> None:
        """Stop where a file holds more than it may.

        Args:
            limit: field of this class. name: of the file.

        Raises:
            DamagedInput: with the option that allows more.
        """
        allowed = getattr(self, limit)
        if number > allowed:
            raise DamagedInput(
                f"{name}: holds more than {allowed:,} {limit}, which no run has; if this one has, "
                f"allow them with --limit {limit}=NUMBER"
            )


DEFAULT_LIMITS = Limits()


def parse_limits(texts: list[str]) -> Limits:
    """Limits from texts like `unpacked=20G` or `threads=10000`.

    Raises:
        UsageError: no such limit, or no number.
    """
    known = Limits.__struct_fields__
    limits = Limits()
    for text in texts:
        name, _, value = text.partition("=")
        size = re.fullmatch(_SIZE, value)
        if name not in known or size is None:
            raise UsageError(
                f"--limit {text}: write NAME=NUMBER, e.g. --limit unpacked=20G; the names are "
                f"{', '.join(known)}"
            )
        limits = replace(limits, **{name: int(size[1]) << _UNITS[size[2].upper()]})
    return limits


class UnpackedBudget:
    """Counts what comes out of a gzip stream.

    Args:
        folder: where it is written to; None where it is not kept.
    """

    def __init__(self, path: Path, limits: Limits, folder: Path | None = None) -> None:
        self._name, self._bytes, self._packed = path.name, 0, stored_bytes(path)
        default = max(LEAST_UNPACKED, MOST_RATIO * self._packed)
        self._allowed = default if limits.unpacked is None else limits.unpacked
        self._room = None if folder is None else shutil.disk_usage(folder).free - _DISK_KEPT

    def add(self, size: int) -> None:
        """Count some bytes before they are kept.

        Raises:
            DamagedInput: that is more than the limit, or than the disk has room for.
        """
        self._bytes += size
        if self._bytes > self._allowed:
            raise DamagedInput(
                f"{self._name}: {self._packed:,} bytes unpack to more than {self._allowed:,}, "
                "as no trace does; if this one does, allow it with --limit unpacked=BYTES"
            )
        if self._room is not None and self._bytes > self._room:
            raise DamagedInput(
                f"{self._name}: does not fit the temporary folder when unpacked; unpack it "
                "yourself (gunzip), or name a folder with more room in TMPDIR"
            )
