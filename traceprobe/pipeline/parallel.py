"""Parts of several files, each read in a process of its own where there are cores for that."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from traceprobe.options import Options
from traceprobe.pipeline.packed_part import packed, unpacked
from traceprobe.pipeline.trace_part import Lost, TracePart, read_or_lose
from traceprobe.system.child import (
    Child,
    ChildEnded,
    Done,
    Failed,
    Progress,
    children,
    wait_for_answers,
)


def read_all(
    paths: Sequence[Path],
    options: Options,
    folder: Path | None,
    jobs: int,
    progress: Callable[[int, float], None],
) -> list[TracePart | Lost]:
    """The parts of several files, read by up to `jobs` processes at once.

    A process that dies costs the file that it was reading.

    Args:
        folder: of the cache, if there is one.
        progress: called with the position of a file and the fraction of it that has been read.

    Raises:
        UnsupportedInput: one of them is no trace.
        UsageError: an option makes no sense.
    """
    work = _Work(paths, options, folder, progress)
    with children() as started:
        for _ in range(min(jobs, len(paths))):
            work.start(started)
        while work.readers:
            for reader in wait_for_answers(work.readers):
                if work.hear(reader):
                    work.start(started)
    return work.parts()


class _Work:
    """Files that are to be read, and who reads which. A file is given to who is known to run."""

    def __init__(
        self,
        paths: Sequence[Path],
        options: Options,
        folder: Path | None,
        progress: Callable[[int, float], None],
    ) -> None:
        self._paths, self._options, self._folder = paths, options, folder
        self._progress = progress
        self._waiting = deque(range(len(paths)))
        self._reads: dict[Child, int] = {}
        self._found: dict[int, bytes] = {}
        self._why = ""
        self.readers: list[Child] = []

    def start(self, started: list[Child]) -> None:
        """Start a reader."""
        try:
            reader = Child()
        except ChildEnded as ended:
            self._why = str(ended)
            return
        started.append(reader)
        self.readers.append(reader)

    def hear(self, reader: Child) -> bool:
        """Take what a reader has to say, and give it the next file if it is without one.

        Returns:
            Whether it is gone and another should take its place. One that never began has none: the
            other would not begin either.
        """
        try:
            said = reader.answer()
            if isinstance(said, Progress):
                self._progress(self._reads[reader], said.fraction)
                return False
            if isinstance(said, Failed):
                raise said.error
            if isinstance(said, Done):
                self._settle(reader, said.result)
            if self._waiting:
                self._reads[reader] = position = self._waiting.popleft()
                reader.give(_read, self._paths[position], self._options, self._folder)
            else:
                self.readers.remove(reader)
        except ChildEnded as ended:
            self.readers.remove(reader)
            if reader not in self._reads:
                self._why = str(ended)
                return False
            lost = died(self._paths[self._reads[reader]].name, str(ended))
            self._settle(reader, packed(lost))
            return bool(self._waiting)
        return False

    def parts(self) -> list[TracePart | Lost]:
        """What became of each file; to be asked once."""
        return unpacked(
            [
                self._found.pop(position, b"") or packed(unread(path.name, self._why))
                for position, path in enumerate(self._paths)
            ]
        )

    def _settle(self, reader: Child, part: bytes) -> None:
        position = self._reads.pop(reader)
        self._found[position] = part
        self._progress(position, 1.0)


def _read(
    path: Path, options: Options, folder: Path | None, tell: Callable[[float], None]
) -> bytes:
    def progress(done: int, total: int) -> None:
        tell(min(done / max(total, 1), 1.0))

    return packed(read_or_lose(path, options, folder, progress))


def died(name: str, how: str = "SIGKILL") -> Lost:
    """A file whose reader did not end in order: by a signal, or with an exit code."""
    if not how.startswith("SIG"):
        return Lost(
            name,
            f"{name}: the process that read it ended ({how}); analyse it alone to see why",
            internal=True,
        )
    return Lost(
        name,
        f"{name}: the process that read it was killed, as happens when memory runs out; read "
        "fewer files at once (--jobs) or cut the trace (traceprobe slice)",
    )


def unread(name: str, why: str) -> Lost:
    """A file that nobody was there to read."""
    return Lost(
        name,
        f"{name}: no process could be started to read it ({why}); read one file after the other "
        "with --jobs 1, and see whether `traceprobe doctor` finds what is wrong",
    )
