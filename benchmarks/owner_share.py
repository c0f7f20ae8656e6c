"""Share of GPU time with an owner in compiled code and CUDA graphs, before and after notes of them.

python benchmarks/owner_share.py OUTPUT.json [--ways compile graph] [--steps 6] [--keep FOLDER]

Records `owner_programs.py` in each way with `traceprobe profile` and analyses each recording twice:
as it is, and without the notes. A way that fails is in the output with its reason.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WAYS = ("eager", "compile", "reduce-overhead", "graph", "graphed-callables")
LEVELS = ("module", "line", "operator")
MACHINERY = re.compile(
    r"triton_|cpp_fused|## Call |Torch-Compiled Region|CompiledFunction|autograd::engine"
    r"|CUDAGraph|Graphed"
)
"""Operators of the compiler: they say that code is compiled, not what it does."""
LONGEST_S = 240


def main(arguments: list[str] | None = None) -> int:
    """Record, analyse, print the table and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--steps", type=int, default=6, help="recorded steps")
    parser.add_argument("--keep", type=Path, help="folder for the recordings")
    asked = parser.parse_args(arguments)
    sys.path.insert(0, str(HERE.parent))
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.keep or Path(scratch)
        rows = {way: _row(way, folder / way, asked.steps) for way in asked.ways}
    found = {"machine": _machine(), "ways": rows}
    asked.output.write_text(json.dumps(found, indent=1) + "\n")
    print(table(rows))
    return int(any("failed" in row for row in rows.values()))


def _row(way: str, folder: Path, steps: int) -> dict[str, Any]:
    try:
        trace = _record(way, folder, steps)
        return _shares(trace)
    except Exception as error:
        print(f"{way}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return {"failed": f"{type(error).__name__}: {error}"[-1_000:]}


def _record(way: str, folder: Path, steps: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    # From a cache, compiled code comes without the lines of its backward pass.
    variables = {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TORCHINDUCTOR_CACHE_DIR": str(folder.absolute() / "cache"),
    }
    command = [
        *(sys.executable, "-m", "traceprobe", "profile", "-q", "-f", "-o", str(folder / "run")),
        *("--warmup", "5", "--calibrate", "5", "--active", str(steps), "--"),
        *(sys.executable, str(HERE / "owner_programs.py"), way),
    ]
    ended = subprocess.run(
        command,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    trace = folder / "run" / "rank0.json.gz"
    if not trace.exists():
        raise RuntimeError(f"status {ended.returncode}: {(ended.stdout + ended.stderr)[-900:]}")
    return trace


def _shares(path: Path) -> dict[str, Any]:
    import traceprobe

    trace = traceprobe.load(path)
    recorded = dict(trace.metadata.get("traceprobe") or {})
    noted = recorded.pop("kernel_owners", None)
    before = replace(trace, metadata={**trace.metadata, "traceprobe": recorded})
    report = traceprobe.analyze(trace)
    return {
        "before": _owned(traceprobe.analyze(before)),
        "after": _owned(report),
        "noted": None if noted is None else {k: len(v) for k, v in noted.items()},
        "reasons": None if noted is None else noted["reasons"],
        "warnings": [warning.code for warning in report.quality.warnings],
    }


def _owned(report: Any) -> dict[str, float]:
    """Share of busy time by what its owner tells, and the sum in ms."""
    import polars as pl

    from traceprobe.model.taxonomy import BUSY

    tree = report.tree().filter(
        (pl.col("level") == "kernel") & pl.col("class").is_in(list(BUSY)) & (pl.col("ns") > 0)
    )
    rows = tree.select(*LEVELS, "ns").rows(named=True)
    whole = sum(row["ns"] for row in rows) or 1
    shares = dict.fromkeys((*LEVELS, "any", "line or module"), 0)
    for row in rows:
        told = {level for level in LEVELS if row[level] is not None}
        if "operator" in told and MACHINERY.match(row["operator"].rsplit(" / ", 1)[-1]):
            told.discard("operator")
        for level in told:
            shares[level] += row["ns"]
        shares["any"] += row["ns"] * bool(told)
        shares["line or module"] += row["ns"] * bool(told - {"operator"})
    return {"busy_ms": whole / 1e6, **{name: ns / whole for name, ns in shares.items()}}


def _machine() -> dict[str, Any]:
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"gpu": gpu, "torch": torch.__version__, "cuda": torch.version.cuda}


def table(rows: dict[str, dict[str, Any]]) -> str:
    """The shares as a table of Markdown."""
    lines = [
        "| way | operator | module | line | any |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for way, row in rows.items():
        if "failed" in row:
            lines.append(f"| {way} | failed: {row['failed'].splitlines()[-1][:80]} | | | |")
            continue
        cells = (
            f"{row['before'][name]:.1%} → {row['after'][name]:.1%}"
            for name in ("operator", "module", "line", "any")
        )
        lines.append(f"| {way} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
