"""What is advised about an optimizer: by its name, and by what its kernels are."""

from __future__ import annotations

import inspect

import pytest
from msgspec.structs import replace

from tests import records
from tests.evidence import evidence, finding_of
from tests.lazy import Lazy
from traceprobe.findings.optimizer_cost import cheaper_updates
from traceprobe.findings.optimizer_forms import FOREACH_FORM, FUSED_FORM
from traceprobe.records.summary import KernelShare

torch = Lazy("torch")
LOOP, MULTI, FUSED = "vectorized_elementwise_kernel", "multi_tensor_apply_kernel", "_fused_adam_"


def run(name, kernel=LOOP, device="gpu"):
    """A step with an optimizer of some name, whose kernels have some name."""
    rank = records.rank({"forward": 400, "backward": 100, "optimizer": 500})
    listed = [KernelShare(name=kernel, phase="optimizer", count=1, total_ns=1, mean_ns=1.0)]
    covered = 1.0 if device == "gpu" else None  # a CPU has no launches
    return replace(
        records.with_optimizer(rank, name),
        device=replace(rank.device, kind=device),
        summary=replace(rank.summary, top_kernels=listed, coverage=covered),
    )


@pytest.mark.parametrize(
    ("fused_ns", "advice"), [(50, "It is already fused"), (49, "Use `fused=True`")]
)
def test_a_program_with_two_optimizers_is_what_most_of_their_time_is(fused_ns, advice):
    rank = run("Adagrad", FUSED)
    times = ((FUSED, fused_ns), (MULTI, 50))
    listed = [
        KernelShare(name=name, phase="optimizer", count=1, total_ns=ns, mean_ns=float(ns))
        for name, ns in times
    ]
    rank = replace(rank, summary=replace(rank.summary, top_kernels=listed))
    assert finding_of("optimizer-cost", rank).advice.startswith(advice)


@pytest.mark.parametrize(
    ("rank", "begins"),
    [
        (run("AdamW"), "Use `fused=True`, or at least `foreach=True`;"),
        (run(""), "Use `fused=True` (Adam, AdamW, SGD), or at least `foreach=True`;"),
        (
            run("Adagrad", MULTI),
            "Use `fused=True` (of Adagrad on a GPU PyTorch has it after 2.11);",
        ),
        (run("Adagrad", device="cpu"), "Use `fused=True`;"),
        (run("AdamW", MULTI), "Use `fused=True`;"),
        (run("SGD", device="cpu"), "Use `fused=True`;"),
        (run("Adam", FUSED), "It is already fused"),
        (run("Adam", f"aten::{FUSED}", "cpu"), "It is already fused"),
        (run("RMSprop"), "Use `foreach=True`, since RMSprop has no fused form;"),
        (run("RMSprop", MULTI), "RMSprop has no fused form: compile its step"),
        (run("NAdam", device="cpu"), "NAdam has no fused form: compile its step"),
        (run("LBFGS"), "LBFGS has no fused form: reduce `history_size`"),
        (run("Lion"), "Check whether Lion, or a similar optimizer, has a fused form"),
    ],
)
def test_no_optimizer_is_told_to_use_what_it_has_not_or_has_already(rank, begins):
    assert finding_of("optimizer-cost", rank).advice.startswith(begins)


@pytest.mark.parametrize(
    ("rank", "fewer_kernels"),
    [(run("Adam"), True), (run(""), True), (run("Adam", FUSED), False), (run("LBFGS"), False)],
)
def test_only_what_may_be_fused_is_played_as_fused(rank, fewer_kernels):
    assert bool(cheaper_updates(evidence(rank)).fewer) is fewer_kernels


@pytest.mark.slow
def test_the_forms_are_those_of_pytorch():
    def taking(argument):
        found = vars(torch.optim).values()
        classes = [c for c in found if isinstance(c, type) and issubclass(c, torch.optim.Optimizer)]
        return {c.__name__ for c in classes if argument in inspect.signature(c).parameters}

    assert taking("fused") == set(FUSED_FORM)
    assert taking("foreach") == {*FUSED_FORM, *FOREACH_FORM}
