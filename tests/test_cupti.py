"""What the profiler leaves in a process when it has ended."""

from __future__ import annotations

import threading

import pytest

from tests.lazy import Lazy
from traceprobe.capture.profiler import cupti
from traceprobe.capture.profiler.cupti import TEARDOWN, detach_after_profiles, detaching

pytestmark = pytest.mark.usefixtures("pytorch")
torch = Lazy("torch")


@pytest.mark.parametrize(
    ("cuda", "before", "after"),
    [
        (None, None, None),
        ("12.4", None, None),
        ("12.6", None, "1"),
        ("13.0", None, "1"),
        ("13.0", "0", "0"),
    ],
)
def test_it_leaves_where_that_is_safe_and_the_user_did_not_decide(monkeypatch, cuda, before, after):
    monkeypatch.setattr(torch.version, "cuda", cuda)
    environment = {} if before is None else {TEARDOWN: before}
    monkeypatch.setattr("traceprobe.capture.profiler.cupti.os.environ", environment)
    detach_after_profiles()
    assert environment.get(TEARDOWN) == after


class _Device:
    """Calls of CUDA's runtime: the profiler's library leaves in the third of them.

    Its thread is none of Python's: numbers of threads come and go.
    """

    def __init__(self, monkeypatch, calls: int = 3, error: Exception | None = None) -> None:
        self.threads, self.calls, self.error = {1, 2}, 0, error
        self._needed = calls
        monkeypatch.setattr(cupti, "_foreign_threads", lambda: set(self.threads))
        monkeypatch.setattr("torch.cuda", self)

    def is_initialized(self) -> bool:
        return True

    def is_current_stream_capturing(self) -> bool:
        return False

    def current_stream(self) -> _Device:
        return self

    def query(self) -> bool:
        self.calls += 1
        if self.calls == self._needed:
            self.threads.discard(3)
        if self.error is not None:
            raise self.error
        return True


def _end_profile(device: _Device) -> None:
    """As the library does it: a thread of its own waits for a call."""
    with detaching():
        device.threads.add(3)


@pytest.mark.parametrize("error", [None, RuntimeError("an earlier kernel"), AssertionError()])
def test_a_profile_is_over_when_its_library_has_left(monkeypatch, error):
    monkeypatch.setenv(TEARDOWN, "1")
    device = _Device(monkeypatch, 3, error)
    _end_profile(device)
    assert (device.calls, device.threads) == (3, {1, 2})


def test_it_leaves_where_the_end_of_a_profile_fails(monkeypatch):
    monkeypatch.setenv(TEARDOWN, "1")
    device = _Device(monkeypatch)

    def fail() -> None:
        device.threads.add(3)
        raise ValueError("no trace")

    with pytest.raises(ValueError, match="no trace"), detaching():
        fail()
    assert device.threads == {1, 2}


def test_a_thread_that_stays_is_not_waited_for_long(monkeypatch):
    monkeypatch.setenv(TEARDOWN, "1")
    monkeypatch.setattr(cupti, "LEAVES_WITHIN_S", 0.01)
    device = _Device(monkeypatch, 0)
    _end_profile(device)
    assert device.calls
    assert 3 in device.threads


@pytest.mark.parametrize(("variable", "begins"), [("0", True), ("1", False)])
def test_without_a_library_that_leaves_nothing_is_called(monkeypatch, variable, begins):
    monkeypatch.setenv(TEARDOWN, variable)
    device = _Device(monkeypatch)
    with detaching():
        if begins:
            device.threads.add(3)
    assert not device.calls


def test_threads_of_python_are_none_of_a_library():
    before, ended = cupti._foreign_threads(), threading.Event()
    thread = threading.Thread(target=ended.wait, daemon=True)
    thread.start()
    assert thread.native_id not in cupti._foreign_threads()
    assert thread.native_id not in before
    ended.set()
    thread.join()
