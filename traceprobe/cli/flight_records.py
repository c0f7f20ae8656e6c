"""Dumps of PyTorch's flight recorder, as the user gives them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from traceprobe.cli.console import note
from traceprobe.cli.inputs import check_inputs, expand
from traceprobe.errors import UnsupportedInput, UsageError
from traceprobe.ingest.nccl import flight_recorder


def find_dumps(arguments: Sequence[str], *, quiet: bool) -> list[Path]:
    """Files, patterns, and the dumps that are in folders.

    Raises:
        UsageError: nothing has that name, or no dump is in the folder.
    """
    found: list[Path] = []
    for argument in arguments:
        folder = Path(argument)
        if not folder.is_dir():
            found += expand([argument], quiet=quiet)
            continue
        inside = flight_recorder.find_dumps(folder)
        if not inside:
            raise UsageError(
                f"{folder}: is a directory without a dump of the flight recorder "
                "(nccl_trace_rank_N); name the files, or their folder"
            )
        found += inside
    return found


def dumps_by_rank(arguments: Sequence[str], *, quiet: bool) -> dict[int, Path]:
    """The dumps by the ranks in their names; of two of one rank the first counts.

    Raises:
        UsageError: as `find_dumps`, or one is no regular file, or given twice.
        UnsupportedInput: one is no dump, or no rank is in its name.
    """
    paths = find_dumps(arguments, quiet=quiet)
    check_inputs(paths)
    found: dict[int, Path] = {}
    for path in paths:
        rank = flight_recorder.rank_in_name(path.name)
        if not flight_recorder.is_dump(path):
            raise UnsupportedInput(flight_recorder.no_dump(path.name))
        if rank is None:
            raise UnsupportedInput(flight_recorder.no_rank(path.name))
        if rank in found:
            note(f"{path.name}: is a second dump of rank {rank}, left out", quiet=quiet)
        found.setdefault(rank, path.resolve())
    return found
