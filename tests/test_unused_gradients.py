"""Backward work for gradients that no update uses: by what accumulates them, and the finding."""

from __future__ import annotations

import pytest
from msgspec import UNSET
from msgspec.structs import replace

import traceprobe
from tests import records
from tests.builders import kineto
from tests.builders.scenario import Script
from tests.evidence import finding_of
from tests.report_factory import MS
from traceprobe.records.unused_gradients import UnusedGradients

STEPS = 4
AUTOGRAD = 77
"""Thread of the backward pass."""
NODE = "autograd::engine::evaluate_function: "
PRODUCT_US, ADD_US = 40, 6


class Pass:
    """Nodes of a backward pass, one after the other, each with its kernels.

    Args:
        at: host time of the first. device: a list of one time, at which the device is free.
    """

    def __init__(self, script, at, device):
        self.script, self.at, self.device = script, at, device

    def node(self, name, *inner, kernels=()):
        began = self.at
        inside = began + 500
        for called in inner:
            self.script.operator(called, inside, inside + 1_000, thread=AUTOGRAD)
            inside += 1_000
        for kernel, us in kernels:
            start = max(self.device[0], inside)
            call = (inside, inside + 400)
            self.script.op("kernel", start, start + us * 1_000, call, thread=AUTOGRAD, name=kernel)
            self.device[0] = start + us * 1_000
            inside += 500
        self.at = inside + 500
        self.script.operator(NODE + name, began, self.at, thread=AUTOGRAD, forward_thread=1)

    def weight(self, products, accumulated):
        """A layer: its products, then its weight's gradient; none yet where it comes again."""
        gemm = [("sm90_xmma_gemm_bf16", PRODUCT_US)] * products
        self.node("MmBackward0", *["aten::mm"] * products, kernels=gemm)
        self.node("TBackward0", "aten::t")
        if accumulated is not None:
            self.accumulate(accumulated)

    def accumulate(self, how):
        kernel = [("vectorized_elementwise_kernel", ADD_US)]
        inner, kernels = {
            "anew": (["aten::detach"], []),
            "adds": (["aten::add_"], kernel),
            "hook": (["aten::detach", "aten::add_"], kernel),
        }[how]
        self.node("torch::autograd::AccumulateGrad", *inner, kernels=kernels)


def run(folder, layers, *, more=(), zeroes=False, update_between=False, clears=0):
    """Steps of a forward pass, a backward one, and an update.

    Args:
        layers: of each layer of the pass its products and how its gradient is accumulated.
        more: the same of further passes in each step, each behind another forward operation.
        zeroes: whether gradients are set to zero after the update.
        update_between: whether there is an update before each further pass too.
        clears: gradients that are set to zero behind each pass.
    """
    script = Script()
    for step in range(STEPS):
        t = 2 * MS * (step + 1)
        script.range(f"ProfilerStep#{step}", t, t + 2 * MS - 1_000)
        device = [t + 5_000]
        passes = [layers, *more]
        apart = 1_800_000 // len(passes)
        for n, chosen in enumerate(passes):
            at = t + n * apart
            script.operator("aten::linear", at + 2_000, at + 8_000, sequence=10 * step + n)
            begin = max(device[0], at + 5_000)
            call = (at + 4_000, at + 5_000)
            script.op("kernel", begin, begin + 50_000, call, name="gemm_forward")
            device[0] = begin + 50_000
            through = Pass(script, at + 20_000, device)
            for products, accumulated in chosen:
                through.weight(products, accumulated)
            for cleared in range(clears):
                begin = at + apart - 150_000 + cleared * 1_000
                script.operator("aten::zero_", begin, begin + 500)
            if n == len(more) or update_between:
                now = at + apart - 200_000
                script.range("Optimizer.step#AdamW.step", now, now + 20_000)
                begin = max(device[0], now + 6_000)
                call = (now + 5_000, now + 6_000)
                script.op("kernel", begin, begin + 30_000, call, name="multi_tensor_apply_kernel")
                device[0] = begin + 30_000
        if zeroes:
            script.operator("aten::zero_", t + 1_900_000, t + 1_905_000)
    path = kineto.write(script.build(), folder / "trace.json")
    return traceprobe.analyze(traceprobe.load(path)).ranks[0].summary.unused_gradients


def test_work_behind_the_last_gradient_that_begins_anew_is_for_nothing(tmp_path):
    found = run(tmp_path, [(2, "anew"), (2, "adds"), (2, "adds")])
    assert found.total_ns == found.iterations * 2 * (2 * PRODUCT_US + ADD_US) * 1_000
    assert found.gradients == 2 * found.iterations
    assert found.iterations >= STEPS - 1


def test_before_it_half_the_products_are(tmp_path):
    found = run(tmp_path, [(2, "adds"), (2, "anew")])
    assert found.total_ns == found.iterations * (PRODUCT_US + ADD_US) * 1_000


def test_the_only_product_of_a_node_is_for_its_weights(tmp_path):
    found = run(tmp_path, [(1, "adds"), (2, "anew")])
    assert found.total_ns == found.iterations * (PRODUCT_US + ADD_US) * 1_000


ADDS = [(2, "adds")] * 3


@pytest.mark.parametrize(
    ("run_before", "wasted"),
    [
        ([(2, None), (2, None), (1, None)], 5),
        ([(2, None), (2, None), (2, None)], 0),  # its input needs a gradient
        ([(2, None), (1, None)], 0),  # another network
        ([(1, None), (2, None), (1, None)], 0),
        ([(2, "anew"), (2, None), (2, None), (1, None)], 0),
    ],
)
def test_another_run_of_the_network_waits_for_what_is_added(tmp_path, run_before, wasted):
    found = run(tmp_path, [*run_before, *ADDS, (2, "anew")])
    added = len(ADDS) * (PRODUCT_US + ADD_US)
    assert found.total_ns == found.iterations * (wasted * PRODUCT_US + added) * 1_000


@pytest.mark.parametrize(
    "layers",
    [
        [(2, "anew"), (2, "anew")],
        [(2, "adds"), (2, "adds")],
        [(2, "anew"), (2, "hook")],
    ],
    ids=["all begin anew", "all are added", "a hook adds what began anew to something else"],
)
def test_used_gradients_are_none(tmp_path, layers):
    assert run(tmp_path, layers) is UNSET


def test_gradients_that_are_set_to_zero_are_used(tmp_path):
    assert run(tmp_path, [(2, "anew"), (2, "adds")], zeroes=True) is UNSET


def test_a_second_pass_before_the_update_adds_to_the_first(tmp_path):
    both = [(2, "anew"), (2, "anew")]
    assert run(tmp_path, both, more=[[(2, "anew"), (2, "adds")]]) is UNSET


def test_a_pass_after_the_update_of_another_network_is_looked_at(tmp_path):
    """As of a generator whose loss goes through the discriminator, updated right before."""
    both = [(2, "anew"), (2, "anew")]
    found = run(tmp_path, both, more=[[(2, "adds"), (2, "anew")]], update_between=True)
    assert found.total_ns == found.iterations * (PRODUCT_US + ADD_US) * 1_000


ATTACK = [*[(1, "adds")] * 8, (1, "anew")]
"""The gradient of the input comes last, and is cleared behind each pass."""
TRAINS = [(1, "anew")] * 8


@pytest.mark.parametrize(
    ("passes", "clears", "unused"),
    [
        ([ATTACK, ATTACK, TRAINS], 1, 16),
        ([ATTACK, ATTACK, TRAINS], 0, 16),
        ([ATTACK, ATTACK, TRAINS], 8, 0),  # as `zero_grad(set_to_none=False)`
        ([ATTACK, [(1, "adds")] * 8], 0, 8),  # adds to what it had, and the update may use it
        ([ATTACK, ATTACK, TRAINS[1:]], 0, 8),  # not all of them begin anew
        ([ATTACK, [(1, "adds")] * 9, TRAINS], 1, 17),  # the input's is set to zero, and added to
        ([[*[(1, "adds")] * 8, *TRAINS], TRAINS, TRAINS], 0, 8),  # a network's second loss
    ],
)
def test_sums_that_are_thrown_away_before_an_update_are_unused(tmp_path, passes, clears, unused):
    first, *more = passes
    found = run(tmp_path, first, more=more, clears=clears)
    if not unused:
        assert found is UNSET
        return
    assert found.gradients == unused * found.iterations
    assert found.total_ns == found.iterations * unused * (PRODUCT_US + ADD_US) * 1_000


def test_the_rank_with_most_of_it_counts():
    ranks = [records.rank({"forward": 500, "backward": 500}, n) for n in range(2)]
    work = UnusedGradients(
        total_ns=200 * MS * records.STEPS,
        kernels=24 * records.STEPS,
        gradients=8 * records.STEPS,
        iterations=records.STEPS,
    )
    wasteful = replace(ranks[1], summary=replace(ranks[1].summary, unused_gradients=work))
    found = finding_of("unused-gradients", ranks[0], wasteful)
    assert found.status == "warn"
    assert found.saving_ms_per_step == pytest.approx(200)
    assert found.evidence[0].startswith("200 ms per step (20.0 %) for 8 gradients")
    assert found.evidence[1] == "on rank 1 alone"
    assert "requires_grad_(False)" in found.advice
