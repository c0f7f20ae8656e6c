"""What `traceprobe analyze --cache` costs the first time, and saves from then on.

    python -m benchmarks.cache [TRACE] [--bytes SIZE] [--repeat N] [--plain] [--page SECTION]

The trace is grown to the size, and analysed without a cache, with an empty one and with one that
has it. The three reports must be the same to the byte.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks import performance_page
from benchmarks.candidates import ROOT
from benchmarks.ingest import SAMPLE, factor_of, grown, size
from benchmarks.processes import Cost, measure

WITHOUT, EMPTY, FULL = "without", "empty", "full"
_HEAD = ["cache", "MB plain", "s", "CPU s", "MB peak", "MB entry"]


def once(trace: Path, folder: Path, cache: Path | None) -> tuple[Cost, bytes]:
    """One analysis, and its report."""
    report = folder / "out.json"
    command = [sys.executable, "-m", "traceprobe", "analyze", "-q", "-f", str(trace)]
    command += ["-o", str(report), *(("--cache", str(cache)) if cache else ())]
    cost = measure(command, folder, {"PYTHONPATH": str(ROOT)}, 900)
    if cost.failed:
        raise RuntimeError(cost.failed)
    return cost, report.read_bytes()


def run(trace: Path, folder: Path, repeat: int) -> tuple[dict[str, list[Cost]], int]:
    """Costs by the state of the cache, which take turns, and bytes of the entry.

    Raises:
        RuntimeError: an analysis failed, or its report was another.
    """
    costs: dict[str, list[Cost]] = {WITHOUT: [], EMPTY: [], FULL: []}
    reports: set[bytes] = set()
    cache = folder / "cache"
    for _ in range(repeat):
        shutil.rmtree(cache, ignore_errors=True)
        for state, found in costs.items():
            cost, report = once(trace, folder, None if state == WITHOUT else cache)
            found.append(cost)
            reports.add(report)
    if len(reports) > 1:
        raise RuntimeError("the cache changes the report")
    (entry,) = cache.iterdir()
    return costs, entry.stat().st_size


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trace", nargs="?", type=Path, default=SAMPLE, help="Kineto or Nsight")
    parser.add_argument("--bytes", type=size, default=size("150MB"), metavar="SIZE")
    parser.add_argument("--plain", action="store_true", help="do not gzip a Kineto trace")
    parser.add_argument("--repeat", type=int, default=3, metavar="N")
    parser.add_argument("--page", metavar="SECTION", help="write it into docs/performance.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        factor = factor_of(options.trace, options.bytes)
        item = grown(options.trace, folder, factor, plain=options.plain)
        costs, entry = run(Path(item.path), folder, options.repeat)
    rows = [
        (
            state,
            f"{item.plain_bytes / 1e6:.1f}",
            f"{statistics.median(cost.seconds for cost in found):.2f}",
            f"{statistics.median(cost.cpu_seconds for cost in found):.2f}",
            f"{max(cost.peak_bytes for cost in found) / 1e6:.0f}",
            "" if state == WITHOUT else f"{entry / 1e6:.1f}",
        )
        for state, found in costs.items()
    ]
    table = performance_page.table(_HEAD, rows)
    print(table)
    if options.page:
        measured = f"`{options.trace.name}`, runs of each: {options.repeat}."
        body = f"{measured} {performance_page.machine()}.\n\n{table}"
        performance_page.put(options.page, body)


if __name__ == "__main__":
    main()
