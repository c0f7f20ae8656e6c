"""The ranks of a run: the devices of all its inputs, and what their collectives say together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from traceprobe.errors import UsageError
from traceprobe.pipeline.build_rank import completed_rank
from traceprobe.pipeline.join_pictures import PlannedPicture, RankPicture, planned
from traceprobe.pipeline.one_run import unmatched
from traceprobe.pipeline.rank_details import RankDetails
from traceprobe.pipeline.rank_numbers import rank_numbers
from traceprobe.pipeline.trace_part import DevicePart, TracePart
from traceprobe.records.operator_calls import OperatorPace, pace
from traceprobe.records.rank import LongIterations, Rank
from traceprobe.records.replay import Replay
from traceprobe.timeline import collectives
from traceprobe.timeline.capture_alignment import aligned
from traceprobe.timeline.collective_matching import match_transfers
from traceprobe.timeline.collective_waits import CollectiveWaits, collective_waits
from traceprobe.timeline.operator_time import OperatorTime
from traceprobe.timeline.stage_waits import IS_MESSAGE, stage_waits
from traceprobe.verdict.recurring import with_mean_step


class ClosedDetails(msgspec.Struct, frozen=True):
    """The details of one rank, with what the run says of them.

    Args:
        packed: as its trace alone gives them. shown: what its picture shows; None for none.
    """

    packed: RankDetails
    shown: PlannedPicture | None

    def put_back(self, record: Rank) -> Rank:
        """The record of the rank with them."""
        return self.packed.put_back(record, self.shown)

    def without_picture(self, record: Rank) -> Rank:
        """The same without a picture, which takes longest to draw."""
        return self.packed.put_back(record, None)


class RunRanks(msgspec.Struct, frozen=True):
    """The ranks in the order of their inputs.

    Args:
        every: with all used iterations, without details. regular: the same ones without long
            iterations.
        details, regular_details: of these.
        operators: of each rank, where they are known.
        collectives: what ranks waited for each other; None where none match.
        warnings: by code.
    """

    every: list[Rank]
    regular: list[Rank]
    details: list[ClosedDetails]
    regular_details: list[ClosedDetails]
    operators: list[OperatorTime | None]
    collectives: CollectiveWaits | None
    warnings: dict[str, str]

    def details_of(self, ranks: Sequence[Rank]) -> list[ClosedDetails]:
        """The details of `every` or of `regular`."""
        return self.regular_details if ranks is self.regular else self.details

    def regular_replays(self) -> Iterator[Replay]:
        """The regular iterations of each rank that can be played, one after the other."""
        for packed in self.regular_details:
            replay = packed.packed.replay()
            if replay is not UNSET:
                yield replay

    def called_by_latest_host(self) -> dict[str, OperatorPace]:
        """Operators by name, of the rank that its host holds up most; empty without.

        They are those of all its iterations, long ones too.
        """
        idle = [rank.summary.partition_ns["idle_host"] or 0 for rank in self.regular]
        place = idle.index(max(idle))
        listed = self.details[place].packed.operators()
        steps = self.every[place].summary.steps
        return {} if listed is UNSET else {each.name: pace(each, steps) for each in listed}

    def with_mean_step(self, step_ms: float | None, notable: float) -> RunRanks:
        """The same, whose long iterations recur where the step without a profiler tells that."""
        every = [with_mean_step(rank, step_ms, notable) for rank in self.every]
        return replace(self, every=every)

    def with_timed_waits(
        self, waits_ns: Mapping[int, float], others_ns: Mapping[int, float]
    ) -> RunRanks:
        """The same with what each rank waits for its loader without the profiler.

        Args:
            others_ns: for loaders that do not feed the steps: what they give is of the iterations
                that are long by it, where there are any, and else of all.
        """
        long = {rank.rank for rank in self.every if rank.long is not UNSET}

        def timed(rank: Rank, *, regular: bool) -> Rank:
            ns = waits_ns.get(rank.rank)
            if ns is None:
                return rank
            if not (regular and rank.rank in long):
                ns += others_ns.get(rank.rank, 0.0)
            return replace(rank, timed_wait_ms=round(ns / 1e6, 6))

        return replace(
            self,
            every=[timed(rank, regular=False) for rank in self.every],
            regular=[timed(rank, regular=True) for rank in self.regular],
        )

    def only(self, rank: int) -> RunRanks:
        """One rank alone.

        Raises:
            UsageError: there is none of that number.
        """
        at = [place for place, record in enumerate(self.every) if record.rank == rank]
        if not at:
            known = ", ".join(str(record.rank) for record in self.every)
            raise UsageError(f"--rank {rank}: no such rank; the inputs hold {known}")
        return replace(
            self,
            every=[self.every[place] for place in at],
            regular=[self.regular[place] for place in at],
            details=[self.details[place] for place in at],
            regular_details=[self.regular_details[place] for place in at],
            operators=[self.operators[place] for place in at],
        )


def _at_their_pace(devices: Sequence[tuple[int, DevicePart]]) -> list[tuple[int, DevicePart]]:
    """The devices, without long iterations that are the pace of another one.

    A rank whose loader delivers in bursts has no long iterations, for that is its pace; those that
    wait for it in a collective have as little. What holds up a rank that trains is seen on it, if
    the same iterations of it are recorded and used.

    Args:
        devices: of all inputs, with the places of these.
    """
    records = [found.record for _, found in devices]
    long = [record.long for record in records if record.long is not UNSET]
    others = [record.iterations for record in records if record.long is UNSET]
    used = [{each.index for each in iterations if each.used} for iterations in others]
    seen = all(used_there.issuperset(each.indices) for used_there in used for each in long)
    if not used or not seen or not all(map(_waits_for_others, long)):
        return list(devices)
    return [
        (source, replace(found, record=replace(found.record, long=UNSET), regular=None))
        for source, found in devices
    ]


def _waits_for_others(long: LongIterations) -> bool:
    """Whether a rank mostly communicates for longer in its long iterations, and no more."""
    more_work = {} if long.more_work is UNSET else long.more_work
    return not more_work and 2 * long.extra_partition_ns.get("communication", 0) > long.extra_ns


def run_ranks(parts: Sequence[TracePart]) -> RunRanks:
    """The devices of all inputs, closed, and what their collectives say together."""
    devices = _at_their_pace(
        [(source, found) for source, part in enumerate(parts) for found in part.devices]
    )
    footprints = aligned([found.footprint for _, found in devices])
    processes = rank_numbers(parts)
    numbers = [processes[source, found.record.pid] for source, found in devices]
    if len(processes) == 1 and len(devices) > 1 and not parts[0].rank_of:
        numbers = list(range(len(devices)))  # each GPU of the one program is a rank to NCCL
    shared = match_transfers(footprints)
    stages = stage_waits(footprints, shared)
    matched = collective_waits(footprints, stages)
    waits = matched.exposed_wait if matched else [None] * len(devices)
    between = stages.exposed if stages else [None] * len(devices)
    pictures = planned(
        [
            RankPicture(
                windows=found.details.windows,
                source=source,
                zero=int(parts[source].input.origin_ns),
                labels=[iteration.label for iteration in found.record.iterations],
                collectives=footprint,
                matched=mine,
            )
            for (source, found), footprint, mine in zip(devices, footprints, shared, strict=True)
        ]
    )
    every: list[Rank] = []
    regular: list[Rank] = []
    details: list[ClosedDetails] = []
    regular_details: list[ClosedDetails] = []
    for (source, found), number, footprint, wait, stage, mine, shown in zip(
        devices, numbers, footprints, waits, between, shared, pictures, strict=True
    ):
        for records, hidden, part in (
            (every, details, found),
            (regular, regular_details, found.regular),
        ):
            if part is None:
                records.append(every[-1])
                hidden.append(details[-1])
                continue
            counted = None if part is found else part.footprint.collectives
            groups = collectives.with_matches(part.groups, footprint.collectives, mine, counted)
            records.append(
                completed_rank(part.record, number, source, wait, stage, part.footprint, groups)
            )
            hidden.append(ClosedDetails(part.details, shown))
    warnings = unmatched(
        collectives=sum(len(f.collectives.filter(~IS_MESSAGE)) > 0 for f in footprints) > 1,
        found=any(mine is not None and len(mine.row) for mine in shared),
    )
    return RunRanks(
        every=every,
        regular=regular,
        details=details,
        regular_details=regular_details,
        operators=[found.operators for _, found in devices],
        collectives=matched,
        warnings=warnings,
    )
