"""Parts of several files, each read by a worker of a Dask cluster.

Dask schedules, retries and moves results; here is only what is to be done. Lists of parts are
joined as a tree, so that no worker and no connection handles all ranks but the last.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from traceprobe.errors import UsageError, system_message
from traceprobe.options import Options
from traceprobe.pipeline.packed_part import packed, unpacked
from traceprobe.pipeline.parallel import died
from traceprobe.pipeline.trace_part import Lost, TracePart, read_or_lose
from traceprobe.system.child import sigint_blocked

if TYPE_CHECKING:
    from distributed import Client

LOCAL = "local:"
FAN_IN = 16
"""Lists that are joined at once."""
RETRIES = 3
_SAFE_PATH = "PYTHONSAFEPATH"
Placed = tuple[int, bytes]
"""A packed part and the position of its input."""


def is_remote(name: str) -> bool:
    """Whether an input is a URL, such as s3://bucket/rank0.json.gz, and not a path."""
    return "://" in name


def expand(url: str) -> list[str]:
    """A URL, which may be a pattern, as the URLs of files.

    Raises:
        UsageError: no file fits, or what reads such URLs is not installed.
    """
    from fsspec.core import url_to_fs

    try:
        system, path = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{url}: cannot be read: {error}") from error
    found = sorted(str(system.unstrip_protocol(name)) for name in system.glob(path))
    if not found:
        raise UsageError(f"{url}: no file fits")
    return found


def read_all(
    names: Sequence[str],
    options: Options,
    folder: Path | None,
    address: str,
    progress: Callable[[int, float], None],
) -> list[TracePart | Lost]:
    """The parts of several files, read by the workers of a cluster.

    A worker that dies is replaced and its work done again; a file that kills one worker after the
    other is lost.

    Args:
        names: absolute paths that the workers can open, or URLs.
        folder: of the cache, if there is one, which the workers share.
        address: of the scheduler, such as tcp://host:8786, or local:N for N processes here.
        progress: called with the position of each file that has been read, in any order, and 1.

    Raises:
        UnsupportedInput: one of them is no trace.
        UsageError: an option makes no sense, or there is no such cluster.
    """
    try:
        from distributed import KilledWorker, as_completed
    except ImportError as error:
        raise UsageError("--dask needs Dask; pip install 'traceprobe[dask]'") from error
    with _client(address) as client:
        leaves = client.map(
            _read,
            range(len(names)),
            names,
            options=options,
            folder=folder,
            pure=False,
            retries=RETRIES,
        )
        position = {future.key: n for n, future in enumerate(leaves)}
        found: list[Placed] = []
        kept: list[Any] = []
        for future in as_completed(leaves):
            n = position[future.key]
            failure = future.exception()
            if failure is None:
                kept.append(future)
            elif isinstance(failure, KilledWorker):
                found.append((n, packed(died(PurePosixPath(names[n]).name))))
            else:
                raise failure
            progress(n, 1.0)
        while len(kept) > 1:
            kept = [
                client.submit(joined, kept[at : at + FAN_IN], pure=False, retries=RETRIES)
                for at in range(0, len(kept), FAN_IN)
            ]
        lists = client.gather(kept)
    return unpacked([part for _, part in joined([found, *lists])])


def joined(lists: Sequence[Sequence[Placed]]) -> list[Placed]:
    """Lists of parts as one, by position; associative, so lists may be joined in any order."""
    return sorted((placed for each in lists for placed in each), key=itemgetter(0))


def _read(position: int, name: str, options: Options, folder: Path | None) -> list[Placed]:
    with _local(name) as path:
        if isinstance(path, Lost):
            return [(position, packed(path))]
        return [(position, packed(read_or_lose(path, options, folder)))]


@contextmanager
def _local(name: str) -> Iterator[Path | Lost]:
    """A file of this machine; what is somewhere else is copied here for as long as it takes."""
    if not is_remote(name):
        yield Path(name)
        return
    import fsspec

    base = PurePosixPath(name).name
    with tempfile.TemporaryDirectory(prefix="traceprobe-") as folder:
        copy = Path(folder) / base
        try:
            with fsspec.open(name, "rb") as source, copy.open("wb") as target:
                shutil.copyfileobj(source, target)
        except OSError as error:
            yield Lost(base, f"{base}: {system_message(error)}")
            return
        yield copy


@contextmanager
def _client(address: str) -> Iterator[Client]:
    from distributed import Client, LocalCluster

    if not address.startswith(LOCAL):
        try:
            client = Client(address)
        except (OSError, TimeoutError, ValueError) as error:
            raise UsageError(f"--dask {address}: there is no scheduler: {error}") from error
        with client:
            yield client
        return
    count = address.removeprefix(LOCAL)
    if not re.fullmatch(r"0*[1-9][0-9]{0,3}", count):
        raise UsageError(f"--dask {address[:60]}: write local:N, e.g. --dask local:4")
    with _safe_path():
        resource_tracker.ensure_running()  # its own start would let the signal through again
        with sigint_blocked():
            cluster = LocalCluster(
                n_workers=int(count),
                threads_per_worker=1,
                dashboard_address=None,
                silence_logs=logging.CRITICAL,
            )
        with cluster, Client(cluster) as client:
            yield client


@contextmanager
def _safe_path() -> Iterator[None]:
    """Python processes that are started meanwhile, by whomever, leave the working folder out.

    Dask starts its workers itself, and again those that die. See `traceprobe.system.isolated`.

    Raises:
        UsageError: this Python cannot do that.
    """
    if sys.version_info < (3, 11):
        raise UsageError(
            f"--dask {LOCAL}N needs Python 3.11 or later, before which its workers would import "
            "modules that lie in the current folder; use --jobs N"
        )
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before
