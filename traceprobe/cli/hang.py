"""`traceprobe hang`: which collective a run hangs in, and which rank is missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from traceprobe.cli.console import note
from traceprobe.cli.options import Force, GithubSummary, Outputs, Quiet, Redact, Verbose

if TYPE_CHECKING:
    from traceprobe.model.flight_record import FlightRecord
    from traceprobe.records.report import Message


def command(
    dumps: Annotated[
        list[str],
        typer.Argument(
            metavar="DUMP...",
            help="Dumps of PyTorch's flight recorder, one of each rank, a folder of them or a "
            "quoted pattern: nccl_trace_rank_0 or its JSON. The rank is the number at the end of "
            "the name.",
        ),
    ],
    output: Outputs = None,
    redact: Redact = False,
    github_summary: GithubSummary = False,
    force: Force = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Say which collective a run hangs in, which rank is missing, and where it was called."""
    from traceprobe.cli.inputs import check_inputs
    from traceprobe.cli.nccl_records import find_dumps
    from traceprobe.cli.outputs import Delivery
    from traceprobe.hang.explain import explain

    paths = find_dumps(dumps, quiet=quiet)
    check_inputs(paths)
    delivery = Delivery(
        targets=output or [],
        redact=redact,
        github_summary=github_summary,
        force=force,
        quiet=quiet,
        verbose=verbose,
    )
    delivery.check(paths)
    records, lost = _read(paths)
    delivery.deliver(explain(_of_each_rank(records, quiet=quiet), lost))


def _read(paths: Sequence[Path]) -> tuple[list[FlightRecord], list[Message]]:
    """The dumps; a damaged one of several is lost, for a process may be killed while it writes.

    Raises:
        DamagedInput: all are damaged.
        UnsupportedInput: one is no dump, so it was given by mistake.
    """
    from traceprobe.errors import DamagedInput
    from traceprobe.ingest.nccl.flight_recorder import read_flight_record
    from traceprobe.records.report import Message

    records, lost = [], []
    for path in paths:
        try:
            records.append(read_flight_record(path))
        except DamagedInput as error:
            if path == paths[-1] and not records:
                raise
            lost.append(Message("dump-lost", str(error)))
    return records, lost


def _of_each_rank(records: list[FlightRecord], *, quiet: bool) -> list[FlightRecord]:
    """One record of each rank: of two, that with stacks."""
    chosen: dict[int, FlightRecord] = {}
    for record in records:
        other = chosen.get(record.rank)
        better = other is None or (_has_stacks(record) and not _has_stacks(other))
        if other is not None:
            left = other if better else record
            note(f"{left.name}: is a second dump of rank {record.rank}, left out", quiet=quiet)
        if better:
            chosen[record.rank] = record
    return list(chosen.values())


def _has_stacks(record: FlightRecord) -> bool:
    return any(entry.line for entry in record.entries)
