"""What the words of each tool stand for: the classes of its verdict, the causes of its findings.

Read off what the tools print, explain and advise, with the benefit of the doubt: a cause is meant
where the tool's own text names it, its remedy, or what it does to the program. A word that names no
cause of the benchmark is in no table, and takes no place in a ranking.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.slowbench.answers import NONE, Answer, Said

LOADING = ("few-workers", "no-workers", "slow-decode", "small-files", "slow-collate")
COPYING = ("pageable-copies", "no-prefetch")
READING = ("item-each-step", "print-each-step")
LAUNCHING = ("python-between-launches", "many-tiny-kernels", "piecewise-optimizer", "graph-breaks")
SOMETIMES = ("periodic-checkpoint", "periodic-evaluation", "gc-pauses", "recompiles")
STRAGGLERS = ("straggler-loader", "straggler-compute", "straggler-host", "uneven-batches")
SENDING = ("slow-wire", "small-buckets", "one-big-bucket", "unoverlapped-all-gather")
PRECISION = ("fp32-matmul", "no-autocast")

IO, COMMUNICATION, OVERHEAD, COMPUTE = "io", "communication", "overhead", "compute"


@dataclass(frozen=True)
class Word:
    """One word of a tool.

    Args:
        says: id, kind or title of what it prints.
        causes: what it stands for.
        phrase: a regular expression: it stands for these only where its text has this. All that are
            in the text of a word count, and where none is, the word without a phrase.
    """

    says: str
    causes: tuple[str, ...]
    phrase: str = ""


BOUNDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "traceprobe": {
        "io": (IO,),
        "communication": (COMMUNICATION,),
        "overhead": (OVERHEAD,),
        "compute": (COMPUTE,),
    },
    "HTA": {
        "idle": (IO, OVERHEAD),
        "memory": (IO,),
        "communication": (COMMUNICATION,),
        "compute": (COMPUTE,),
    },
    "nsys-ai": {
        "cpu-bound": (IO, OVERHEAD),
        "gpu-compute-bound": (COMPUTE,),
        "comm-bound": (COMMUNICATION,),
    },
    "TraceML": {
        "INPUT_BOUND": (IO,),
        "H2D_BOUND": (IO,),
        "COMPUTE_BOUND": (COMPUTE,),
        "RESIDUAL_HEAVY": (OVERHEAD, COMMUNICATION),
        "STRAGGLER": (COMMUNICATION,),
        "INPUT_STRAGGLER": (COMMUNICATION, IO),
        "COMPUTE_STRAGGLER": (COMMUNICATION, COMPUTE),
        "H2D_STRAGGLER": (COMMUNICATION, IO),
        "NO_CLEAR_PERFORMANCE_BOTTLENECK": (NONE,),
    },
}
"""Words of verdicts. `mixed` of traceprobe stands for the two classes that it names; a word that is
not here is no verdict, as `inconclusive` and nsys-ai's `mixed`."""

ON_STRAGGLER = r"on rank \d+, which the others wait for"
_SAMPLES = ("slow-decode", "small-files", "uneven-samples")
_TRACEPROBE = (
    Word("data-wait", ("straggler-loader",), r"timed: [\d.]+ ms on rank \d+"),
    Word("data-wait", ("straggler-loader",), ON_STRAGGLER),
    Word("data-wait", ("no-workers",), "`num_workers=0`"),
    Word("data-wait", ("few-workers",), "would hide the loader"),
    Word(
        "data-wait",
        ("slow-collate",),
        r"for a batch[^:]*: (?:\d+\s% collating in|(?:[5-9]\d|100)\s% of it)",
    ),
    Word("data-wait", _SAMPLES, r"for a batch[^:]*: (?:\d+\s% in `|[0-4]?\d\s% of it collating)"),
    Word("data-wait", ("uneven-samples", *COPYING), "handing them over is"),
    Word("data-wait", (*LOADING, "uneven-samples")),
    Word("prefetch-drained", (*LOADING, "uneven-samples")),
    Word("h2d-exposed", ("pageable-copies",), "Pin the loader's memory"),
    Word("h2d-exposed", ("no-prefetch",), "next batch on a stream of its own"),
    Word("h2d-exposed", COPYING),
    Word("h2d-pageable", ("pageable-copies",)),
    Word("allocator-stalls", ("allocator-retries",), "makes room"),
    Word("allocator-stalls", ("empty-cache-each-step",), r"empty_cache\(\)` does"),
    Word("allocator-stalls", ("allocator-retries", "empty-cache-each-step")),
    Word("garbage-collection", ("gc-pauses",)),
    Word("recompilation", ("recompiles",)),
    Word("graph-breaks", ("graph-breaks",)),
    Word("host-pauses", ("straggler-host",), ON_STRAGGLER),
    Word(
        "host-pauses",
        ("python-between-launches", "gc-pauses", "periodic-checkpoint", "print-each-step"),
        "Look at that line",
    ),
    Word("host-pauses", ("python-between-launches", "gc-pauses")),
    Word("synchronization", ("blocking-sync",), "DeviceSynchronize"),
    Word("synchronization", ("no-prefetch",), "from pinned memory, without"),
    Word("synchronization", ("pageable-copies",), "from pageable memory"),
    Word("synchronization", READING, "StreamSynchronize"),
    Word("synchronization", READING, "cudaMemcpy"),
    Word("synchronization", (*READING, "blocking-sync")),
    Word("host-overhead", ("straggler-host",), ON_STRAGGLER),
    Word("host-overhead", LAUNCHING),
    Word("small-kernels", ("many-tiny-kernels", "piecewise-optimizer", "unfused-pointwise")),
    Word("optimizer-launches", ("piecewise-optimizer",)),
    Word("optimizer-cost", ("piecewise-optimizer",)),
    Word("unexplained-idle", ("straggler-host",), ON_STRAGGLER),
    Word(
        "unexplained-idle",
        ("python-between-launches", "gc-pauses", "periodic-checkpoint", "print-each-step"),
        "Look at that line",
    ),
    Word("unexplained-idle", ("python-between-launches", "gc-pauses")),
    Word("long-iterations", ("periodic-checkpoint",), "Copy checkpoints"),
    Word("long-iterations", ("periodic-evaluation",), "evaluation, or rollouts"),
    Word("long-iterations", ("periodic-evaluation",), "the batches of an evaluation"),
    Word("long-iterations", SOMETIMES),
    Word("tf32-off", PRECISION),
    Word("lower-precision", PRECISION),
    Word("double-precision", ("double-precision-loss",)),
    Word("forward-only", ("straggler-compute",), r"on rank \d+ alone"),
    Word("forward-only", ("needless-work",)),
    Word("retained-graph", ("needless-work",)),
    Word("unused-gradients", ("needless-work",)),
    Word("unaligned-matmul", ("unaligned-shapes",)),
    Word("memory-format", ("contiguous-layout",)),
    Word("attention-unfused", ("unfused-attention",)),
    Word("recomputation", ("recomputation",)),
    Word("unfused-kernels", ("unfused-pointwise", "many-tiny-kernels")),
    Word("gpu-shared", ("clock-drop",)),
    Word("clock-changed", (), "this program's own load causes it"),
    Word("clock-changed", ("clock-drop",)),
    Word("memory-peak", ("allocator-retries",)),
    Word("memory-slack", ("allocator-retries",)),
    Word("communication-exposed", ("small-buckets",), "raise `bucket_cap_mb`"),
    Word("communication-exposed", SENDING[3:], "gathers and scatters sharded parameters"),
    Word("communication-exposed", SENDING[2:], "a smaller `bucket_cap_mb`"),
    Word("communication-exposed", ("slow-wire",), "longer than the backward pass"),
    Word("communication-exposed", ("no-accumulation-no-sync",), r"\(`no_sync\(\)`\)"),
    Word("communication-exposed", SENDING[2:], "starts earlier in the backward"),
    Word("bus-bandwidth", ("slow-wire",)),
    Word("repeated-collectives", ("no-accumulation-no-sync",)),
    Word("ddp-buckets", ("small-buckets", "no-accumulation-no-sync")),
    Word("communication-skew", ("straggler-loader",), "spends more time on I/O"),
    Word("communication-skew", ("straggler-host",), "spends more time on overhead"),
    Word("communication-skew", ("pipeline-imbalance",), "its stage of the pipeline computes"),
    Word("communication-skew", ("uneven-batches",), "computes on more data"),
    Word("communication-skew", ("clock-drop",), "its GPU is slower"),
    Word("communication-skew", ("straggler-compute",), "spends more time on comput"),
    Word("communication-skew", ("uneven-batches",), "take turns"),
    Word("communication-skew", (*STRAGGLERS, "pipeline-imbalance")),
    Word("pipeline-bubble", ("pipeline-imbalance",), "make them equally long"),
    Word("pipeline-bubble", ("pipeline-bubble",)),
)
_HTA = (
    Word("idle: host_wait", LAUNCHING),
    Word("idle: kernel_wait", ("many-tiny-kernels", "piecewise-optimizer")),
    Word("idle: other", ("blocking-sync",)),
    Word("MEMORY", COPYING),
    Word("COMMUNICATION", SENDING),
    Word("straggler", STRAGGLERS),
)
_WAITING = ("blocking-sync", *READING)
_BUBBLES = "GPU Bubbles (Pipeline Stalls)"
_NSYS_AI = (
    Word(_BUBBLES, COPYING, "blocking memory transfers"),
    Word(_BUBBLES, _WAITING, "Remove explicit cudaDeviceSynchronize"),
    Word(_BUBBLES, _WAITING, "Over-Synchronization"),
    Word(_BUBBLES, (*LOADING, "python-between-launches"), "CPU is not feeding GPU"),
    Word(_BUBBLES, LAUNCHING, "Kernel launch overhead dominates"),
    Word(_BUBBLES, (*LAUNCHING, *LOADING, *COPYING, *_WAITING)),
    Word("NCCL Serialization", SENDING),
    Word("Inefficient NCCL Communicator", SENDING),
    Word("Excessive H2D Transfers", COPYING),
    Word("Continuous H2D Transfers", (*COPYING, "few-workers", "no-workers")),
    Word("Kernel Hotspot", ("unaligned-shapes", "unfused-attention")),
    Word("H2D Transfer Spike", COPYING),
    Word("Small Kernel Overhead", ("many-tiny-kernels", "unfused-pointwise")),
    Word("Compute-Communication Imbalance", SENDING),
    Word("Pipeline Imbalance", ("pipeline-imbalance",)),
    Word("Excessive Synchronization", _WAITING),
    Word("Synchronous Memcpy", COPYING),
    Word("Pageable Memory in Async Memcpy", ("pageable-copies",)),
    Word("Synchronous Memset", ("blocking-sync",)),
    Word(
        "gpu_idle_gaps",
        (*_WAITING, "few-workers", "no-workers", *COPYING, "many-tiny-kernels"),
    ),
    Word(
        "profile_idle_dominant",
        ("few-workers", "no-workers", "pageable-copies", *LAUNCHING),
    ),
    Word("profile_sync_bound", (*_WAITING, "pageable-copies")),
    Word("profile_comm_bound", SENDING),
    Word("profile_kernel_hotspot", (*PRECISION, "unfused-pointwise", "unaligned-shapes")),
    Word("profile_iteration_variance_spike", (*SOMETIMES, "uneven-samples")),
    Word("slow_iteration", (*SOMETIMES, "uneven-samples")),
    Word("low_overlap", SENDING),
    Word("exposed_communication", SENDING),
    Word("communication_dominated", SENDING),
    Word("nccl_serialization", SENDING),
    Word("high_variability", STRAGGLERS),
    Word("long_nccl", ("slow-wire", "one-big-bucket")),
    Word("small_kernel_overhead", ("many-tiny-kernels", "unfused-pointwise")),
    Word("tc_eligible_inactive", (*PRECISION, "unaligned-shapes")),
    Word("h2d_transfer", COPYING),
)
_RESIDUAL = (
    *("python-between-launches", "print-each-step", "item-each-step", "blocking-sync"),
    *("periodic-checkpoint", "periodic-evaluation", "gc-pauses", *COPYING),
)
_TRACEML = (
    Word("INPUT_BOUND", (*LOADING, "uneven-samples")),
    Word("H2D_BOUND", COPYING),
    Word("COMPUTE_BOUND", (*PRECISION, "double-precision-loss")),
    Word("RESIDUAL_HEAVY", _RESIDUAL),
    Word("STRAGGLER", STRAGGLERS),
    Word("INPUT_STRAGGLER", ("straggler-loader",)),
    Word("COMPUTE_STRAGGLER", ("straggler-compute", "uneven-batches")),
    Word("H2D_STRAGGLER", ("straggler-loader",)),
    Word("HIGH_GPU_MEMORY", ("allocator-retries",)),
    Word("VERY_HIGH_GPU_MEMORY", ("allocator-retries",)),
    Word("VERY_HIGH_PROCESS_GPU_MEMORY", ("allocator-retries",)),
    Word("GPU_MEMORY_RESERVED_OVERHANG", ("allocator-retries",)),
)
_NSYS = (
    Word("cuda_memcpy_async", ("pageable-copies",)),
    Word("cuda_memcpy_sync", (*COPYING, "item-each-step")),
    Word("cuda_memset_sync", ("blocking-sync",)),
    Word("cuda_api_sync", _WAITING),
)
WORDS: Mapping[str, tuple[Word, ...]] = {
    "traceprobe": _TRACEPROBE,
    "HTA": _HTA,
    "nsys-ai": _NSYS_AI,
    "TraceML": _TRACEML,
    "nsys analyze": _NSYS,
}

SILENT = ("HTA",)
"""Tools that state numbers and ask for no look at any."""


def meaning(tool: str, says: str, text: str = "") -> frozenset[str]:
    """The causes that a word stands for; empty for one that is not in the table.

    Args:
        text: all that the tool says with it.
    """
    own = [word for word in WORDS[tool] if word.says == says]
    found = [word for word in own if word.phrase and re.search(word.phrase, text)]
    return frozenset(
        cause for word in found or [w for w in own if not w.phrase] for cause in word.causes
    )


def bound(answer: Answer) -> frozenset[str] | None:
    """The classes that a verdict stands for; None where there is none."""
    if answer.classes:
        return frozenset(answer.classes)
    classes = BOUNDS.get(answer.tool, {}).get(answer.verdict or "")
    return None if classes is None else frozenset(classes)


def named(answer: Answer) -> list[tuple[Said, frozenset[str]]]:
    """What an answer says that names causes, each with them; the same causes once."""
    first: dict[frozenset[str], Said] = {}
    for said in answer.said:
        causes = meaning(answer.tool, said.word, said.text)
        if causes:
            first.setdefault(causes, said)
    return [(said, causes) for causes, said in first.items()]


def claimed(tool: str) -> frozenset[str]:
    """All causes that a tool has a word for."""
    return frozenset(cause for word in WORDS[tool] for cause in word.causes)


def claimed_classes(tool: str) -> frozenset[str]:
    """All classes that a tool has a verdict for."""
    return frozenset(name for classes in BOUNDS.get(tool, {}).values() for name in classes)
