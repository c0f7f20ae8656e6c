"""Time and memory of a whole `traceprobe analyze`, against the cheapest way to read the same bytes.

    python benchmarks/ingest.py [TRACE.json[.gz]] [--factors 1 4 16] [--repeat 5] [--json]

The trace is made longer by repeating its events later in time, with new correlation ids, flow ids
and step numbers, so that it stays a valid trace of more steps. The floor is a process that does
nothing but decompress the file and decode it into typed objects. Both are whole processes, started
in turn, `--repeat` times; the table shows medians. Expect some 10 % of noise on a shared machine,
and more while it does other work: run it on an idle one and compare ratios, never seconds.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

SAMPLE = Path(__file__).resolve().parents[1] / "sample_traces" / "h200_unet_w1.json.gz"

FLOOR = """
import gzip, sys
import msgspec

class Args(msgspec.Struct, gc=False, rename={"external": "External id"}):
    correlation: int | float | str | None = None
    external: int | float | str | None = None
    stream: int | float | str | None = None
    device: int | float | str | None = None
    bytes: int | float | str | None = None

class Event(msgspec.Struct, gc=False):
    ph: str
    name: str = ""
    cat: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: int | float | str | None = None
    dur: int | float | str | None = None
    id: int | float | str | None = None
    args: Args | None = None

class Trace(msgspec.Struct):
    traceEvents: list[Event]

data = open(sys.argv[1], "rb").read()
print(len(msgspec.json.decode(gzip.decompress(data), type=Trace).traceEvents))
"""

BETWEEN_EVENTS = re.compile(r",\s*\n(?=  \{)")
COUNTED = re.compile(r'"(correlation|[Ee]xternal id|id|Sequence number|Ev Idx)": (\d+)')
TIME = re.compile(r'"ts": (\d+)')
STEP = re.compile(r'("name": "(?:ProfilerStep#|[Ss]tep |[Ii]teration ))(\d+)"')


@dataclass(frozen=True)
class Input:
    """One file to read."""

    factor: int
    path: str
    events: int
    bytes: int
    decompressed_bytes: int


@dataclass(frozen=True)
class Cost:
    """What one process took."""

    seconds: float
    peak_bytes: int


def grow(source: Path, target: Path, factor: int) -> Input:
    """Write `source` repeated `factor` times to `target`."""
    data = source.read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    start = re.search(r'"traceEvents": \[\s*\n', text)
    end = text.rindex("\n  ]")
    if start is None:
        sys.exit(f"{source} is not laid out as PyTorch does")
    pieces = BETWEEN_EVENTS.split(text[start.end() : end])
    events = [json.loads(piece) for piece in pieces]
    work = [e for e in events if e["ph"] == "X" and e.get("cat") != "Trace"]
    span = math.ceil(max(e["ts"] + e["dur"] for e in work) - min(e["ts"] for e in work)) + 1
    repeated = {id(e) for e in work} | {id(e) for e in events if e["ph"] in "sf"}
    body = ",\n".join(p for p, e in zip(pieces, events, strict=True) if id(e) in repeated)
    stride = 1 + max((int(m[2]) for m in COUNTED.finditer(body)), default=0)
    numbers = [int(m[2]) for m in STEP.finditer(body)]
    steps = 1 + max(numbers) - min(numbers) if numbers else 0

    first = ",\n".join(
        later(p, 1, span=(factor - 1) * span) if e["name"] == "Record Window End" else p
        for p, e in zip(pieces, events, strict=True)
    )
    with gzip.open(target, "wt", compresslevel=6) as out:
        size = out.write(text[: start.end()] + first)
        for k in range(1, factor):
            size += out.write(",\n" + later(body, k, span=span, stride=stride, steps=steps))
        size += out.write(text[end:])
    count = len(events) + (factor - 1) * len(repeated)
    return Input(factor, str(target), count, target.stat().st_size, size)


def later(body: str, k: int, *, span: int, stride: int = 0, steps: int = 0) -> str:
    """The events of copy `k`: times in whole microseconds later, numbers out of the others' way."""
    body = TIME.sub(lambda m: f'"ts": {int(m[1]) + k * span}', body)
    body = COUNTED.sub(lambda m: f'"{m[1]}": {int(m[2]) + k * stride}', body)
    return STEP.sub(lambda m: f'{m[1]}{int(m[2]) + k * steps}"', body)


def measure(command: list[str]) -> Cost:
    """Run one process to its end.

    Linux counts the parent's memory at a child's start as the child's: keep this process small.
    """
    with tempfile.TemporaryFile() as output:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            sys.exit(f"{' '.join(command)}\n{output.read().decode()}")
    return Cost(seconds, usage.ru_maxrss * 1024)


def candidates(folder: Path) -> dict[str, Callable[[Input], list[str]]]:
    """Name to command line of what is compared."""
    analyze = [sys.executable, "-m", "traceprobe", "analyze", "-q", "-f"]
    return {
        "floor": lambda i: [sys.executable, "-c", FLOOR, i.path],
        "json": lambda i: [*analyze, i.path, "-o", str(folder / "out.json")],
        "html": lambda i: [*analyze, i.path, "-o", str(folder / "out.html")],
    }


def grown(source: Path, folder: Path, factor: int) -> Input:
    """`grow`, in a process of its own."""
    target = folder / f"{factor}x.json.gz"
    command = [sys.executable, __file__, str(source), "--grow", str(target), str(factor)]
    return Input(**json.loads(subprocess.run(command, check=True, capture_output=True).stdout))


def run(source: Path, factors: list[int], repeat: int) -> list[dict[str, object]]:
    """Median costs of every candidate on every size."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs = [grown(source, folder, factor) for factor in factors]
        commands = candidates(folder)
        costs: dict[tuple[int, str], list[Cost]] = {}
        for _ in range(repeat):
            for item in inputs:
                for candidate, command in commands.items():
                    cost = measure(command(item))
                    costs.setdefault((item.factor, candidate), []).append(cost)
    rows: list[dict[str, object]] = []
    for item in inputs:
        floor = statistics.median(c.seconds for c in costs[item.factor, "floor"])
        for candidate in commands:
            found = costs[item.factor, candidate]
            seconds = statistics.median(c.seconds for c in found)
            peak = max(c.peak_bytes for c in found)
            before = [r for r in rows if r["candidate"] == candidate]
            rows.append(
                {
                    **asdict(item),
                    "path": source.name,
                    "candidate": candidate,
                    "seconds": seconds,
                    "seconds_all": [c.seconds for c in found],
                    "ratio_to_floor": seconds / floor,
                    "growth_exponent": growth(before[-1], item, seconds) if before else None,
                    "peak_bytes": peak,
                    "peak_to_decompressed": peak / item.decompressed_bytes,
                }
            )
    return rows


def growth(before: dict[str, object], item: Input, seconds: float) -> float:
    """1 when the time grew as much as the input since the next smaller size; 2 when squared."""
    times = seconds / float(str(before["seconds"]))
    sizes = item.decompressed_bytes / int(str(before["decompressed_bytes"]))
    return math.log(times) / math.log(sizes)


def table(rows: list[dict[str, object]]) -> str:
    """The measurements for people."""
    head = (
        "size",
        "events",
        "MB",
        "MB plain",
        "what",
        "s",
        "x floor",
        "growth",
        "MB peak",
        "x plain",
    )
    lines = [
        (
            f"{row['factor']}x",
            f"{row['events']:,}",
            f"{row['bytes'] / 1e6:.1f}",
            f"{row['decompressed_bytes'] / 1e6:.1f}",
            f"{row['candidate']}",
            f"{row['seconds']:.2f}",
            f"{row['ratio_to_floor']:.2f}",
            "" if row["growth_exponent"] is None else f"{row['growth_exponent']:.2f}",
            f"{row['peak_bytes'] / 1e6:.0f}",
            f"{row['peak_to_decompressed']:.2f}",
        )
        for row in rows
    ]
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in [head, *lines]
    )


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", nargs="?", type=Path, default=SAMPLE, help="a Kineto trace")
    parser.add_argument("--factors", nargs="+", type=int, default=[1, 4, 16], metavar="N")
    parser.add_argument("--repeat", type=int, default=5, metavar="N")
    parser.add_argument("--json", action="store_true", help="print the measurements as JSON")
    parser.add_argument("--grow", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.grow:
        target, factor = options.grow
        print(json.dumps(asdict(grow(options.trace, Path(target), int(factor)))))
        return
    rows = run(options.trace, sorted(options.factors), options.repeat)
    print(json.dumps(rows, indent=1) if options.json else table(rows))


if __name__ == "__main__":
    main()
