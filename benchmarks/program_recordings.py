"""The recordings of `programs.py`: when they are complete, exported and bundled."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

from traceprobe.capture.process import nsys_tool
from traceprobe.capture.process.progress import reported_states

PART_BYTES, ALL_BYTES = 15 << 20, 62 << 20
"""Recordings are bundled in parts of about this size; what comes after so many is left out."""


def is_writing(folder: Path, ranks: int) -> bool:
    """Whether the steps of all ranks are over."""
    return all("writing the trace" in reported_states(folder, rank) for rank in range(ranks))


def export(folder: Path) -> None:
    """From the report of Nsight Systems, as `traceprobe profile` does it."""
    target = nsys_tool.export_sqlite(folder / "run.nsys-rep", folder / "run.sqlite")
    nsys_tool.embed_sidecars(target, nsys_tool.read_sidecars(folder))
    subprocess.run(["gzip", "-f", str(target)], check=True)


def bundle(traces: list[Path], name: str, out: Path, stem: str = "part") -> bool:
    """Append files to the first part that has room for them; whether there was any."""
    size = sum(path.stat().st_size for path in traces)
    if size + sum(part.stat().st_size for part in out.glob(f"{stem}*.tar")) > ALL_BYTES:
        return False
    number = 0
    while (part := out / f"{stem}{number}.tar").exists() and (
        part.stat().st_size + size > PART_BYTES
    ):
        number += 1
    with tarfile.open(part, "a") as tar:
        for path in traces:
            tar.add(path, f"{name}/{path.name}")
    return True
