"""Pages of exports that threads compute ahead: the same rows, errors and bounds as without them."""

from __future__ import annotations

import itertools
import shutil
import signal
import sqlite3
import threading
import time
from contextlib import closing

import pytest

from tests.builders import nsight
from tests.builders.nsight_pages import leaf_pages, overwrite_pages, write_many_kernels
from tests.builders.nsight_schema import KERNEL, RUNTIME
from tests.builders.truth import assert_same_events
from traceprobe.errors import DamagedInput
from traceprobe.ingest.nsight import open_export, pages
from traceprobe.ingest.read_trace import read_trace

ROWS = 300
"""Of a page, of which the tables here then have seven."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_many_kernels(tmp_path_factory.mktemp("whole") / "run.sqlite")


@pytest.fixture
def export(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "ROWS", ROWS)
    return shutil.copy(whole, tmp_path / "run.sqlite")


@pytest.fixture
def opened(monkeypatch):
    """The connections that were opened so far."""
    found = []
    original = open_export._connect
    monkeypatch.setattr(
        open_export, "_connect", lambda *a, **k: found.append(original(*a, **k)) or found[-1]
    )
    return found


def with_readers(monkeypatch, count):
    monkeypatch.setattr(open_export, "readers", lambda jobs: count)


def is_closed(connection):
    try:
        connection.execute("SELECT 1")
    except sqlite3.ProgrammingError:
        return True
    return False


def page_of_two_tables(path):
    overwrite_pages(path, leaf_pages(path, KERNEL)[3])
    overwrite_pages(path, leaf_pages(path, RUNTIME)[-2])


def text_in_a_late_page(path):
    with sqlite3.connect(path) as db:
        db.execute(f"CREATE TABLE loose AS SELECT * FROM {KERNEL}")
        db.execute(f"DROP TABLE {KERNEL}")
        db.execute(f"ALTER TABLE loose RENAME TO {KERNEL}")
        db.execute(f"UPDATE {KERNEL} SET start = 'a, b' WHERE rowid = {5 * ROWS}")


def text_before_damage(path):
    text_in_a_late_page(path)
    overwrite_pages(path, leaf_pages(path, KERNEL)[-2])


def separator_in_a_text(path):
    nsight.edit(
        path,
        "CREATE TABLE NVTX_EVENTS (start, end, eventType, text, globalTid)",
        "INSERT INTO NVTX_EVENTS "
        f"SELECT start, end, 59, CASE rowid WHEN 1500 THEN char(31) ELSE 'x' END, globalTid "
        f"FROM {RUNTIME}",
    )


@pytest.mark.parametrize("readers", [1, 3])
@pytest.mark.parametrize(
    "change",
    [
        lambda path: None,
        page_of_two_tables,
        text_in_a_late_page,
        text_before_damage,
        separator_in_a_text,
    ],
    ids=["whole", "pages", "text", "text and page", "separator"],
)
def test_threads_change_nothing(export, monkeypatch, opened, change, readers):
    change(export)
    with_readers(monkeypatch, 0)
    alone = read_trace(export)
    assert len(opened) == 1
    with_readers(monkeypatch, readers)
    assert_same_events(read_trace(export), alone)
    assert len(opened) == 2 + readers
    assert all(map(is_closed, opened))


def connections(path, count):
    steps = open_export._Steps(path)
    return [open_export._connect(path, steps) for _ in range(count)]


def test_pages_come_in_order_and_an_error_at_its_turn(export):
    places = leaf_pages(export, KERNEL)
    overwrite_pages(export, places[len(places) // 2])
    first, *ahead = connections(export, 4)
    before = threading.active_count()
    came = []
    query = pages.Query(KERNEL, {"start": "start"}, "")
    with (  # noqa: PT012
        closing(pages.Readers(ahead)) as readers,
        pytest.raises(sqlite3.DatabaseError, match="malformed"),
    ):
        for page in pages.pages(query, first, readers):
            came.extend(page.columns["start"].tolist())
    assert came == sorted(came)
    assert len(came) in range(ROWS, 6 * ROWS, ROWS)
    assert threading.active_count() == before
    for connection in (first, *ahead):
        connection.close()


def test_who_stops_early_leaves_no_thread_and_no_query(export):
    first, *ahead = connections(export, 3)
    before = threading.active_count()
    query = pages.Query(KERNEL, {"start": "start"}, "")
    with closing(pages.Readers(ahead)) as readers:
        next(pages.pages(query, first, readers))
        assert threading.active_count() == before + 2
    assert threading.active_count() == before
    for connection in (first, *ahead):
        connection.close()


@pytest.mark.parametrize("readers", [0, 3])
def test_connections_share_what_a_reading_may_cost(export, monkeypatch, opened, readers):
    with_readers(monkeypatch, readers)
    monkeypatch.setattr(open_export, "_STEPS_A_ROUND", 1_000)
    monkeypatch.setattr(open_export, "BASE_STEPS", 40_000)
    monkeypatch.setattr(open_export, "STEPS_A_BYTE", 0)
    with pytest.raises(DamagedInput, match="ran far longer"):
        read_trace(export)
    assert all(map(is_closed, opened))
    monkeypatch.setattr(open_export, "BASE_STEPS", 4_000_000)
    read_trace(export)


# It may come between the opening of a file and the statement that closes it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("readers", [0, 2])
def test_an_interrupt_is_no_damage(export, monkeypatch, opened, readers, request):
    """SQLite calls us while a query runs, and what is raised there is an error of the query."""
    with_readers(monkeypatch, readers)
    monkeypatch.setattr(open_export, "_STEPS_A_ROUND", 1_000)
    # Whoever starts tests in the background has SIGINT ignored.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, handler))
    once = iter([signal.SIGINT])
    monkeypatch.setattr(
        open_export._Steps, "__call__", lambda steps: [*map(signal.raise_signal, once)] and False
    )
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        read_trace(export)
    assert all(map(is_closed, opened))
    # One that is interrupted while it starts is not waited for, and ends when it has nothing to do.
    deadline = time.monotonic() + 30
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


def test_an_interrupt_while_sqlite_asks_what_a_query_may_do_is_none_either(export, monkeypatch):
    with_readers(monkeypatch, 0)
    allowed = open_export._allowed

    def ends_at(asked):
        times = itertools.count()

        def interrupted(*of_query):
            if next(times) == asked:
                raise KeyboardInterrupt
            return allowed(*of_query)

        monkeypatch.setattr(open_export, "_allowed", interrupted)
        try:
            read_trace(export)
        except KeyboardInterrupt:
            return "ended"
        return "lost" if next(times) > asked else "never asked"

    ends = list(itertools.takewhile(lambda end: end != "never asked", map(ends_at, range(1000))))
    assert 50 < len(ends) < 1000
    assert set(ends) == {"ended"}
