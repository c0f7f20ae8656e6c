"""Dumps of PyTorch's flight recorder and logs of NCCL Inspector, as the user gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from traceprobe.cli.console import note
from traceprobe.cli.inputs import check_inputs, expand
from traceprobe.errors import UnsupportedInput, UsageError
from traceprobe.ingest.nccl import flight_recorder, inspector_log


def find_dumps(arguments: Sequence[str], *, quiet: bool) -> list[Path]:
    """Files, patterns, and the dumps that are in folders.

    Raises:
        UsageError: nothing has that name, or no dump is in the folder.
        UnsupportedInput: one is a log of NCCL Inspector.
    """
    found = _find(
        arguments,
        lambda folder: flight_recorder.find_dumps(folder) or inspector_log.find_logs(folder),
        "a dump of the flight recorder (nccl_trace_rank_N)",
        quiet=quiet,
    )
    for path in found:
        if path.is_file() and inspector_log.is_log(path):
            raise UnsupportedInput(
                f"{path.name}: is a log of NCCL Inspector, which notes collectives that ended and "
                "not the one that hangs; name the flight recorder's nccl_trace_rank_N files"
            )
    return found


def records_by_rank(arguments: Sequence[str], *, quiet: bool) -> dict[int, list[Path]]:
    """The dumps by the ranks in their names, the logs by those in their largest communicators.

    Of two dumps of one rank the first counts. Of logs both do, for a rank may be that in a part of
    the run; their times tell them apart.

    Raises:
        UsageError: as `find_dumps`, or one is no regular file, or given twice.
        UnsupportedInput: one is neither, or no rank is in it.
    """
    paths = _find(
        arguments,
        lambda folder: [*flight_recorder.find_dumps(folder), *inspector_log.find_logs(folder)],
        "a dump of the flight recorder (nccl_trace_rank_N) or a log of NCCL Inspector",
        quiet=quiet,
    )
    check_inputs(paths)
    dumps: dict[int, Path] = {}
    found: dict[int, list[Path]] = {}
    for path in paths:
        is_log = inspector_log.is_log(path)
        rank = _rank_in_log(path) if is_log else _rank_of_dump(path)
        if not is_log and rank in dumps:
            note(f"{path.name}: is a second dump of rank {rank}, left out", quiet=quiet)
            continue
        if not is_log:
            dumps[rank] = path
        found.setdefault(rank, []).append(path.resolve())
    return found


def _find(
    arguments: Sequence[str], inside: Callable[[Path], list[Path]], what: str, *, quiet: bool
) -> list[Path]:
    found: list[Path] = []
    for argument in arguments:
        folder = Path(argument)
        if not folder.is_dir():
            found += expand([argument], quiet=quiet)
            continue
        files = inside(folder)
        if not files:
            raise UsageError(
                f"{folder}: is a directory without {what}; name the files, or their folder"
            )
        found += files
    return found


def _rank_in_log(path: Path) -> int:
    rank = inspector_log.rank_in_log(path)
    if rank is None:
        raise UnsupportedInput(
            f"{path.name}: is a log of NCCL Inspector without a rank in its first lines; write it "
            "again"
        )
    return rank


def _rank_of_dump(path: Path) -> int:
    rank = flight_recorder.rank_in_name(path.name)
    if not flight_recorder.is_dump(path):
        raise UnsupportedInput(
            f"{flight_recorder.no_dump(path.name)}, or logs of NCCL Inspector that have lines"
        )
    if rank is None:
        raise UnsupportedInput(flight_recorder.no_rank(path.name))
    return rank
