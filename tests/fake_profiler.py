"""Stands for the profiler of a recording."""

from __future__ import annotations

SHORT_PLAN = {"warmup": 2, "most_warmup": 2, "calibrate": 3, "settle": 1, "active": 2, "repeats": 0}
"""Of a recording of a few steps."""


class FakeProfiler:
    """A profiler that only writes down what it is told."""

    def __init__(self):
        self.calls = []
        self.metadata = None

    def start(self, active, settle):
        self.calls.append(f"start {active}")

    def step(self):
        self.calls.append("step")

    def abandon(self):
        self.calls.append("abandon")

    def stop(self):
        self.calls.append("stop")

    def export(self, metadata):
        self.calls.append("export")
        self.metadata = metadata
