"""What a thread does while the process waits for something else."""

from __future__ import annotations

import threading

import pytest

from traceprobe.system.meanwhile import meanwhile


def test_it_is_done_beside_and_over_at_the_end():
    began, go_on, done = threading.Event(), threading.Event(), []

    def work():
        began.set()
        assert go_on.wait(60)
        done.append(threading.current_thread())

    with meanwhile(work):
        assert began.wait(60)
        assert not done
        go_on.set()
    assert done != [threading.current_thread()]
    assert len(done) == 1
    assert not done[0].is_alive()


def test_nobody_hears_of_its_errors(capfd):
    def fails():
        raise ImportError("there is no such module")

    with meanwhile(fails):
        pass
    assert capfd.readouterr() == ("", "")


def test_an_error_here_waits_for_its_end():
    done = []
    with pytest.raises(KeyboardInterrupt), meanwhile(lambda: done.append(1)):
        raise KeyboardInterrupt
    assert done == [1]
