"""Readings of a GPU's clock by nvidia-smi, where NVIDIA's library cannot be loaded."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator

from traceprobe.capture.machine.clock_readings import Reading

_FIELDS = (
    "clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu,clocks_throttle_reasons.active"
)
"""In the order of `Reading`. The last is called clocks_event_reasons since driver 535, which knows
the old name too."""


class SmiReadings:
    """A process of nvidia-smi that prints a line at each interval; it ends with this one.

    Args:
        uuid: of the GPU, as `GPU-…`. interval_ms: between two lines.

    Raises:
        OSError: there is none, or it does not start.
    """

    def __init__(self, uuid: str, interval_ms: int) -> None:
        tool = shutil.which("nvidia-smi")
        if tool is None:
            raise FileNotFoundError("nvidia-smi")
        self._process = subprocess.Popen(
            [
                tool,
                f"--id={uuid}",
                f"--query-gpu={_FIELDS}",
                "--format=csv,noheader,nounits",
                f"--loop-ms={interval_ms}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __iter__(self) -> Iterator[Reading]:
        """Readings as they come, until it ends."""
        for line in self._process.stdout or ():
            reading = parse_line(line, time.perf_counter_ns())
            if reading is not None:
                yield reading

    def stop(self) -> None:
        """Ask for no more."""
        self._process.terminate()
        self._process.wait()


def parse_line(line: str, at_ns: int) -> Reading | None:
    """A line of nvidia-smi as a reading; None of one that is something else.

    Args:
        line: values in the order of the query; what a GPU does not tell is "[N/A]".
        at_ns: when it came.
    """
    words = [word.strip() for word in line.split(",")]
    if len(words) != len(_FIELDS.split(",")):
        return None
    sm_mhz, memory_mhz, power_w, temperature_c, busy_percent = map(_number, words[:-1])
    try:
        reasons = int(words[-1], 16)
    except ValueError:
        reasons = None
    return Reading(at_ns, sm_mhz, memory_mhz, power_w, temperature_c, busy_percent, reasons)


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
