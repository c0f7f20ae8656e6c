"""Clocks of the GPUs over a time, as nvidia-smi reads them."""

from __future__ import annotations

import shutil
import statistics
import subprocess
from datetime import datetime
from pathlib import Path

_QUERY = ("--query-gpu=timestamp,index,clocks.sm", "--format=csv,noheader,nounits", "-lms", "200")


class GpuClocks:
    """Reads the clocks five times a second until it is stopped; none without nvidia-smi.

    Args:
        file: what it reads goes there.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        tool = shutil.which("nvidia-smi")
        self._process = None
        if tool is not None:
            with file.open("wb") as output:
                self._process = subprocess.Popen(
                    [tool, *_QUERY], stdout=output, stderr=subprocess.DEVNULL
                )

    def stop(self) -> None:
        """Read no more."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def between(self, gpus: list[int], began: float, ended: float) -> dict[str, float] | None:
        """Lowest, median and highest clock of the multiprocessors, MHz; None where none was read.

        Args:
            gpus: that count. began, ended: in seconds since the epoch.
        """
        if not self._file.exists():
            return None
        clocks = []
        for line in self._file.read_text().splitlines():
            fields = [word.strip() for word in line.split(",")]
            try:
                at = datetime.strptime(fields[0], "%Y/%m/%d %H:%M:%S.%f").timestamp()
                gpu, clock = int(fields[1]), float(fields[2])
            except (ValueError, IndexError):  # a line that is being written
                continue
            if gpu in gpus and began <= at <= ended:
                clocks.append(clock)
        if not clocks:
            return None
        return {"min": min(clocks), "median": statistics.median(clocks), "max": max(clocks)}
