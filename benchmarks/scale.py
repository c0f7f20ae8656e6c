"""Time and memory of `traceprobe analyze` on the traces of ever more ranks of one run.

    python -m benchmarks.scale [TRACE] [--ranks 1 4 16 64 256 1024] [--modes local dask] [--json]
        [--page SECTION]

The ranks are made from one Kineto trace (`ranks.py`), each as large as it, one of them a straggler.
`local` gives their files to one process; `dask` gives their folder to `--dask local:2`, two worker
processes on this machine, whose memory is counted. Both write JSON and HTML.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import performance_page
from benchmarks.candidates import ROOT
from benchmarks.processes import Cost, measure

SAMPLE = ROOT / "sample_traces" / "profile_wide_mlp.rank0.json.gz"
RANKS = [1, 4, 16, 64, 256, 1024]
MODES = ["local", "dask"]


@dataclass(frozen=True)
class Row:
    """A number of ranks in one mode.

    Args:
        input_bytes: of all files together, gzipped.
        costs: one for each repetition. seconds: the median. peak_bytes: the largest.
        failed: why it has no numbers.
    """

    ranks: int
    mode: str
    input_bytes: int
    costs: list[Cost]
    seconds: float | None = None
    seconds_per_rank: float | None = None
    peak_bytes: int | None = None
    json_bytes: int | None = None
    html_bytes: int | None = None
    failed: str | None = None


def command(mode: str, folder: Path, outputs: list[Path]) -> list[str]:
    """What is measured."""
    analyze = [sys.executable, "-m", "traceprobe", "analyze", "-q", "-f"]
    inputs = {
        "local": [str(path) for path in sorted(folder.iterdir())],
        "dask": [str(folder), "--dask", "local:2"],
    }
    return [*analyze, *inputs[mode], *(part for path in outputs for part in ("-o", str(path)))]


def row(mode: str, ranks: int, folder: Path, repeat: int, timeout_s: float) -> Row:
    """One number of ranks in one mode; a failure ends the repetitions."""
    files = list(folder.iterdir())
    size = sum(file.stat().st_size for file in files)
    costs: list[Cost] = []
    with tempfile.TemporaryDirectory() as name:
        outputs = [Path(name) / "run.json", Path(name) / "run.html"]
        for _ in range(repeat):
            cost = measure(
                command(mode, folder, outputs), Path(name), {"PYTHONPATH": str(ROOT)}, timeout_s
            )
            costs.append(cost)
            if cost.failed:
                return Row(ranks, mode, size, costs, failed=cost.failed)
        in_json, in_html = (path.stat().st_size for path in outputs)
    seconds = statistics.median(cost.seconds for cost in costs)
    peak = max(cost.peak_bytes for cost in costs)
    return Row(ranks, mode, size, costs, seconds, seconds / ranks, peak, in_json, in_html)


def run(
    source: Path, counts: list[int], modes: list[str], repeat: int, timeout_s: float
) -> list[Row]:
    """Every number of ranks in every mode; one number's files are on the disk at a time."""
    rows: list[Row] = []
    for count in counts:
        with tempfile.TemporaryDirectory() as name:
            make = [sys.executable, "-m", "benchmarks.ranks", str(source.resolve()), name]
            subprocess.run([*make, str(count)], check=True, cwd=ROOT)
            rows += [row(mode, count, Path(name), repeat, timeout_s) for mode in modes]
    return rows


def table(rows: list[Row]) -> str:
    """The measurements for people."""
    head = ("mode", "ranks", "MB gzipped", "s", "s per rank", "MB peak", "MB JSON", "MB HTML")
    return performance_page.table(head, [_cells(row) for row in rows])


def _cells(row: Row) -> tuple[str, ...]:
    start = (row.mode, f"{row.ranks:,}", f"{row.input_bytes / 1e6:.1f}")
    if row.seconds is None:
        return (*start, row.failed or "", "", "", "", "")
    sizes = (f"{(size or 0) / 1e6:.1f}" for size in (row.json_bytes, row.html_bytes))
    peak = f"{(row.peak_bytes or 0) / 1e6:.0f}"
    return (*start, f"{row.seconds:.1f}", f"{row.seconds_per_rank:.3f}", peak, *sizes)


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trace", nargs="?", type=Path, default=SAMPLE, help="Kineto, one rank")
    parser.add_argument("--ranks", nargs="+", type=int, default=RANKS, metavar="N")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--repeat", type=int, default=1, metavar="N")
    parser.add_argument("--timeout", type=float, default=3600, metavar="S", help="of one process")
    parser.add_argument("--json", action="store_true", help="print the measurements as JSON")
    parser.add_argument("--page", metavar="SECTION", help="write it into docs/performance.md")
    options = parser.parse_args()
    rows = run(
        options.trace, sorted(set(options.ranks)), options.modes, options.repeat, options.timeout
    )
    machine = performance_page.machine()
    if options.json:
        print(json.dumps({"machine": machine, "rows": [asdict(r) for r in rows]}, indent=1))
    else:
        print(table(rows))
    if options.page:
        measured = f"`{options.trace.name}`, runs of each: {options.repeat}. {machine}."
        performance_page.put(options.page, f"{measured}\n\n{table(rows)}")


if __name__ == "__main__":
    main()
