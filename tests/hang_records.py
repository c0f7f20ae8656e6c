"""A record of a hang with everything that one can have."""

from __future__ import annotations

from traceprobe.records.hang import Call, Hang, HangGroup, Pair, Standing
from traceprobe.records.report import Message


def make_hang() -> Hang:
    """Rank 2 of four is absent from a group, and a message has no partner."""
    line = "train.py(57): train_step"

    def call(sequence: int, state: str) -> Call:
        return Call(
            group="data",
            sequence=sequence,
            operation="all_reduce",
            elements=1024,
            dtypes=["Float"],
            state=state,
            line=line,
        )

    waits, done = call(4, "scheduled"), call(3, "completed")
    where = ("waits", "differs", "absent", "elsewhere", "finished", "no-dump")
    standings = [
        Standing(
            rank=rank,
            where=each,
            issued=None if each == "no-dump" else 4,
            call={"absent": done, "no-dump": None}.get(each, waits),
        )
        for rank, each in enumerate(where)
    ]
    return Hang(
        schema_version=Hang.SCHEMA_VERSION,
        traceprobe_version="0.1.0",
        title="Rank 2 is missing",
        headline="Rank 0 waits in all_reduce of 1,024 Float, which rank 2 never issued.",
        cause="absent",
        explained_by=0,
        ranks=[0, 1, 2, 3, 4],
        without_dump=[5],
        groups=[
            HangGroup(
                name="0",
                description="data",
                ranks=[*range(6)],
                listed=True,
                completed=3,
                last=done,
                stuck=4,
                cause="absent",
                standings=standings,
            )
        ],
        pairs=[Pair(group="data", source=0, target=1, sends=1, receives=2, line=line)],
        points=["The last that rank 2 issued is done"],
        cautions=[Message("missing-dumps", "no dump was given of rank 5")],
        inputs=["nccl_trace_rank_0"],
    )
