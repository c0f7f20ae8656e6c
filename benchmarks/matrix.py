"""The runs that verdicts are validated with: each known to be bound by something, by construction.

A `Case` is one way to run a workload. A `Row` is a case with its controls: the same case with one
thing changed, which must change the verdict or at least the step time. Each change names the
finding that should have predicted from the slow run what the change can save at most.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Case:
    """A run.

    Args:
        expected: bounds that are right by construction; several where the hardware decides.
        ranks: processes, one a GPU.
        environment: variables of the program.
        backends: profilers that record it.
        steps: arguments of `traceprobe profile` about numbers of steps.
    """

    name: str
    arguments: str
    expected: tuple[str, ...]
    ranks: int = 1
    environment: dict[str, str] = field(default_factory=dict)
    backends: tuple[str, ...] = ("torch", "nsys")
    steps: str = "--warmup 4 --calibrate 12 --active 6"


@dataclass(frozen=True)
class Control:
    """A change of a case.

    Args:
        case: the changed case. change: in words.
        lever: ids of the findings of the unchanged case whose savings bound what the change saves;
            empty where the change costs time or changes the work.
    """

    case: str
    change: str
    lever: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """A case and its controls."""

    case: str
    why: str
    controls: tuple[Control, ...]


EXPLAINED = {
    "gpt2-one": "The host limits this step, and everything that the host does makes it longer, "
    "fetching the batch too. The ablation calls that I/O, the trace shows the same idle time where "
    "the launches that follow come late, and calls it overhead.",
    "gpt2x2-one": "As `gpt2-one`. Besides, without synchronisation DDP's hooks do not run either, "
    "so that the ablation counts their host time as communication.",
    "wide2": "Without synchronisation the kernels beside the collectives get faster, and DDP's "
    "copies of the gradients into its buckets are gone. The ablation counts both as "
    "communication; in the trace they are computation.",
    "wide4": "As `wide2`.",
}
"""Cases whose trace and ablation differ, and why."""

MORE_SAVED = {
    "unet-zlib": "The loader was faster when nsys recorded it: its step is 899 ms, that of the "
    "ablation 1130 ms. Of either step the change saves less than the finding allows.",
}
"""Cases of which a change saved more than a trace allowed, and why."""


WIRE = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
"""NCCL leaves NVLink and shared memory alone and goes through sockets: a slow wire."""
IO = "--warmup 4 --calibrate 8 --active 6"
TORCH = ("torch",)

GPU = [
    # One GPU
    Case("unet-io", "unet --workers 1", ("io",), steps=IO),
    Case("unet-workers-8", "unet --workers 8", ("io",), backends=TORCH, steps=IO),
    Case("unet-zlib", "unet --workers 6 --storage zlib", ("io",), steps=IO),
    Case("unet-raw", "unet --workers 6", ("io",), backends=TORCH, steps=IO),
    Case("unet-pageable", "unet --data cached-host --no-pin", ("io",)),
    Case("unet-pinned", "unet --data cached-host", ("io", "compute"), backends=TORCH),
    Case("unet-prefetch", "unet --data cached-host --prefetch-copies", ("compute",)),
    Case("unet-device", "unet --data cached-device", ("compute",)),
    Case("unet-fp32", "unet --data cached-device --precision fp32", ("compute",)),
    Case("unet-bf16", "unet --data cached-device --precision bf16", ("compute",), backends=TORCH),
    Case("unet-item", "unet --data cached-device --precision fp16 --item-every 1", ("compute",)),
    Case("unet-fp16", "unet --data cached-device --precision fp16", ("compute",), backends=TORCH),
    Case("gpt2-fp32", "gpt2 --data cached-device --precision fp32", ("compute",)),
    Case("gpt2-tf32", "gpt2 --data cached-device --precision tf32", ("compute",), backends=TORCH),
    Case("gpt2-bf16", "gpt2 --precision bf16", ("compute",)),
    Case("gpt2-fused", "gpt2 --precision bf16 --fused", ("compute",), backends=TORCH),
    Case("gpt2-compile", "gpt2 --precision bf16 --compile default", ("compute",)),
    Case("gpt2-recompute", "gpt2 --precision bf16 --recompute", ("compute",)),
    Case("gpt2-one", "gpt2 --precision bf16 --batch-size 1", ("overhead",)),
    Case(
        "gpt2-one-compile",
        "gpt2 --precision bf16 --batch-size 1 --compile reduce-overhead --fused",
        ("overhead", "compute"),
        backends=TORCH,
    ),
    Case("pointwise", "pointwise", ("compute",)),
    Case("pointwise-compile", "pointwise --compile default", ("compute",), backends=TORCH),
    Case("mlp", "tiny-mlp", ("overhead",)),
    Case("mlp-graphs", "tiny-mlp --cuda-graphs --fused", ("overhead", "compute")),
    Case("mlp-compile", "tiny-mlp --compile default", ("overhead",), backends=TORCH),
    Case("mlp-item", "tiny-mlp --item-every 1", ("overhead",)),
    Case("bert", "bert", ("compute",)),
    Case("bert-whole", "bert --accumulate 1", ("compute",), backends=TORCH),
    Case("resnet-io", "resnet50 --workers 2", ("io", "compute")),
    Case("resnet-workers-12", "resnet50 --workers 12", ("io", "compute", "mixed"), backends=TORCH),
    Case("resnet-device", "resnet50 --data cached-device", ("compute",)),
    # Two GPUs
    Case("wide2", "wide-mlp", ("communication",), 2),
    Case("wide2-alone", "wide-mlp --no-ddp", ("compute",), 2, backends=TORCH),
    Case(
        "unet2-wire",
        "unet --data cached-device --batch-size 2",
        ("communication",),
        2,
        environment=WIRE,
    ),
    Case(
        "unet2-few",
        "unet --data cached-device --batch-size 2",
        ("communication", "overhead", "compute", "mixed"),
        2,
        backends=TORCH,
    ),
    Case("unet2", "unet --data cached-device", ("compute",), 2),
    Case(
        "unet2-bucket",
        "unet --data cached-device --bucket-cap-mb 1000",
        ("compute",),
        2,
        backends=TORCH,
    ),
    Case(
        "unet2-uneven",
        "unet --data cached-device --batch-size 32 --uneven 1.6",
        ("compute",),
        2,
    ),
    Case(
        "unet2-even",
        "unet --data cached-device --batch-size 32",
        ("compute",),
        2,
        backends=TORCH,
    ),
    Case("gpt2x2-one", "gpt2 --precision bf16 --batch-size 1", ("overhead",), 2),
    Case("unet2-io", "unet --workers 1", ("io",), 2, steps=IO),
    Case(
        "gpt2x2-wire",
        "gpt2 --precision bf16 --batch-size 4",
        ("communication",),
        2,
        environment=WIRE,
    ),
    Case(
        "gpt2x2-accumulate",
        "gpt2 --precision bf16 --batch-size 16 --accumulate 4",
        ("communication", "compute"),
        2,
        environment=WIRE,
        backends=TORCH,
    ),
    # Four GPUs
    Case("wide4", "wide-mlp", ("communication",), 4),
    Case("unet4", "unet --data cached-device", ("compute",), 4),
    Case("gpt2x4", "gpt2 --precision bf16", ("compute",), 4),
]

GPU_ROWS = [
    Row(
        "unet-io",
        "one worker cuts and turns cubes far slower than the GPU trains",
        (
            Control("unet-workers-8", "8 workers", ("data-wait",)),
            Control("unet-device", "batch on the device", ("data-wait", "h2d-exposed")),
        ),
    ),
    Row(
        "unet-zlib",
        "every cube is decompressed by the CPU",
        (Control("unet-raw", "not compressed", ("data-wait",)),),
    ),
    Row(
        "unet-pageable",
        "604 MB a step from pageable memory, and the host waits for the copy",
        (
            Control("unet-pinned", "page-locked memory", ("h2d-pageable",)),
            Control("unet-prefetch", "page-locked, copied ahead", ("h2d-exposed", "host-overhead")),
        ),
    ),
    Row(
        "unet-device",
        "nothing but convolutions on tensor cores",
        (Control("unet-bf16", "bf16", ("lower-precision",)),),
    ),
    Row(
        "unet-fp32",
        "convolutions without tensor cores",
        (Control("unet-device", "TF32", ("tf32-off",)),),
    ),
    Row(
        "unet-item",
        "the loss is read in every step, and the gradient scaler looks for infinities",
        (Control("unet-fp16", "no .item()", ("synchronization", "host-overhead")),),
    ),
    Row(
        "gpt2-fp32",
        "matrices without tensor cores",
        (
            Control("gpt2-tf32", "TF32", ("tf32-off",)),
            Control("gpt2-bf16", "bf16", ("lower-precision",)),
        ),
    ),
    Row(
        "gpt2-tf32",
        "matrices on tensor cores, everything in 32 bits",
        (Control("gpt2-bf16", "bf16", ("lower-precision",)),),
    ),
    Row(
        "gpt2-bf16",
        "matrices on tensor cores",
        (
            Control("gpt2-fused", "fused optimizer", ("optimizer-launches",)),
            Control(
                "gpt2-compile",
                "compiled",
                ("unfused-kernels", "unaligned-matmul", "host-overhead"),
            ),
        ),
    ),
    Row(
        "gpt2-recompute",
        "activations computed twice",
        (Control("gpt2-bf16", "kept activations", ("recomputation",)),),
    ),
    Row(
        "gpt2-one",
        "one sample: kernels too short for the host",
        (
            Control(
                "gpt2-one-compile",
                "compiled with CUDA graphs, fused optimizer",
                ("host-overhead", "unfused-kernels", "unaligned-matmul", "optimizer-cost"),
            ),
        ),
    ),
    Row(
        "pointwise",
        "one operation per value that is read and written",
        (Control("pointwise-compile", "compiled", ("unfused-kernels",)),),
    ),
    Row(
        "mlp",
        "200 layers of width 64",
        (
            Control("mlp-graphs", "CUDA graphs, fused optimizer", ("host-overhead",)),
            Control("mlp-compile", "compiled", ("host-overhead", "unfused-kernels")),
        ),
    ),
    Row(
        "mlp-item",
        "tiny layers, and the loss is read in every step",
        (Control("mlp", "no .item()", ("synchronization", "host-overhead")),),
    ),
    Row(
        "bert",
        "four micro-batches an update",
        (Control("bert-whole", "one batch", ("host-overhead", "unfused-kernels")),),
    ),
    Row(
        "resnet-io",
        "two workers crop and recolour images",
        (
            Control("resnet-workers-12", "12 workers", ("data-wait",)),
            Control("resnet-device", "batch on the device", ("data-wait", "h2d-exposed")),
        ),
    ),
    Row(
        "wide2",
        "4.3 GB of gradients for 8 samples",
        (Control("wide2-alone", "no synchronisation", ("communication-exposed",)),),
    ),
    Row(
        "unet2-wire",
        "468 MB of gradients for 2 samples through sockets",
        (Control("unet2-few", "NVLink", ("communication-exposed",)),),
    ),
    Row(
        "unet2",
        "gradients travel while backward computes",
        (Control("unet2-bucket", "one bucket of 1000 MB"),),
    ),
    Row(
        "unet2-uneven",
        "rank 1 has 1.6 times the work, and rank 0 waits for it",
        (Control("unet2-even", "even batches", ("communication-skew",)),),
    ),
    Row("gpt2x2-one", "one sample on two ranks: the host is late, not the wire", ()),
    Row("unet2-io", "one worker a rank", ()),
    Row(
        "gpt2x2-wire",
        "498 MB of gradients through sockets",
        (
            Control(
                "gpt2x2-accumulate",
                "4 micro-batches of 4 samples, synchronised once",
                ("communication-exposed",),
            ),
        ),
    ),
    Row("wide4", "4.3 GB of gradients for 8 samples on each of four ranks", ()),
    Row("unet4", "gradients travel while backward computes, four ranks", ()),
    Row("gpt2x4", "gradients travel while backward computes, four ranks", ()),
]

SMALL = "--warmup 3 --calibrate 10 --active 6"
CPU = [
    Case(
        "cpu-unet-io",
        "unet --size tiny --storage zlib --augment-passes 16 --workers 0",
        ("io",),
        backends=TORCH,
        steps=SMALL,
    ),
    Case(
        "cpu-unet-cached",
        "unet --size tiny --data cached-host",
        ("compute",),
        backends=TORCH,
        steps=SMALL,
    ),
    Case(
        "cpu-wide2",
        "wide-mlp --size tiny --bucket-cap-mb 100",
        ("communication",),
        2,
        backends=TORCH,
        steps=SMALL,
    ),
    Case(
        "cpu-wide2-alone",
        "wide-mlp --size tiny --no-ddp",
        ("compute",),
        2,
        backends=TORCH,
        steps=SMALL,
    ),
]
CPU_ROWS = [
    Row(
        "cpu-unet-io",
        "cubes are decompressed and turned by the process that trains",
        (Control("cpu-unet-cached", "batch in memory", ("data-wait",)),),
    ),
    Row(
        "cpu-wide2",
        "more gradients than work, two processes",
        (Control("cpu-wide2-alone", "no synchronisation", ("communication-exposed",)),),
    ),
]
