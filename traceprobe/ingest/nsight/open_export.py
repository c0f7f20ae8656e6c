"""Opening an Nsight Systems export: unpacked, read-only, within a budget, damaged or not.

The file may be a stranger's: what its schema may call, and how much work and text a query may cost,
is bounded here.
"""

from __future__ import annotations

import errno
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from traceprobe.errors import DamagedInput, EmptyTrace, UnsupportedInput, UsageError
from traceprobe.ingest import foreign_traces
from traceprobe.ingest.detect_format import DetectedFormat, printable
from traceprobe.ingest.gunzip import Gunzip, warn_of_checksums
from traceprobe.ingest.limits import DEFAULT_LIMITS, Limits, UnpackedBudget
from traceprobe.ingest.nsight.damaged_pages import DAMAGE, interrupted
from traceprobe.ingest.nsight.tables import EXPORT_TABLES, NUMBERING, Database, TooMuchText
from traceprobe.ingest.sparse_files import stored_bytes
from traceprobe.model.quality import Quality
from traceprobe.vocabulary import quoted

_BLOCK = 4 << 20
STEPS_A_BYTE = 10
"""Steps of SQLite's virtual machine that a whole reading may take: exports take one at most."""
BASE_STEPS = 5_000_000
TEXT_A_BYTE = 4
"""Bytes of texts that may be read for each byte of a file; what is stored is read twice at most."""
BASE_TEXT = 64 << 20
_STEPS_A_ROUND = 100_000
MOST_READERS = 4
"""Threads that compute ahead: the one that uses what they do is slower than more of them."""
LONGEST_VALUE = 16 << 20
"""Bytes of a text or blob; the longest of ours are columns of 100,000 numbers."""
EXPORT_AGAIN = (
    "export the report again: "
    "`nsys export --type sqlite --force-overwrite true -o run.sqlite run.nsys-rep`"
)
MAX_NAMED = 8
"""Tables that a warning names."""
_LEAST_PAGE = 512
_EMPTY_JOURNAL = 512
"""Bytes of a journal that holds nothing but its header."""
_FUNCTIONS = {
    *("ifnull", "typeof", "group_concat", "count", "glob", "substr", "instr", NUMBERING),
}
"""SQL functions of the queries here; none makes texts grow but those over rows."""


@contextmanager
def open_export(
    path: Path, detected: DetectedFormat, limits: Limits, quality: Quality, jobs: int = 1
) -> Iterator[Database]:
    """An export, open for reading.

    Args:
        quality: where it is said what is missing.
        jobs: threads that may compute pages of it ahead.

    Raises:
        UnsupportedInput: it is some other SQLite file.
        DamagedInput: it cannot be read, now or in what the caller does with it.
    """
    _warn_of_journals(path, quality)
    with (
        unpacked_export(path, detected.gzipped, limits, quality) as file,
        _database(file, path.name, quality, jobs) as (db, steps),
    ):
        try:
            foreign = foreign_traces.of_tables(db.table_names)
            if foreign is not None and "StringIds" not in db.columns:
                raise UnsupportedInput(f"{path.name}: is {foreign}; {foreign_traces.READS}")
            if not db.columns.keys() & EXPORT_TABLES:
                if "unfinished-write" in quality.warnings:
                    raise DamagedInput(f"{path.name}: {quality.warnings['unfinished-write']}")
                raise UnsupportedInput(
                    f"{path.name}: is a SQLite database, but not an export of Nsight Systems; make "
                    "one with `nsys export --type sqlite -o run.sqlite run.nsys-rep`"
                )
            yield db
        except TooMuchText as error:
            raise DamagedInput(
                f"{path.name}: its rows hold many times more text than the file; {EXPORT_AGAIN}"
            ) from error
        except EmptyTrace as error:
            if db.left_out:
                raise DamagedInput(f"{path.name}: {not_real_tables(db)}") from error
            if db.mended:
                nothing = sqlite3.DatabaseError("none of the GPU work can be read")
                raise _damaged(path.name, nothing, quality) from error
            raise
        except DAMAGE as error:
            _end_if_interrupted(error, steps)
            raise _damaged(path.name, error, quality) from error


def _end_if_interrupted(error: Exception, steps: _Steps) -> None:
    """Pass on Ctrl-C, of which SQLite makes an error where Python sees it in a function of ours."""
    if interrupted(error) and not steps.spent:
        raise KeyboardInterrupt from error


def _damaged(name: str, error: Exception, quality: Quality) -> DamagedInput:
    if "truncated-file" in quality.warnings:
        return DamagedInput(
            f"{name}: the gzip stream is broken, and nothing of use comes before that; copy the "
            "file again"
        )
    if interrupted(error):
        return DamagedInput(
            f"{name}: a query ran far longer than the size of the file explains; {EXPORT_AGAIN}"
        )
    return DamagedInput(f"{name}: the SQLite file is damaged ({_reason(error)}); {EXPORT_AGAIN}")


def not_real_tables(db: Database) -> str:
    """Sentence about the tables that are there as views or the like, at most `MAX_NAMED` named."""
    named = ", ".join(db.left_out[:MAX_NAMED])
    return f"{named}: not read, since only real tables are, without columns that are computed"


def _reason(error: Exception) -> str:
    if not isinstance(error, sqlite3.Error):
        return "its texts make no sense"
    return quoted(str(error))  # it may quote what the file holds


@contextmanager
def unpacked_export(
    path: Path, gzipped: bool, limits: Limits = DEFAULT_LIMITS, quality: Quality | None = None
) -> Iterator[Path]:
    """The file itself, or a temporary unpacked copy: SQLite needs random access.

    Args:
        quality: where it is noted that the stream is cut or broken; without it that is an error.

    Raises:
        DamagedInput: nothing can be unpacked, or more than the limit.
    """
    if not gzipped:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="traceprobe-") as folder:
        unpacked = Path(folder) / "export.sqlite"
        try:
            stream = _unpack(path, unpacked, limits)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS):
                raise
            raise UsageError(
                f"{path.name}: cannot be unpacked in {tempfile.gettempdir()}: {error.strerror}; "
                "make room there, or set TMPDIR to a folder that has some"
            ) from error
        if stream.cut and (quality is None or unpacked.stat().st_size < _LEAST_PAGE):
            raise DamagedInput(
                f"{path.name}: the gzip stream is broken ({stream.broken or 'it ends too early'}); "
                "copy the file again"
            )
        if stream.cut and quality is not None:
            quality.warn(
                "truncated-file",
                "The gzip stream is cut or broken; the part before that was read. Copy the file "
                "again.",
            )
        if quality is not None:
            warn_of_checksums(quality, stream.wrong_sums)
        yield unpacked


def _unpack(path: Path, target: Path, limits: Limits) -> Gunzip:
    stream, unpacked = Gunzip(), UnpackedBudget(path, limits, target.parent)
    with path.open("rb") as source, target.open("wb") as file:
        for piece in stream.pieces(iter(lambda: source.read(_BLOCK), b"")):
            unpacked.add(len(piece))
            file.write(piece)
    return stream


def _warn_of_journals(path: Path, quality: Quality) -> None:
    """Say that a write was never finished: what it left beside the file is not read."""
    for suffix in ("-wal", "-journal"):
        journal = path.with_name(path.name + suffix)
        try:
            size = journal.stat().st_size if journal.is_file() else 0
        except OSError:  # its name would be too long, so there is none
            continue
        if size > _EMPTY_JOURNAL:
            quality.warn(
                "unfinished-write",
                f"{printable(journal.name)} lies beside the export: it was being written, and what "
                "is in there is not read. Wait until nsys has ended, or export the report again.",
            )


@contextmanager
def _database(
    file: Path, name: str, quality: Quality, jobs: int
) -> Iterator[tuple[Database, _Steps]]:
    """The tables of an export, also of one that is shorter than its header says, and their price.

    Raises:
        DamagedInput: not even the list of tables can be read.
    """
    with ExitStack() as opened:
        budget = BASE_TEXT + TEXT_A_BYTE * stored_bytes(file)

        def connections(steps: _Steps, *, short: bool) -> list[sqlite3.Connection]:
            return [
                opened.enter_context(closing(_connect(file, steps, short=short)))
                for _ in range(1 + readers(jobs))
            ]

        steps = _Steps(file)
        try:
            db = Database(connections(steps, short=False), budget)
        except DAMAGE as first:
            _end_if_interrupted(first, steps)
            steps = _Steps(file)
            try:
                db = Database(connections(steps, short=True), budget)
            except DAMAGE as second:
                _end_if_interrupted(second, steps)
                raise _damaged(name, first, quality) from first
            quality.warn(
                "missing-pages",
                "The SQLite file is shorter than it says; what is there was read. Copy the file "
                "again, or export the report again.",
            )
        opened.callback(db.close)
        yield db, steps


def readers(jobs: int) -> int:
    """Threads that compute ahead. One is worth it on a single core, too: Ctrl-C need not wait."""
    return min(jobs, MOST_READERS)


_REFUSED = 3
"""Neither OK, nor DENY, nor IGNORE: SQLite ends the query as it does for a denial, which is what
Python makes of an exception in the authorizer."""


class _Steps:
    """What the queries of a reading may cost, on whichever connection they run.

    Attributes:
        spent: whether they took too many.
    """

    def __init__(self, file: Path) -> None:
        budget = BASE_STEPS + STEPS_A_BYTE * stored_bytes(file)
        self._rounds = iter(range(budget // _STEPS_A_ROUND))
        self.spent = False

    def __call__(self) -> bool:
        """Another round; whether it is one too many."""
        if next(self._rounds, None) is None:
            self.spent = True  # for good: other threads may still be in their last round
        return self.spent


def _connect(file: Path, steps: _Steps, *, short: bool = False) -> sqlite3.Connection:
    """Read-only, and without trusting what the schema of a stranger's file may call.

    Only one thread may use it at a time.

    Args:
        steps: what it shares with other connections of the same reading.
        short: read the file although pages are missing at its end, which SQLite does only for who
            declares to repair the schema.
    """
    connection = sqlite3.connect(
        f"{file.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False
    )
    connection.set_progress_handler(steps, _STEPS_A_ROUND)
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA mmap_size = 0")
    connection.execute(f"PRAGMA writable_schema = {'ON' if short else 'OFF'}")
    if sys.version_info >= (3, 11):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    if sys.version_info >= (3, 12) and not short:
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
    connection.set_authorizer(_allowed)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return connection


def _allowed(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """What queries may do, also those of the views that a file brings along."""
    if action == sqlite3.SQLITE_FUNCTION:
        allowed = (second or "").lower() in _FUNCTIONS
    elif action == sqlite3.SQLITE_PRAGMA:
        allowed = first == "table_xinfo" or (first == "encoding" and second is None)
    else:
        allowed = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
    return sqlite3.SQLITE_OK if allowed else _REFUSED
