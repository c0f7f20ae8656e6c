"""What `traceprobe annotate` costs beside `traceprobe analyze` of the same files.

Both are whole processes, started in turn; of each pair their wall times are divided, and the table
has the median of these ratios.

    python -m benchmarks.annotate --repeat 5 --page annotate
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import performance_page
from benchmarks.candidates import ROOT
from benchmarks.ingest import grown
from benchmarks.processes import measure

SAMPLES = ROOT / "sample_traces"
CASES = (
    (("h200_unet_w1.json.gz",), 1),
    (("h200_unet_w1.json.gz",), 4),
    (("profile_wide_mlp.rank0.json.gz", "profile_wide_mlp.rank1.json.gz"), 1),
    (("h200_ddp2_gpt2_sock.sqlite.gz",), 1),
)
"""Files of a run, and how often the steps of each are repeated."""
HEAD = ("input", "MB", "analyze, s", "annotate, s", "ratio", "MB peak", "MB out")


def row(names: Sequence[str], factor: int, repeat: int, folder: Path) -> tuple[str, ...]:
    """Measure one case.

    Raises:
        RuntimeError: a process failed.
    """
    paths = [
        SAMPLES / name
        if factor == 1
        else Path(grown(SAMPLES / name, folder, factor, plain=False).path)
        for name in names
    ]
    target = folder / "annotated.json.gz"
    program = [sys.executable, "-m", "traceprobe"]
    files = [str(path) for path in paths]
    commands = (
        [*program, "analyze", *files, "-qfo", str(folder / "report.json")],
        [*program, "annotate", *files, "-qfo", str(target)],
    )
    pairs = []
    for _ in range(repeat):
        pair = [measure(command, ROOT, {}, 900) for command in commands]
        failed = next((cost.failed for cost in pair if cost.failed), None)
        if failed is not None:
            raise RuntimeError(failed)
        pairs.append(pair)
    analyzed, annotated = ([cost.seconds for cost in each] for each in zip(*pairs, strict=True))
    ratios = [b / a for a, b in zip(analyzed, annotated, strict=True)]
    label = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    return (
        label if factor == 1 else f"{label}, {factor} times",
        f"{sum(path.stat().st_size for path in paths) / 1e6:.1f}",
        f"{statistics.median(analyzed):.2f}",
        f"{statistics.median(annotated):.2f}",
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})",
        f"{max(pair[1].peak_bytes for pair in pairs) / 1e6:.0f}",
        f"{target.stat().st_size / 1e6:.1f}",
    )


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5, metavar="N")
    parser.add_argument("--page", metavar="SECTION", help="write it into docs/performance.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [row(names, factor, options.repeat, Path(folder)) for names, factor in CASES]
    table = performance_page.table(HEAD, rows)
    print(table)
    if options.page:
        measured = f"Runs of each: {options.repeat}. {performance_page.machine()}."
        performance_page.put(options.page, f"{measured}\n\n{table}")


if __name__ == "__main__":
    main()
