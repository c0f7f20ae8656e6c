"""Nsight Systems SQLite exports, schema 3.0.0 to 3.30, read with sqlite3 in bounded chunks.

Tables and columns are looked up, never assumed: exporters differ, `--lazy` leaves tables out, other
tools add columns. Every value is an integer from the start: UTC nanoseconds do not fit a double.
"""

from __future__ import annotations

import errno
import hashlib
import re
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from traceprobe.errors import DamagedInput, EmptyTrace, UnsupportedInput, UsageError
from traceprobe.ingest.detect_format import Found, printable
from traceprobe.ingest.gunzip import Gunzip, warn_of_sums
from traceprobe.ingest.limits import DEFAULT, Limits, Unpacked
from traceprobe.ingest.nsight.columns import build
from traceprobe.ingest.nsight.pages import DAMAGE, interrupted
from traceprobe.ingest.nsight.tables import EXPORT_TABLES, NUMBERING, Database, TooMuchText
from traceprobe.ingest.sparse import stored_bytes
from traceprobe.ingest.values import version
from traceprobe.model.events import Origin, Quality, Trace
from traceprobe.vocabulary import quoted

_BLOCK = 4 << 20
STEPS_A_BYTE = 10
"""Steps of SQLite's virtual machine that a whole reading may take: exports take one at most."""
BASE_STEPS = 5_000_000
TEXT_A_BYTE = 4
"""Bytes of texts that may be read for each byte of a file; what is stored is read twice at most."""
BASE_TEXT = 64 << 20
_STEPS_A_ROUND = 100_000
LONGEST_VALUE = 16 << 20
"""Bytes of a text or blob; the longest of ours are columns of 100,000 numbers."""
_AGAIN = (
    "export the report again: "
    "`nsys export --type sqlite --force-overwrite true -o run.sqlite run.nsys-rep`"
)
MAX_NAMED = 8
"""Tables that a warning names."""
_LEAST_PAGE = 512
_EMPTY_JOURNAL = 512
"""Bytes of a journal that holds nothing but its header."""
_FUNCTIONS = {
    *("ifnull", "typeof", "group_concat", "max", "count", "glob", "substr", NUMBERING),
}
"""SQL functions of the queries here; none makes texts grow but those over rows."""
_TOOL = re.compile(r"(?:NsightSystems-cli-|nsight-systems(?:-cli)?/)(\d{4}\.\d+(?:\.\d+)?)")


def read(path: Path, found: Found, progress: Callable[[int, int], None], limits: Limits) -> Trace:
    """Read an Nsight Systems export. See `traceprobe.ingest.load` for errors."""
    digest = _sha256(path, progress)
    quality = Quality()
    with database(path, found, limits, quality) as db:
        origin = Origin(
            name=printable(path.name),
            sha256=digest,
            format="nsys",
            dialect=f"schema {version(db.metadata.get('EXPORT_SCHEMA_VERSION')) or 'unknown'}",
            producer=_producer(db),
            bytes=path.stat().st_size,
        )
        trace = build(db, origin, quality)
        _warn_of_damage(db, quality)
        return trace


@contextmanager
def database(path: Path, found: Found, limits: Limits, quality: Quality) -> Iterator[Database]:
    """An export, open for reading.

    Args:
        quality: where it is said what is missing.

    Raises:
        UnsupportedInput: it is some other SQLite file.
        DamagedInput: it cannot be read, now or in what the caller does with it.
    """
    _warn_of_journals(path, quality)
    with (
        plain(path, found.gzipped, limits, quality) as file,
        _database(file, path.name, quality) as db,
    ):
        try:
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
                f"{path.name}: its rows hold many times more text than the file; {_AGAIN}"
            ) from error
        except EmptyTrace as error:
            if db.left_out:
                raise DamagedInput(f"{path.name}: {_made_up(db)}") from error
            if db.mended:
                nothing = sqlite3.DatabaseError("none of the GPU work can be read")
                raise _damaged(path.name, nothing, quality) from error
            raise
        except DAMAGE as error:
            raise _damaged(path.name, error, quality) from error


def _damaged(name: str, error: Exception, quality: Quality) -> DamagedInput:
    if "truncated-file" in quality.warnings:
        return DamagedInput(
            f"{name}: the gzip stream is broken, and nothing of use comes before that; copy the "
            "file again"
        )
    if interrupted(error):
        return DamagedInput(
            f"{name}: a query ran far longer than the size of the file explains; {_AGAIN}"
        )
    return DamagedInput(f"{name}: the SQLite file is damaged ({_reason(error)}); {_AGAIN}")


def _made_up(db: Database) -> str:
    named = ", ".join(db.left_out[:MAX_NAMED])
    return f"{named}: not read, since only real tables are, without columns that are computed"


def _reason(error: Exception) -> str:
    if not isinstance(error, sqlite3.Error):
        return "its texts make no sense"
    return quoted(str(error))  # it may quote what the file holds


def _sha256(path: Path, progress: Callable[[int, int], None]) -> str:
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            done += len(block)
            progress(done, total)
    return digest.hexdigest()


@contextmanager
def plain(
    path: Path, gzipped: bool, limits: Limits = DEFAULT, quality: Quality | None = None
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
            warn_of_sums(quality, stream.wrong_sums)
        yield unpacked


def _unpack(path: Path, target: Path, limits: Limits) -> Gunzip:
    stream, unpacked = Gunzip(), Unpacked(path, limits, target.parent)
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


def _warn_of_damage(db: Database, quality: Quality) -> None:
    if db.left_out:
        quality.damaged("no-real-tables", len(db.left_out), f"tables are missing: {_made_up(db)}.")
    if db.mended:
        named = ", ".join(sorted(db.mended)[:MAX_NAMED])
        quality.damaged(
            "damaged-tables",
            sum(db.mended.values()),
            f"rows are missing: pages of the SQLite file are damaged, and of {named} only a part "
            f"was read. {_AGAIN[0].upper()}{_AGAIN[1:]}",
        )


@contextmanager
def _database(file: Path, name: str, quality: Quality) -> Iterator[Database]:
    """The tables of an export, also of one that is shorter than its header says.

    Raises:
        DamagedInput: not even the list of tables can be read.
    """
    with ExitStack() as opened:
        budget = BASE_TEXT + TEXT_A_BYTE * stored_bytes(file)
        try:
            db = Database(opened.enter_context(closing(_connect(file))), budget)
        except DAMAGE as first:
            try:
                db = Database(opened.enter_context(closing(_connect(file, short=True))), budget)
            except DAMAGE:
                raise _damaged(name, first, quality) from first
            quality.warn(
                "missing-pages",
                "The SQLite file is shorter than it says; what is there was read. Copy the file "
                "again, or export the report again.",
            )
        opened.callback(db.close)
        yield db


def _connect(file: Path, *, short: bool = False) -> sqlite3.Connection:
    """Read-only, and without trusting what the schema of a stranger's file may call.

    Args:
        short: read the file although pages are missing at its end, which SQLite does only for who
            declares to repair the schema.
    """
    connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    budget = BASE_STEPS + STEPS_A_BYTE * stored_bytes(file)
    rounds = iter(range(budget // _STEPS_A_ROUND))
    connection.set_progress_handler(lambda: next(rounds, None) is None, _STEPS_A_ROUND)
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
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _producer(db: Database) -> str:
    exporter = version(db.metadata.get("EXPORT_PRODUCT_VERSION"))
    installed = db.pairs("TARGET_INFO_SYSTEM_ENV").get("TargetInstallDir", "")
    capture = _TOOL.search(installed)
    parts = ["Nsight Systems"]
    if capture:
        parts.append(f"captured by {capture[1]}")
    if exporter:
        parts.append(f"exported by {exporter}")
    return ", ".join([" ".join(parts[:1]), *parts[1:]])
