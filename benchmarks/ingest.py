"""Time and memory of a whole `traceprobe analyze`, against the cheapest way to read the same bytes.

    python -m benchmarks.ingest [TRACE] [--factors 1 4 16 | --bytes 150MB 2GB] [--repeat 5]
        [--hta VENV] [--tracelens VENV] [--nsys-ai VENV] [--nsys PROGRAM] [--json] [--page SECTION]

The trace, Kineto or Nsight, is made longer by repeating its events (`grow_kineto`, `grow_nsight`).
The floor is a process that does nothing but decompress and decode a Kineto trace into typed
objects, or fetch the needed columns of an export. Other tools run where an environment of theirs
is given; what fails or exceeds `--timeout` is shown as such. All are whole processes, started in
turn, `--repeat` times; the table shows medians and, in brackets, the range. Expect some 10 % of
noise on a shared machine, and more while it does other work: run it on an idle one and compare
ratios, never seconds.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import candidates, grow_kineto, grow_nsight, performance_page
from benchmarks.candidates import ROOT, Candidate
from benchmarks.measured_input import Input
from benchmarks.processes import Cost, measure

SAMPLE = ROOT / "sample_traces" / "h200_unet_w1.json.gz"
_HEAD = [
    "what",
    "MB",
    "MB plain",
    "events",
    "s",
    "CPU s",
    "× floor",
    "growth",
    "MB peak",
    "× plain",
]
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


@dataclass(frozen=True)
class Row:
    """A candidate on a file; times and memory are None where it failed.

    Args:
        costs: one for each repetition.
        seconds, cpu_seconds: medians. peak_bytes: the largest.
        ratio_to_floor: of wall times.
        growth_exponent: 1 when the time grew as much as the file since the next smaller size; 2
            when squared.
        failed: why it has no numbers.
    """

    input: Input
    candidate: str
    costs: list[Cost]
    seconds: float | None = None
    cpu_seconds: float | None = None
    ratio_to_floor: float | None = None
    growth_exponent: float | None = None
    peak_bytes: int | None = None
    failed: str | None = None


def is_nsight(trace: Path) -> bool:
    """Whether a file, plain or gzipped, is a SQLite database."""
    with trace.open("rb") as raw:
        gzipped = raw.read(2) == b"\x1f\x8b"
    with gzip.open(trace) if gzipped else trace.open("rb") as data:
        return data.read(15) == b"SQLite format 3"


def grown(source: Path, folder: Path, factor: int, *, plain: bool) -> Input:
    """A longer trace, made in a process of its own to keep this one small."""
    module = grow_nsight if is_nsight(source) else grow_kineto
    suffix = ".sqlite" if module is grow_nsight else ".json" if plain else ".json.gz"
    target = folder / f"{factor}x{suffix}"
    command = [sys.executable, "-m", module.__name__, str(source.resolve()), str(target)]
    done = subprocess.run([*command, str(factor)], check=True, capture_output=True, cwd=ROOT)
    return Input(**json.loads(done.stdout))


def factor_of(source: Path, size: int) -> int:
    """How often to repeat a trace to reach a size without compression."""
    module = grow_nsight if is_nsight(source) else grow_kineto
    code = (
        f"from pathlib import Path; from {module.__name__} import plain_bytes; import sys; "
        "print(plain_bytes(Path(sys.argv[1])))"
    )
    command = [sys.executable, "-c", code, str(source.resolve())]
    done = subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    return math.ceil(size / int(done.stdout))


def once(candidate: Candidate, item: Input, folder: Path, timeout_s: float) -> Cost:
    """One run, in an empty folder."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        path = item.path
        if candidate.writes_beside:
            path = shutil.copy(path, name)
        command = candidate.command(path, Path(name))
        return measure(command, Path(name), candidate.environment, timeout_s)


def run(
    source: Path,
    factors: list[int],
    compared: list[Candidate],
    repeat: int,
    *,
    plain: bool,
    timeout_s: float,
) -> list[Row]:
    """Costs of every candidate on every size, the smaller sizes first.

    A candidate that fails on a file is not started on it again; `compared[0]` is the floor.
    """
    costs: dict[tuple[int, str], list[Cost]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs = [grown(source, folder, factor, plain=plain) for factor in factors]
        for _ in range(repeat):
            for item in inputs:
                for candidate in compared:
                    found = costs.setdefault((item.factor, candidate.name), [])
                    if not any(cost.failed for cost in found):
                        found.append(once(candidate, item, folder, timeout_s))
    rows: list[Row] = []
    for item in inputs:
        floor = costs[item.factor, compared[0].name]
        for candidate in compared:
            before = next((r for r in reversed(rows) if r.candidate == candidate.name), None)
            rows.append(
                _row(item, candidate.name, costs[item.factor, candidate.name], floor, before)
            )
    return rows


def _row(item: Input, name: str, costs: list[Cost], floor: list[Cost], before: Row | None) -> Row:
    failed = next((cost.failed for cost in costs if cost.failed), None)
    if failed:
        return Row(item, name, costs, failed=failed)
    seconds = statistics.median(cost.seconds for cost in costs)
    growth = None
    if before and before.seconds:
        sizes = item.plain_bytes / before.input.plain_bytes
        growth = math.log(seconds / before.seconds) / math.log(sizes)
    return Row(
        item,
        name,
        costs,
        seconds,
        statistics.median(cost.cpu_seconds for cost in costs),
        seconds / statistics.median(cost.seconds for cost in floor),
        growth,
        max(cost.peak_bytes for cost in costs),
    )


def table(rows: list[Row]) -> str:
    """The measurements for people."""
    return performance_page.table(_HEAD, [_cells(row) for row in rows])


def _cells(row: Row) -> tuple[str, ...]:
    item = row.input
    size = (f"{item.bytes / 1e6:.1f}", f"{item.plain_bytes / 1e6:.1f}", f"{item.events:,}")
    if row.seconds is None or row.peak_bytes is None:
        return (row.candidate, *size, row.failed or "", "", "", "", "", "")
    least, most = (f(cost.seconds for cost in row.costs) for f in (min, max))
    return (
        row.candidate,
        *size,
        f"{row.seconds:.2f} ({least:.2f}–{most:.2f})",
        f"{row.cpu_seconds:.2f}",
        f"{row.ratio_to_floor:.2f}",
        "" if row.growth_exponent is None else f"{row.growth_exponent:.2f}",
        f"{row.peak_bytes / 1e6:.0f}",
        f"{row.peak_bytes / item.plain_bytes:.2f}",
    )


def others(options: argparse.Namespace, *, nsight: bool) -> list[Candidate]:
    """The other tools that were given and read such files."""
    known = (
        [(candidates.nsys_ai, options.nsys_ai), (candidates.nsys_stats, options.nsys)]
        if nsight
        else [(candidates.hta, options.hta), (candidates.tracelens, options.tracelens)]
    )
    return [make(place.absolute()) for make, place in known if place is not None]


def size(text: str) -> int:
    """Bytes of `150MB` or `2GB`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMG]?)B?", text, re.IGNORECASE)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text}: write 150MB or 2GB")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trace", nargs="?", type=Path, default=SAMPLE, help="Kineto or Nsight")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--factors", nargs="+", type=int, default=[1, 4, 16], metavar="N")
    sizes.add_argument("--bytes", nargs="+", type=size, metavar="SIZE", help="at least, plain")
    parser.add_argument("--plain", action="store_true", help="do not gzip Kineto traces")
    parser.add_argument("--repeat", type=int, default=5, metavar="N")
    parser.add_argument("--timeout", type=float, default=900, metavar="S", help="of one process")
    parser.add_argument("--hta", type=Path, metavar="VENV")
    parser.add_argument("--tracelens", type=Path, metavar="VENV")
    parser.add_argument("--nsys-ai", type=Path, metavar="VENV")
    parser.add_argument("--nsys", type=Path, metavar="PROGRAM")
    parser.add_argument("--json", action="store_true", help="print the measurements as JSON")
    parser.add_argument("--page", metavar="SECTION", help="write it into docs/performance.md")
    options = parser.parse_args()
    nsight = is_nsight(options.trace)
    floor = candidates.NSIGHT_FLOOR if nsight else candidates.KINETO_FLOOR
    compared = [*candidates.own(floor), *others(options, nsight=nsight)]
    factors = options.factors
    if options.bytes:
        factors = [factor_of(options.trace, wanted) for wanted in options.bytes]
    rows = run(
        options.trace,
        sorted(set(factors)),
        compared,
        options.repeat,
        plain=options.plain,
        timeout_s=options.timeout,
    )
    versions = [candidate.version for candidate in compared if candidate.version]
    machine = performance_page.machine()
    if options.json:
        found = {"machine": machine, "versions": versions, "rows": [asdict(row) for row in rows]}
        print(json.dumps(found, indent=1))
    else:
        print(table(rows))
    if options.page:
        measured = f"`{options.trace.name}`, runs of each: {options.repeat}. {machine}."
        body = "\n".join([measured, *(f"{v}." for v in versions), "", table(rows)])
        performance_page.put(options.page, body)
    for row in rows:
        if row.failed and row.candidate in {c.name for c in candidates.own(floor)}:
            sys.exit(f"{row.candidate}: {row.failed}")


if __name__ == "__main__":
    main()
