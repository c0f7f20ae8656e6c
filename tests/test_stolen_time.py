"""Time that a hypervisor takes from the cores of a virtual machine."""

from __future__ import annotations

import os

import pytest

from traceprobe.system.stolen_time import StolenTime

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def stat(path, *stolen):
    """As /proc/stat has it, of the cores that this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    each = dict(zip(cores, stolen, strict=False))
    lines = [f"cpu{core} 10 0 20 500 3 0 1 {each.get(core, 0)} 0 0" for core in cores]
    path.write_text("\n".join(["cpu 40 0 40 900 6 0 2 0 0 0", *lines, "ctxt 5"]) + "\n")
    return path


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core alone")
def test_the_core_that_was_stopped_for_longest_counts_each_time(tmp_path):
    path = stat(tmp_path / "stat", 100, 40)
    lost = StolenTime(path)
    assert lost.ns() == 0  # what was before is over
    stat(path, 103, 41)
    assert lost.ns() == 3 * TICK_NS
    stat(path, 103, 46)
    assert lost.ns() == 8 * TICK_NS
    assert lost.ns() == 8 * TICK_NS


def test_without_such_a_file_nothing_is_lost(tmp_path):
    assert StolenTime(tmp_path / "none").ns() == 0
    odd = tmp_path / "stat"
    odd.write_text("cpu0 1 2\n")
    assert StolenTime(odd).ns() == 0
