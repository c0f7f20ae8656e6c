"""Allocation logs and the replay of the caching allocator, by hand."""

from __future__ import annotations

import pytest

from traceprobe.capture.memory.allocation_log import (
    PARTS,
    TIMELINE_POINTS,
    AllocationLog,
    summarize_allocations,
)
from traceprobe.capture.memory.caching_allocator import CachingAllocator

KB, MB = 1 << 10, 1 << 20


def one_step():
    """A weight, an activation, a gradient; the peak is in the backward pass."""
    log = AllocationLog()
    log.add_existing("weight", 1000, "weights")
    log.add_existing("workspace", 512, "held")
    with log.phase("h2d"):
        log.allocate("batch", 100)
    with log.phase("forward"):
        log.allocate("hidden", 2000, "mm")
        log.allocate("scratch", 3000, "gelu")
        log.free("scratch")
    with log.phase("backward"):
        log.allocate("gradient", 1000, "mm")
        log.set_part("gradient", "gradients")
        log.allocate("passing", 4000, "t")
        log.free("passing")
        log.free("hidden")
    with log.phase("optimizer"):
        log.free("gradient")
    return log


def test_the_parts_at_the_peak_are_told_by_makers_and_lives():
    found = summarize_allocations(one_step())
    # rounded up to 512: 1024 + 512 + 512 + 2048 + 1024 + 4096
    assert found["peak_bytes"] == 9216
    assert found["parts"] == {
        "weights": 1024,
        "optimizer_state": 0,
        "gradients": 1024,
        "input": 512,
        "activations": 2048,
        "temporary": 4096,
        "held": 512,
    }
    assert (found["peak_phase"], found["peak_operator"]) == ("backward", "t")


def test_each_phase_has_its_own_peak():
    assert summarize_allocations(one_step())["phases"] == {
        "h2d": 2048,
        "forward": 2048 + 2048 + 3072,
        "backward": 9216,
        "optimizer": 3072,
    }


def test_a_part_may_be_largest_at_another_moment():
    found = summarize_allocations(one_step())
    assert found["most"]["temporary"] == 4096
    assert found["most"]["activations"] == 2048


def test_a_timeline_holds_the_peak_however_many_events_there_are():
    log = AllocationLog()
    for number in range(5000):
        log.allocate(number, 512)
        log.times.append(number / 2)
        if number != 3217:
            log.free(number)
            log.times.append(number / 2)
    log.allocate("largest", 1 * MB)
    log.times.append(2500.0)
    log.free("largest")
    log.times.append(2501.0)
    found = summarize_allocations(log)
    timeline = found["timeline"]
    assert len(timeline["position"]) == TIMELINE_POINTS
    assert timeline["position"] == sorted(timeline["position"])
    totals = [sum(each) for each in zip(*(timeline["parts"][p] for p in PARTS), strict=True)]
    assert max(totals) == found["peak_bytes"] == 1 * MB + 512


def test_what_lives_at_the_end_of_a_step_is_held_in_the_next():
    log = AllocationLog()
    log.add_existing("weight", 512, "weights")
    log.allocate("loss", 512)
    log.start_step()
    log.allocate("loss of this step", 512)
    found = summarize_allocations(log)
    assert (found["parts"]["held"], found["parts"]["weights"]) == (512, 512)
    assert found["peak_bytes"] == 1536


def test_a_step_without_events_holds_what_was_there():
    log = AllocationLog()
    log.add_existing("weight", 512, "weights")
    found = summarize_allocations(log)
    assert found["peak_bytes"] == 512
    assert (found["peak_phase"], found["peak_operator"]) == (None, None)


@pytest.mark.parametrize(
    ("requests", "reserved"),
    [
        ([0], 0),
        ([1], 2 * MB),
        ([1 * MB], 2 * MB),
        ([1 * MB + 1], 20 * MB),
        ([10 * MB - 512], 20 * MB),
        ([10 * MB], 10 * MB),
        ([11 * MB + 1], 12 * MB),
        ([512] * 4096, 2 * MB),
        ([512] * 4097, 4 * MB),
        ([4 * MB] * 5, 20 * MB),
        ([4 * MB] * 6, 40 * MB),
    ],
)
def test_segments_are_as_large_as_the_rules_say(requests, reserved):
    allocator = CachingAllocator()
    for key, nbytes in enumerate(requests):
        allocator.allocate(key, nbytes)
    assert allocator.reserved == reserved


def test_a_block_that_comes_back_is_used_again():
    allocator = CachingAllocator()
    for key in range(100):
        allocator.allocate(key, 30 * MB)
        allocator.free(key)
    assert allocator.reserved == 30 * MB


def test_neighbours_that_are_free_are_joined():
    allocator = CachingAllocator()
    for key in range(5):
        allocator.allocate(key, 4 * MB)
    for key in (1, 3, 2):
        allocator.free(key)
    allocator.allocate("all three", 9 * MB)
    assert allocator.reserved == 20 * MB


def test_what_lies_between_blocks_in_use_is_no_place_for_a_larger_one():
    allocator = CachingAllocator()
    for key in range(5):
        allocator.allocate(key, 4 * MB)
    for key in (0, 2, 4):
        allocator.free(key)
    allocator.allocate("larger", 5 * MB)
    assert allocator.reserved == 40 * MB


def test_a_rest_of_a_megabyte_is_not_split_off():
    allocator = CachingAllocator()
    allocator.allocate("freed", 12 * MB)
    allocator.free("freed")
    allocator.allocate("most of it", 11 * MB)
    allocator.allocate("rest", 1 * MB + 512)
    assert allocator.reserved == 12 * MB + 20 * MB


def test_the_smallest_piece_that_fits_is_taken():
    allocator = CachingAllocator()
    allocator.allocate("large", 40 * MB)
    allocator.allocate("fits", 12 * MB)
    allocator.free("large")
    allocator.free("fits")
    allocator.allocate("again", 12 * MB)
    allocator.allocate("as large", 40 * MB)
    assert allocator.reserved == 52 * MB


def test_blocks_that_nobody_knows_are_let_pass():
    log, allocator = AllocationLog(), CachingAllocator()
    log.free("nobody")
    allocator.free("nobody")
    assert (log.events, allocator.reserved) == (0, 0)
