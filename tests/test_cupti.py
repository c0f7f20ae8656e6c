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
    """Calls of CUDA's runtime: the profiler's library leaves in the third of them."""

    def __init__(self, calls: int = 3) -> None:
        self.left, self._calls = threading.Event(), calls

    def is_initialized(self) -> bool:
        return True

    def current_stream(self) -> _Device:
        return self

    def query(self) -> bool:
        self._calls -= 1
        if not self._calls:
            self.left.set()
        return True


def _end_profile(device: _Device) -> threading.Thread:
    """As the library does it: a thread of its own waits for a call."""
    with detaching():
        thread = threading.Thread(target=device.left.wait, daemon=True)
        thread.start()
    return thread


@pytest.fixture
def device(monkeypatch):
    def use(calls: int) -> _Device:
        used = _Device(calls)
        monkeypatch.setattr("torch.cuda", used)
        return used

    return use


def test_a_profile_is_over_when_its_library_has_left(monkeypatch, device):
    monkeypatch.setenv(TEARDOWN, "1")
    used = device(3)
    thread = _end_profile(used)
    assert used.left.is_set()
    thread.join()


def test_a_thread_that_stays_is_not_waited_for_long(monkeypatch, device):
    monkeypatch.setenv(TEARDOWN, "1")
    monkeypatch.setattr(cupti, "LEAVES_WITHIN_S", 0.01)
    used = device(0)
    thread = _end_profile(used)
    assert thread.is_alive()
    used.left.set()
    thread.join()


def test_a_library_that_stays_is_not_called(monkeypatch, device):
    monkeypatch.setenv(TEARDOWN, "0")
    used = device(1)
    thread = _end_profile(used)
    assert not used.left.is_set()
    used.left.set()
    thread.join()
