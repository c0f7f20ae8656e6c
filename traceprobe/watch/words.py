"""Events of a run in words: what, in which rhythm, how long."""

from __future__ import annotations

from traceprobe.formatting import counted, duration, ordinal, significant
from traceprobe.records.watch import Cause

NAMES: dict[Cause, str] = {
    "start": "start of the run",
    "checkpoint": "checkpoint",
    "evaluation": "evaluation",
    "garbage-collection": "garbage collection",
    "loader": "wait for the loader",
    "loader-worker": "one loader worker is slow",
    "loader-pass": "a new pass over the loader",
    "compilation": "compilation",
    "allocator": "the allocator gave back its cache",
    "cpu-busy": "no CPU core was free",
    "gpu-busy": "other processes use the GPU",
    "clock": "clock of the GPU",
    "unknown": "no cause seen",
}


def event_words(
    cause: Cause,
    count: int,
    typical_ms: float,
    longest_ms: float,
    longest_step: int,
    rhythm: tuple[int | None, float | None],
    workers: int | None,
) -> str:
    """`checkpoint: every 100th step, 1.8 s`; of a single one `garbage collection: 120 ms`.

    Args:
        typical_ms: median of its lengths. rhythm: distance in steps and in seconds.
        workers: of the loader, where one of them is slow.
    """
    steps, seconds = rhythm
    name = NAMES[cause]
    if cause == "unknown" and steps is not None:  # whatever keeps step with it is the program's
        name = "the program does extra work"
    if cause == "loader-worker" and workers:
        name = f"one of {workers} loader workers is slow"
    long = duration(typical_ms * 1e6)
    if cause == "start":
        return f"{name}: {counted(count, 'step')}, the longest by {duration(longest_ms * 1e6)}"
    if steps is not None:
        return f"{name}: every {ordinal(steps)} step, {long}"
    if seconds is not None:
        return f"{name}: every {significant(seconds)} s, {long}"
    if count == 1:
        return f"{name}: {long}"
    return (
        f"{name}: {counted(count, 'time')}, typically {long}, {duration(longest_ms * 1e6)} at "
        f"step {longest_step:,}"
    )
