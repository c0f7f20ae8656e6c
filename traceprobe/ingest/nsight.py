"""Nsight Systems SQLite exports, schema 3.0.0 to 3.30, read with sqlite3 in bounded chunks.

Tables and columns are looked up, never assumed: exporters differ, `--lazy` leaves tables out, other
tools add columns. Every value is an integer from the start: UTC nanoseconds do not fit a double.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import re
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from traceprobe.ingest.nsight_columns import build
from traceprobe.ingest.nsight_tables import EXPORT_TABLES, Database
from traceprobe.ingest.sniff import Found, printable
from traceprobe.model import DamagedInput, Origin, Quality, Trace, UnsupportedInput, UsageError

_BLOCK = 4 << 20
STEPS_A_BYTE = 10
"""Steps of SQLite's virtual machine that a whole reading may take: exports take one at most."""
BASE_STEPS = 5_000_000
_STEPS_A_ROUND = 100_000
_TOOL = re.compile(r"(?:NsightSystems-cli-|nsight-systems(?:-cli)?/)(\d{4}\.\d+(?:\.\d+)?)")


def read(path: Path, found: Found, progress: Callable[[int, int], None]) -> Trace:
    """Read an Nsight Systems export. See `traceprobe.ingest.load` for errors."""
    digest = _sha256(path, progress)
    quality = Quality()
    with database(path, found) as db:
        origin = Origin(
            name=printable(path.name),
            sha256=digest,
            format="nsys",
            dialect=f"schema {db.metadata.get('EXPORT_SCHEMA_VERSION', 'unknown')}",
            producer=_producer(db),
            bytes=path.stat().st_size,
        )
        return build(db, origin, quality)


@contextmanager
def database(path: Path, found: Found) -> Iterator[Database]:
    """An export, open for reading.

    Raises:
        UnsupportedInput: it is some other SQLite file.
        DamagedInput: it cannot be read, now or in what the caller does with it.
    """
    with plain(path, found.gzipped) as file, closing(_connect(file)) as connection:
        try:
            db = Database(connection)
            if not db.columns.keys() & EXPORT_TABLES:
                raise UnsupportedInput(
                    f"{path.name}: is a SQLite database, but not an export of Nsight Systems; make "
                    "one with `nsys export --type sqlite -o run.sqlite run.nsys-rep`"
                )
            yield db
        except sqlite3.DatabaseError as error:
            if "interrupted" in str(error):
                raise DamagedInput(
                    f"{path.name}: a query ran far longer than the size of the file explains, as "
                    "over a view without an end; export the report again: "
                    "`nsys export --type sqlite --force-overwrite true -o run.sqlite run.nsys-rep`"
                ) from error
            raise DamagedInput(
                f"{path.name}: the SQLite file is damaged ({error}); export the report again: "
                "`nsys export --type sqlite --force-overwrite true -o run.sqlite run.nsys-rep`"
            ) from error


def _sha256(path: Path, progress: Callable[[int, int], None]) -> str:
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            done += len(block)
            progress(done, total)
    return digest.hexdigest()


@contextmanager
def plain(path: Path, gzipped: bool) -> Iterator[Path]:
    """The file itself, or a temporary unpacked copy: SQLite needs random access."""
    if not gzipped:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="traceprobe-") as folder:
        unpacked = Path(folder) / "export.sqlite"
        try:
            with gzip.open(path) as source, unpacked.open("wb") as target:
                shutil.copyfileobj(source, target, _BLOCK)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DamagedInput(
                f"{path.name}: the gzip stream is broken ({error}); copy the file again"
            ) from error
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS):
                raise
            raise UsageError(
                f"{path.name}: cannot be unpacked in {tempfile.gettempdir()}: {error.strerror}; "
                "make room there, or set TMPDIR to a folder that has some"
            ) from error
        yield unpacked


def _connect(file: Path) -> sqlite3.Connection:
    """Read-only, and without trusting what the schema of a stranger's file may call."""
    connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    budget = BASE_STEPS + STEPS_A_BYTE * file.stat().st_size
    rounds = iter(range(budget // _STEPS_A_ROUND))
    connection.set_progress_handler(lambda: next(rounds, None) is None, _STEPS_A_ROUND)
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return connection


def _producer(db: Database) -> str:
    exporter = db.metadata.get("EXPORT_PRODUCT_VERSION")
    installed = db.pairs("TARGET_INFO_SYSTEM_ENV").get("TargetInstallDir", "")
    capture = _TOOL.search(installed)
    parts = ["Nsight Systems"]
    if capture:
        parts.append(f"captured by {capture[1]}")
    if exporter:
        parts.append(f"exported by {exporter}")
    return ", ".join([" ".join(parts[:1]), *parts[1:]])
