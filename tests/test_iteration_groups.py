"""Marks that count something smaller than the loop are joined to whole iterations."""

from __future__ import annotations

import pytest

from tests.builders.program import BATCH, UPDATE, Program
from traceprobe.timeline.iteration_groups import find_iterations

STEP = "Optimizer.step#Adam.step"
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def names(prefix, count=12):
    return [f"{prefix}_{k}" for k in range(count)]


def iterations(program, step=None):
    trace = program.trace()
    return find_iterations(
        trace.host_ranges, trace.host_operators, trace.gpu_ops, trace.host_calls, trace.names, step
    )


def joined(program, step=None):
    """How many marks make an iteration, and the first and the last iteration's label."""
    marker = iterations(program, step)
    return marker.per_iteration, marker.labels[0], marker.labels[-1]


def passes(program, prefix=""):
    program.kernels(names(f"{prefix}forward"))
    program.kernels(names(f"{prefix}backward"), backward=True)


def update(program, *, ranges=True):
    if not ranges:
        program.kernels([UPDATE] * 2)
        return
    with program.range(STEP):
        program.kernels([UPDATE] * 2)


def gan(count=12, *, first="critic", ranges=True, mark="ProfilerStep#{}", evaluate=()):
    """Each mark is an update: two of the critic, one of the generator."""
    program = Program()
    for k in range(count):
        with program.range(mark.format(k)):
            of_generator = k % 3 == (2 if first == "critic" else 0)
            if not of_generator:
                program.copy_in()
            passes(program, "generator_" if of_generator else "critic_")
            update(program, ranges=ranges)
            if k in evaluate:
                for _ in range(3):
                    program.copy_in().kernels(names("critic_forward"))
        program.sleep(50_000)
    return program


@pytest.mark.parametrize("ranges", [True, False], ids=["ranges of updates", "their kernels"])
def test_two_updates_of_the_critic_and_one_of_the_generator_are_an_iteration(ranges):
    assert joined(gan(ranges=ranges)) == (
        3,
        "ProfilerStep#0 to ProfilerStep#2",
        ("ProfilerStep#9 to ProfilerStep#11"),
    )


@pytest.mark.parametrize("ranges", [True, False], ids=["ranges of updates", "their kernels"])
def test_a_generator_that_does_all_that_its_critic_does_and_more_has_no_input_of_its_own(ranges):
    """Its loss goes through the critic, and the batch is that of the critic's updates."""
    program = Program()
    for k in range(12):
        with program.range(f"ProfilerStep#{k}"):
            if k % 3 < 2:
                program.copy_in()
            passes(program, "critic_")
            if k % 3 == 2:
                passes(program, "generator_")
            update(program, ranges=ranges)
        program.sleep(50_000)
    assert joined(program)[:2] == (3, "ProfilerStep#0 to ProfilerStep#2")


@pytest.mark.parametrize("ranges", [True, False], ids=["ranges of updates", "their kernels"])
def test_an_update_of_the_actor_after_twenty_of_the_critic_ends_an_iteration(ranges):
    program = Program()
    for k in range(4 * 21):
        with program.range(f"ProfilerStep#{k}"):
            of_actor = k % 21 == 20
            passes(program, "actor_" if of_actor else "critic_")
            if of_actor:
                program.kernels(names("policy", 6))
            update(program, ranges=ranges)
            if of_actor:
                program.kernel(UPDATE)  # of more parameters
        program.sleep(50_000)
    marker = iterations(program)
    assert (marker.per_iteration, len(marker.starts)) == (21, 4)
    assert marker.labels[0] == "ProfilerStep#0 to ProfilerStep#20"


@pytest.mark.parametrize("every", [2, 3])
def test_an_evaluation_after_some_iterations_of_a_gan_makes_them_no_longer(every):
    evaluate = range(3 * every - 1, 36, 3 * every)
    marker = iterations(gan(36, evaluate=evaluate))
    assert (marker.per_iteration, len(marker.starts)) == (3, 12)


def test_an_iteration_that_is_not_whole_is_lost_at_either_end():
    marker = iterations(gan(first="generator"))
    assert marker.labels == (
        "ProfilerStep#1 to ProfilerStep#3",
        "ProfilerStep#4 to ProfilerStep#6",
        "ProfilerStep#7 to ProfilerStep#9",
    )
    assert (marker.starts[1:] == marker.ends[:-1]).all()


def test_an_iteration_of_several_marks_begins_and_ends_with_theirs():
    program = gan(6)
    marker = iterations(program)
    ranges = [r for r in program.script.ranges if r.name.startswith("ProfilerStep#")]
    assert marker.starts.tolist() == [ranges[0].t0, ranges[3].t0]
    assert marker.ends.tolist() == [ranges[3].t0, ranges[5].t1]


def test_a_rollout_and_its_updates_are_an_iteration():
    program = Program()
    for k in range(16):
        with program.range(f"ProfilerStep#{k}"):
            if k % 4 == 0:
                for _ in range(20):
                    program.copy_in(4_096).kernels(names("policy", 4)).copy_out(1_024)
            passes(program)
            update(program)
    assert joined(program)[:2] == (4, "ProfilerStep#0 to ProfilerStep#3")


def evaluating(every, count=15, mark="ProfilerStep#{}"):
    """An evaluation after every few steps."""
    program = Program()
    for k in range(count):
        with program.range(mark.format(k)):
            program.copy_in()
            passes(program)
            update(program)
            if k % every == every - 1:
                for _ in range(4):
                    program.copy_in().kernels(names("forward"))
    return program


@pytest.mark.parametrize("every", [2, 3, 5])
def test_steps_after_some_of_which_comes_an_evaluation_stay_steps(every):
    assert joined(evaluating(every)) == (1, "ProfilerStep#0", "ProfilerStep#14")


def micro_batches(count=13, passes_per_update=4):
    """Each batch of the loader is a part of an update; nothing tells where the last one ends."""
    program = Program()
    for k in range(count):
        with program.range(LOADER):
            program.sleep(20_000)
        program.copy_in()
        passes(program)
        if k % passes_per_update == passes_per_update - 1:
            program.kernels([UPDATE] * 2)
    return program


def test_the_micro_batches_of_an_update_are_an_iteration():
    marker = iterations(micro_batches())
    assert (marker.kind, marker.per_iteration) == ("dataloader", 4)
    assert len(marker.starts) == 3


def test_all_equal_marks_are_an_iteration_each():
    assert joined(micro_batches(passes_per_update=1))[0] == 1


def test_the_users_own_pattern_is_taken_at_its_word():
    assert joined(gan(), step=r"ProfilerStep#\d+")[0] == 1


def test_three_marks_are_too_few_to_show_what_repeats():
    assert joined(gan(3))[0] == 1


def test_a_program_without_marks_and_without_a_period_has_no_iterations():
    assert iterations(Program().kernels(names("kernel", 30))) is None


def test_the_size_of_a_scalar_is_no_input():
    """A learning rate that is copied in every third step makes no iteration of three."""
    program = Program()
    for k in range(12):
        with program.range(f"step {k}"):
            program.copy_in(8 if k % 3 == 0 else 4)
            passes(program)
            update(program)
    assert BATCH > 256
    assert joined(program)[0] == 1
