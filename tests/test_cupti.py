"""What the profiler leaves in a process when it has ended."""

from __future__ import annotations

import pytest

from tests.lazy import Lazy
from traceprobe.capture.profiler.cupti import TEARDOWN, detach_after_profiles

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
