"""What a program writes while it runs, line by line, from the logs that it writes into."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from traceprobe.formatting import unsteered

MOST_BYTES = 64 << 10
"""Of a log that are read at once: a program may write gigabytes."""
LONGEST_LINE = 1_000
_OF_PROFILER = re.compile(
    r"(\[\w+\]:)?(USDT|STAGE|INFO):\d{4}-\d\d-\d\d [\d:]+ \d+:\d+ \w+\.cpp:\d+\]"
)
"""What Kineto logs of each start and stop, with the rank before it; its warnings are shown."""


def barred(line: str) -> str:
    """A line of the program as it is shown: behind a bar, so that it is none of ours.

    Nor is it one that a CI system takes for a command. A line too long to read is cut.
    """
    text = unsteered(line)
    return f"    | {text if len(text) <= LONGEST_LINE else f'{text[:LONGEST_LINE]}…'}"


class OutputFollower:
    """Passes on what is appended to logs, by whole lines.

    Of a bar that is drawn again and again on one line only what stands there in the end is told.

    Args:
        logs: files that may not be there yet.
        on_line: called with each line as it is shown.
    """

    def __init__(self, logs: list[Path], on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._read = dict.fromkeys(logs, 0)
        self._begun = dict.fromkeys(logs, b"")

    def poll(self) -> None:
        """Pass on the lines that were ended since."""
        for log in self._read:
            *lines, begun = (self._begun[log] + self._more(log)).split(b"\n")
            self._begun[log] = begun[-MOST_BYTES:]
            self._tell(lines)

    def finish(self) -> None:
        """Pass on all that is left, also lines without an end."""
        self.poll()
        for log, begun in self._begun.items():
            self._tell([begun])
            self._begun[log] = b""

    def _more(self, log: Path) -> bytes:
        """What the log has more than at the last time; of much the end."""
        try:
            with log.open("rb") as file:
                new = file.seek(0, 2) - self._read[log]
                left_out = max(new - MOST_BYTES, 0)
                file.seek(self._read[log] + left_out)
                found = file.read(MOST_BYTES)
        except OSError:  # it is not there yet
            return b""
        self._read[log] += left_out + len(found)
        if not left_out:
            return found
        return f"\n… {left_out:,} bytes left out …\n".encode() + found.partition(b"\n")[2]

    def _tell(self, lines: list[bytes]) -> None:
        for line in lines:
            shown = line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace").rstrip()
            if shown and not _OF_PROFILER.match(shown):
                self._on_line(barred(shown))
