"""A few steps of a recording, with the names of the program: `traceprobe slice`, and those again.

A slice passes on no name of the program's own, for it is made for other people's traces. These
programs are public, and their lines are what is asked for.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.slowbench.columns import SUFFIX, pack
from traceprobe.capture.blame.embed import CATEGORY
from traceprobe.capture.recording.recording_plan import METADATA_KEY
from traceprobe.slicing.public_values import public_record
from traceprobe.slicing.slice_trace import slice_trace
from traceprobe.vocabulary import digest

MOST_BYTES = 150_000
"""Of the recording of a rank."""
_OWN = ("loader", "kernel_owners")
"""Fields of the sidecar with names of the program."""
_STEP_IT = {path.name for path in Path(__file__).parent.glob("*.py")}
"""Files whose lines are around those of a program that is recorded here."""
_UNREAD = ("Ev Idx", "Record function id")
"""Arguments of operators that number the profiler's own records."""


def public_sidecar(recorded: dict[str, Any]) -> dict[str, Any]:
    """A sidecar without what is of the machine, but with names of the program."""
    kept = public_record(recorded)
    return {**kept, **{name: recorded[name] for name in _OWN if recorded.get(name) is not None}}


def cut(traces: Sequence[Path], folder: Path, most: int, period: int) -> int:
    """Write the first steps of a recording, as many whole periods as are small enough.

    Args:
        traces: of all ranks. folder: that the slices are written to. most: steps that there are.
            period: steps after which they are alike.

    Returns:
        How many steps the slices have.

    Raises:
        ValueError: a single period of a rank is larger than `MOST_BYTES`.
    """
    steps = most - most % period
    while True:
        files = {trace.name.removesuffix(".gz"): _first_steps(trace, steps) for trace in traces}
        size = max(map(len, files.values()))
        if size <= MOST_BYTES:
            for name, content in files.items():
                (folder / f"{name}{SUFFIX}").write_bytes(content)
            return steps
        if steps == period:
            raise ValueError(f"{size} bytes for {steps} steps: more than {MOST_BYTES}")
        fewer = int(steps * MOST_BYTES / size)
        steps = max(period, min(fewer - fewer % period, steps - period))


def _first_steps(trace: Path, steps: int) -> bytes:
    """The first steps of a trace, as they are kept."""
    target = trace.with_name(f"slice-{trace.name.removesuffix('.gz')}")
    slice_trace(trace, target, (0, steps + 1), replace=True)
    if target.suffix != ".sqlite":
        target.write_bytes(_named(target.read_bytes(), trace))
    kept = pack(target)
    target.unlink()
    return kept


def _is_ours(event: dict[str, Any], known: dict[str, str]) -> bool:
    """Whether it is a line of what steps the program, which a program that runs alone has not."""
    if event.get("cat") != CATEGORY:
        return False
    name = str(event.get("name"))
    return Path(known.get(name, name).partition("(")[0]).name in _STEP_IT


def _named(sliced: bytes, source: Path) -> bytes:
    """A slice of a Kineto trace with the names that its source has."""
    whole = json.loads(gzip.decompress(source.read_bytes()))
    names = {event.get("name") for event in whole["traceEvents"]}
    known = {digest(name): name for name in names if isinstance(name, str)}
    trace = json.loads(sliced)
    trace["traceEvents"] = [e for e in trace["traceEvents"] if not _is_ours(e, known)]
    for event in trace["traceEvents"]:
        name = event.get("name")
        event["name"] = known.get(name, name)
        for argument in _UNREAD:
            event.get("args", {}).pop(argument, None)
    trace[METADATA_KEY] = public_sidecar(whole[METADATA_KEY])
    return json.dumps(trace, separators=(",", ":")).encode()
