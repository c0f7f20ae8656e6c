"""Work that is shared with other processes: results in order, whoever made them."""

import os
import pickle
import signal
import sys
import time
import types
from contextlib import closing
from multiprocessing.connection import Connection

import pytest

from traceprobe.errors import DamagedInput
from traceprobe.system import shared_work
from traceprobe.system.child import Child, ChildEnded, Done, Ready, children
from traceprobe.system.passed_memory import SLOTS
from traceprobe.system.shared_work import begun_ahead, results_in_order

# Slow enough that every process gets some of it.
MOMENT = 0.02


def maker(number):
    time.sleep(MOMENT)
    return number, os.getpid()


def refusing(parent_and_number):
    """Refuses what another process than the one that asks gets to do."""
    parent, number = parent_and_number
    time.sleep(MOMENT)
    if os.getpid() != parent:
        raise DamagedInput("elsewhere")
    return number


def refusing_the_third(number):
    if number == 3:
        raise DamagedInput("the third")
    return number


def secretive(parent_and_number):
    """Returns what cannot be sent by another process than the one that asks."""
    parent, number = parent_and_number
    time.sleep(MOMENT)
    return number if os.getpid() == parent else lambda: number


def late_elsewhere(parent_and_number):
    """Takes long in another process than the one that asks."""
    parent, number = parent_and_number
    if os.getpid() != parent:
        time.sleep(10 * MOMENT)
    return number


def deadly(parent_and_number):
    """Ends every process but the one that asks."""
    parent, number = parent_and_number
    if os.getpid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(MOMENT)
    return number


@pytest.mark.parametrize("jobs", [2, 3])
def test_results_come_in_order(jobs):
    found = list(results_in_order(maker, iter(range(100)), jobs))
    assert [number for number, _ in found] == list(range(100))
    makers = {process for _, process in found}
    assert os.getpid() in makers
    assert len(makers) > 1


def test_nothing_gives_nothing():
    assert list(results_in_order(maker, iter(()), 2)) == []


def test_an_error_of_another_process_is_raised():
    with pytest.raises(DamagedInput, match="elsewhere"):
        list(results_in_order(refusing, ((os.getpid(), n) for n in range(100)), 2))


def test_an_error_waits_for_its_turn():
    found = results_in_order(refusing_the_third, range(50), 2)
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(DamagedInput, match="the third"):
        next(found)


def test_a_result_that_cannot_be_sent_is_an_error_and_not_lost():
    with pytest.raises((AttributeError, pickle.PicklingError), match="pickle"):
        list(results_in_order(secretive, ((os.getpid(), n) for n in range(100)), 2))


def test_the_error_of_the_one_who_takes_the_results_is_the_one_that_is_raised(monkeypatch):
    close = Connection._close

    def slow(self, *arguments):
        time.sleep(MOMENT)
        close(self, *arguments)

    monkeypatch.setattr(Connection, "_close", slow)
    with pytest.raises(DamagedInput, match="enough"):
        list(results_in_order(maker, ending(), 3))


def ending():
    yield from range(80)
    raise DamagedInput("enough")


def test_no_more_is_done_ahead_than_fits_in_memory():
    taken = []
    works = ((os.getpid(), taken.append(n) or n) for n in range(200))
    for count, _ in enumerate(results_in_order(late_elsewhere, works, 2), 1):
        assert len(taken) - count <= 4 * 2


def test_what_a_killed_process_had_is_done_here():
    works = [(os.getpid(), number) for number in range(40)]
    assert list(results_in_order(deadly, works, 2)) == list(range(40))


def test_what_another_process_cannot_import_is_done_here(monkeypatch):
    here = types.ModuleType("only_here")
    exec("def twice(number):\n    return 2 * number", here.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", here)
    assert list(results_in_order(here.twice, range(5), 2)) == [0, 2, 4, 6, 8]


def test_where_no_process_starts_all_is_done_here(monkeypatch):
    def refused():
        raise ChildEnded("no more processes")

    monkeypatch.setattr("traceprobe.system.shared_work.Child", refused)
    found = list(results_in_order(maker, range(5), 2))
    assert found == [(number, os.getpid()) for number in range(5)]


def test_processes_end_with_an_iterator_that_is_closed():
    with closing(results_in_order(maker, iter(range(10_000)), 2)) as found:
        other = next(process for _, process in found if process != os.getpid())
    with pytest.raises(ProcessLookupError):
        os.kill(other, 0)


def test_a_process_that_was_started_ahead_is_the_one_that_helps():
    with begun_ahead(__name__, 1):
        (ahead,) = shared_work._begun
        with closing(results_in_order(maker, iter(range(10_000)), 2)) as found:
            other = next(process for _, process in found if process != os.getpid())
        assert other == ahead._process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(other, 0)


def test_a_process_that_nobody_needed_ends():
    with begun_ahead("json", 1):
        (ahead,) = shared_work._begun
    assert ahead._process.returncode is not None
    assert list(results_in_order(maker, iter(()), 2)) == []


class Long(bytes):
    """Bytes that travel by themselves."""

    def __reduce_ex__(self, protocol):
        return bytes, (pickle.PickleBuffer(self),)


def seen(text, tell):
    return len(text), text[:1] == text[-1:]


@pytest.mark.parametrize("memory", [True, False])
def test_long_bytes_arrive_whole(memory, monkeypatch):
    """More than a pipe takes, several on the way; with memory that both have, and without."""
    if not memory:
        monkeypatch.delattr(os, "memfd_create")
    texts = [Long(bytes([n]) * ((1 << 20) + n)) for n in range(2 * SLOTS)]
    with children() as started:
        started.append(child := Child())
        assert isinstance(child.answer(), Ready)
        for some in (texts[:SLOTS], texts[SLOTS:]):
            for text in some:
                child.give(seen, text)
            assert [child.answer() for _ in some] == [Done((len(text), True)) for text in some]
