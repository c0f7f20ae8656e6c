"""Activations that go to the host in the forward pass, and come back in the backward pass."""

from __future__ import annotations

import pytest
from msgspec import UNSET

import traceprobe
from tests.builders import memory
from tests.builders.scenario import Script
from tests.report_factory import MS
from traceprobe.findings.offloading import KEEP

STEPS = 4
MB = 1_000_000


def report_of(*, back="backward", batch=0):
    """Steps that copy 64 MB to the host in the forward pass.

    Args:
        back: the phase in which as much is copied to the GPU.
        batch: bytes of input besides.
    """
    script = Script()
    for k in range(STEPS):
        at = 20 * MS * (k + 1)
        script.range(f"ProfilerStep#{k}", at, at + 20 * MS - 1_000)
        begins = {"forward": at + MS, "backward": at + 9 * MS}
        for phase, begin in begins.items():
            script.range(phase, begin, begin + 7 * MS)
            call = (begin + 20_000, begin + 30_000)
            script.op("kernel", begin + 40_000, begin + 3 * MS, call)
        copies = [("d2h", begins["forward"], 64 * MB), ("h2d", begins[back], 64 * MB)]
        if batch:
            copies.append(("h2d", begins["forward"] + 2 * MS, batch))
        for n, (way, begin, size) in enumerate(copies):
            call = (begin + 3 * MS + n * 60_000, begin + 3 * MS + n * 60_000 + 9_000)
            start = begin + 7 * MS // 2 + n * 100_000
            script.op(way, start, start + 2 * MS, call, bytes=size)
        update = (at + 17 * MS, at + 17 * MS + 9_000)
        script.range("optimizer", at + 17 * MS - 9_000, at + 18 * MS)
        script.op("kernel", at + 17 * MS + 20_000, at + 18 * MS, update, name="multi_tensor_apply")
    return traceprobe.analyze(memory.trace(script.build()))


def advice(report, name):
    return next(f.advice for f in report.findings if f.id == name)


def test_what_comes_back_is_counted_and_named():
    report = report_of()
    (rank,) = report.ranks
    assert rank.summary.h2d.returned_bytes == rank.summary.h2d.bytes > 0
    for name in ("h2d-exposed", "memory-traffic"):
        assert advice(report, name) == KEEP


def test_of_a_large_batch_the_copies_are_the_batch():
    report = report_of(batch=100 * MB)
    assert report.ranks[0].summary.h2d.returned_bytes < report.ranks[0].summary.h2d.bytes
    assert advice(report, "h2d-exposed") != KEEP


@pytest.mark.parametrize("name", ["h2d-exposed", "memory-traffic"])
def test_what_goes_to_the_gpu_in_the_forward_pass_is_input(name):
    report = report_of(back="forward")
    assert report.ranks[0].summary.h2d.returned_bytes is UNSET
    assert advice(report, name) != KEEP
