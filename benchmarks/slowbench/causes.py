"""The causes of slowness that are put into programs, and what each is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Class = Literal["io", "communication", "overhead", "compute"]


@dataclass(frozen=True)
class Cause:
    """A cause.

    Args:
        id: kebab-case, never renamed.
        cls: what a step waits for that has it.
        phase: of the step in which its time passes; None where that is no single one.
        words: what it is.
        ranks: processes that it takes.
        also: a class that is as right: what a graph break loses is fusion as well as launches, and
            kernels of almost no work keep the GPU busy where the host is ahead.
    """

    id: str
    cls: Class
    phase: str | None
    words: str
    ranks: int = 1
    also: Class | None = None


# Classes are those that docs/definitions.md gives the time: writing a checkpoint keeps the host
# from launching (`idle_host`, so overhead), the kernels of an evaluation compute (`forward`).
# Waiting for a slower rank is not communication, whose share is what transfers take: it has the
# class of what makes that rank slow. A tool that says "communication" has seen where others wait.
CAUSES = (
    Cause("slow-decode", "io", "data-wait", "samples take long to decode"),
    Cause("few-workers", "io", "data-wait", "too few workers load data"),
    Cause("no-workers", "io", "data-wait", "batches are made in the training process"),
    Cause("pageable-copies", "io", "h2d", "batches are copied from memory that is not pinned"),
    Cause("no-prefetch", "io", "h2d", "the host waits for the copy of each batch"),
    Cause("small-files", "io", "data-wait", "samples lie in many small files"),
    Cause("slow-collate", "io", "data-wait", "samples are put together one by one"),
    Cause("uneven-samples", "io", "data-wait", "a few samples take far longer than the others"),
    Cause("item-each-step", "overhead", "backward", "values are read from the GPU in each step"),
    Cause("print-each-step", "overhead", "backward", "tensors are printed in each step"),
    Cause("python-between-launches", "overhead", "forward", "Python computes between launches"),
    Cause(
        *("many-tiny-kernels", "overhead", "forward", "many kernels of almost no work"),
        also="compute",
    ),
    Cause(
        "piecewise-optimizer", "overhead", "optimizer", "the optimizer goes from tensor to tensor"
    ),
    Cause("gc-pauses", "overhead", None, "a large heap is collected"),
    Cause(
        *("graph-breaks", "overhead", "forward", "a compiled model falls into pieces"),
        also="compute",
    ),
    Cause("recompiles", "overhead", "forward", "compiled code is compiled again and again"),
    Cause("empty-cache-each-step", "overhead", None, "the allocator's cache is emptied"),
    Cause(
        "allocator-retries", "overhead", None, "memory is short: the cache is emptied to allocate"
    ),
    Cause("periodic-checkpoint", "overhead", None, "the state is written every few steps"),
    Cause(
        "blocking-sync", "overhead", None, "the host waits for the device in the midst of a step"
    ),
    Cause("periodic-evaluation", "compute", None, "the model is evaluated every few steps"),
    Cause("fp32-matmul", "compute", "forward", "products of matrices in fp32, without TF32"),
    Cause("no-autocast", "compute", "forward", "fp32 and TF32 where bf16 would do"),
    Cause("unaligned-shapes", "compute", "forward", "sizes that no tensor core divides"),
    Cause(
        "contiguous-layout", "compute", "forward", "convolutions whose channels do not come last"
    ),
    Cause("unfused-attention", "compute", "forward", "attention written out"),
    Cause("recomputation", "compute", "backward", "activations are computed again, memory is free"),
    Cause("unfused-pointwise", "compute", "forward", "formulas written out, operator by operator"),
    Cause("clock-drop", "compute", None, "another process computes on the same GPU"),
    Cause("needless-work", "compute", "forward", "a forward pass that nobody uses"),
    Cause("double-precision-loss", "compute", "forward", "the loss in double precision"),
    Cause("slow-wire", "communication", "backward", "gradients take a narrow way", 2),
    Cause("small-buckets", "communication", "backward", "gradients go in many small pieces", 2),
    Cause("one-big-bucket", "communication", "backward", "gradients go when all are there", 2),
    Cause("unoverlapped-all-gather", "communication", "forward", "all parameters at once", 2),
    Cause("pipeline-bubble", "communication", "forward", "a batch in too few parts", 2),
    Cause(
        *("pipeline-imbalance", "compute", "forward", "one stage has more layers", 2),
        also="communication",
    ),
    Cause(
        *("straggler-compute", "compute", "forward", "one rank computes more", 2),
        also="communication",
    ),
    Cause(
        *("straggler-host", "overhead", "forward", "the host of one rank is slower", 2),
        also="communication",
    ),
    Cause(
        *("straggler-loader", "io", "data-wait", "one rank waits for its data", 2),
        also="communication",
    ),
    Cause(
        *("uneven-batches", "compute", "forward", "one rank has larger batches", 2),
        also="communication",
    ),
    Cause(
        *("no-accumulation-no-sync", "communication", "backward"),
        *("gradients go after each part of a batch", 2),
    ),
)
BY_ID = {cause.id: cause for cause in CAUSES}
