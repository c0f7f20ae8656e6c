"""The settings of a workload: what can be asked for, and whether it makes sense here.

Nothing in this file needs PyTorch, apart from looking at the machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

SIZES = ("tiny", "small", "full")
FULL_SIZE_BYTES = 40e9
"""Memory of a GPU on which `full` is the default size."""

SPECIAL = (
    "storage",
    "augment_passes",
    "augment_on",
    "cuda_graphs",
    "vocab",
    "sdpa",
    "memory_format",
    "recompute",
)
"""Settings that only some workloads have."""


class SettingError(Exception):
    """A setting that makes no sense for the workload or the machine."""


def explain(name: str, message: str) -> None:
    """What went wrong, in one line on standard error."""
    print(f"{name}: error: {message}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Workload:
    """What a script declares about itself.

    Args:
        batch_size: samples in a step of one rank, for each size.
        data: where batches come from unless `--data` says otherwise.
        accumulate: micro-batches in a step unless `--accumulate` says otherwise.
        accepts: which of the special settings mean something here.
        buffers: whether the model has buffers for DDP to broadcast.
    """

    name: str
    batch_size: Mapping[str, int]
    data: str = "disk"
    accumulate: int = 1
    accepts: frozenset[str] = frozenset()
    buffers: bool = False


@dataclass(frozen=True)
class Machine:
    """What this process sees of the machine, and its place among the ranks."""

    cpus: int = 1
    gpus: int = 0
    gpu_bytes: int = 0
    capability: tuple[int, int] = (0, 0)
    rank: int = 0
    ranks: int = 1
    local_rank: int = 0
    local_ranks: int = 1

    @classmethod
    def here(cls) -> Machine:
        """The machine that this process runs on."""
        import torch

        place = {
            field: int(os.environ.get(variable, default))
            for field, variable, default in (
                ("rank", "RANK", 0),
                ("ranks", "WORLD_SIZE", 1),
                ("local_rank", "LOCAL_RANK", 0),
                ("local_ranks", "LOCAL_WORLD_SIZE", 1),
            )
        }
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        if not torch.cuda.is_available():
            return cls(cpus=cpus or 1, **place)
        properties = torch.cuda.get_device_properties(0)
        return cls(
            cpus=cpus or 1,
            gpus=torch.cuda.device_count(),
            gpu_bytes=properties.total_memory,
            capability=(properties.major, properties.minor),
            **place,
        )


@dataclass(frozen=True)
class Settings:
    """All settings of a run, with their defaults filled in; the command line describes them."""

    workload: str
    size: str
    steps: int
    seed: int
    batch_size: int
    accumulate: int
    data: str
    data_folder: Path
    workers: int
    prefetch_factor: int | None
    pin: bool
    prefetch_copies: bool
    storage: str
    augment_passes: int
    augment_on: str
    inject: float
    precision: str
    compile: str
    fused: bool
    foreach: bool | None
    cuda_graphs: bool
    item_every: int
    recompute: bool
    ddp: bool
    uneven: float
    bucket_cap_mb: float | None
    broadcast_buffers: bool | None
    vocab: int | None
    sdpa: str | None
    memory_format: str

    def facts(self) -> dict[str, Any]:
        """What a recording keeps: neither the folder, which is private, nor the steps."""
        left_out = ("data_folder", "steps", "workload")
        return {name: value for name, value in asdict(self).items() if name not in left_out}


def parse(
    workload: Workload, arguments: Sequence[str] | None = None, machine: Machine | None = None
) -> tuple[Settings, Machine]:
    """The settings on the command line, checked; a bad one ends the process with exit code 2."""
    given = _parser(workload).parse_args(arguments)
    machine = machine or Machine.here()
    settings = _resolve(workload, given, machine)
    for problem in _problems(settings, given, workload, machine):
        explain(workload.name, problem)
        raise SystemExit(2)
    return settings, machine


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        explain(self.prog, message)
        raise SystemExit(2)


def _parser(workload: Workload) -> argparse.ArgumentParser:
    """Every workload takes every setting, so that a wrong one can be explained."""
    parser = _Parser(workload.name, allow_abbrev=False)
    switch = argparse.BooleanOptionalAction
    add = parser.add_argument
    add("--size", choices=SIZES, help="of model and data (default: what the hardware can carry)")
    add("--steps", type=_whole(1), default=20, help="steps when nothing is recorded (20)")
    add("--seed", type=_whole(0), default=0, help="of weights, data and crops (0)")
    add("--batch-size", type=_whole(1), help="samples in a step of one rank")
    add("--accumulate", type=_whole(1), help="split each batch in N, with one update for all")

    add = parser.add_argument_group("data").add_argument
    add("--data", choices=("disk", "cached-host", "cached-device"), default=workload.data)
    add("--data-folder", type=Path, help="for generated data (default: traceprobe in user cache)")
    add("--workers", type=_whole(0), help="loader processes; 0 loads in the training process")
    add("--prefetch-factor", type=_whole(1), help="batches that each worker holds ready (2)")
    add("--pin", action=switch, help="page-locked batches, copied asynchronously (on a GPU: yes)")
    add("--prefetch-copies", action="store_true", help="copy the next batch while this one trains")
    add("--storage", choices=("raw", "zlib"), help="of the data on disk (raw)")
    add("--augment-passes", type=_whole(0), help="times that a sample is augmented (1)")
    add("--augment-on", choices=("host", "gpu"), help="where samples are augmented (host)")
    add("--inject", type=_milliseconds, default=0.0, help="ms to sleep per sample; artificial")

    add = parser.add_argument_group("compute").add_argument
    add("--precision", choices=("fp32", "tf32", "bf16", "fp16"), help="(tf32 where there is one)")
    modes = ("off", "default", "reduce-overhead", "max-autotune")
    add("--compile", choices=modes, default="off", help="mode of torch.compile (off)")
    add("--sdpa", choices=("flash", "math"), help="attention kernel (PyTorch's choice)")
    formats = ("contiguous", "channels_last")
    add("--memory-format", choices=formats, help="of images and volumes (contiguous)")
    add("--vocab", type=_whole(2), help="entries of the embedding")
    add("--recompute", action="store_true", help="recompute activations in the backward pass")
    add("--cuda-graphs", action="store_true", help="replay forward and backward as CUDA graphs")
    add("--item-every", type=_whole(0), default=0, help="read the loss every N steps (0: never)")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--fused", action="store_true", help="optimizer as one kernel")
    either.add_argument("--foreach", action=switch, help="optimizer by lists, or by a loop")

    add = parser.add_argument_group("several ranks").add_argument
    add("--ddp", action=switch, default=True, help="average gradients between the ranks")
    add(
        "--uneven",
        type=_more_than_zero,
        default=1.0,
        help="batch of the last rank, times the others'",
    )
    add("--bucket-cap-mb", type=_more_than_zero, help="size of DDP's buckets")
    add("--broadcast-buffers", action=switch, help="DDP sends rank 0's buffers every step")
    return parser


def _resolve(workload: Workload, given: argparse.Namespace, machine: Machine) -> Settings:
    size = given.size or _size(machine)
    share = max(1, machine.cpus // machine.local_ranks - 1)
    workers = 0 if size == "tiny" else min(8, share)
    batch_size = given.batch_size or workload.batch_size[size]
    last = machine.rank == machine.ranks - 1 > 0
    chosen = {
        **vars(given),
        "size": size,
        "batch_size": round(batch_size * (given.uneven if last else 1)),
        "accumulate": given.accumulate or workload.accumulate,
        "data_folder": given.data_folder or _cache_folder(),
        "workers": workers if given.workers is None else given.workers,
        "pin": machine.gpus > 0 if given.pin is None else given.pin,
        "storage": given.storage or "raw",
        "augment_passes": 1 if given.augment_passes is None else given.augment_passes,
        "augment_on": given.augment_on or "host",
        "memory_format": given.memory_format or "contiguous",
        "precision": given.precision or ("tf32" if machine.capability >= (8, 0) else "fp32"),
    }
    if chosen["data"] != "disk":  # one batch is loaded, in the process itself
        chosen["workers"] = 0
    return Settings(workload=workload.name, **chosen)


def _size(machine: Machine) -> str:
    if machine.gpus == 0:
        return "tiny"
    return "full" if machine.gpu_bytes >= FULL_SIZE_BYTES else "small"


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "traceprobe"


def _problems(
    s: Settings, given: argparse.Namespace, workload: Workload, machine: Machine
) -> Iterator[str]:
    """What is wrong with the settings, the most basic first."""
    for name in SPECIAL:
        asked = getattr(given, name)
        if asked is not None and asked is not False and name not in workload.accepts:
            yield f"{_option(name)} means nothing for {workload.name}"
    if s.batch_size % s.accumulate:
        yield f"--batch-size {s.batch_size} cannot be split by --accumulate {s.accumulate}"
    if s.prefetch_factor and not s.workers:
        yield "--prefetch-factor needs worker processes: --workers 1 or more, and --data disk"
    if s.prefetch_copies and s.data == "cached-device":
        yield "--prefetch-copies has nothing to copy with --data cached-device"
    if s.augment_on == "gpu" and not s.augment_passes:
        yield "--augment-on gpu has nothing to do with --augment-passes 0"
    if s.batch_size < 1:
        yield f"--uneven {s.uneven:g} leaves the last rank no sample"
    if s.cuda_graphs and s.recompute:
        yield "--cuda-graphs does not combine with --recompute; try --compile reduce-overhead"
    if s.compile != "off" and s.cuda_graphs:
        yield "--cuda-graphs does not combine with --compile; try --compile reduce-overhead alone"
    if s.cuda_graphs and s.accumulate > 1:
        yield "--cuda-graphs does not combine with --accumulate: a replay overwrites gradients"
    yield from _problems_with_ranks(s, workload, machine)
    yield from _problems_with_gpu(s, machine) if machine.gpus else _problems_without_gpu(s)


def _problems_with_ranks(s: Settings, workload: Workload, machine: Machine) -> Iterator[str]:
    settings = {
        "--no-ddp": not s.ddp,
        "--bucket-cap-mb": s.bucket_cap_mb is not None,
        "--broadcast-buffers": s.broadcast_buffers is not None,
        "--uneven": s.uneven != 1,
    }
    for option in (name for name, used in settings.items() if used):
        if machine.ranks == 1:
            yield f"{option} needs several ranks; start the script with torchrun"
        elif option not in ("--no-ddp", "--uneven") and not s.ddp:
            yield f"{option} contradicts --no-ddp"
    if s.broadcast_buffers and not workload.buffers:
        yield f"--broadcast-buffers means nothing for {workload.name}: the model has no buffers"
    if machine.gpus and machine.local_rank >= machine.gpus:
        yield f"{machine.local_ranks} ranks on this machine, but {machine.gpus} visible GPU(s)"


def _problems_with_gpu(s: Settings, machine: Machine) -> Iterator[str]:
    if s.precision in ("tf32", "bf16") and machine.capability < (8, 0):
        yield f"--precision {s.precision} needs a GPU of compute capability 8.0 or later"
    if s.sdpa == "flash" and s.precision in ("fp32", "tf32"):
        yield f"--sdpa flash needs --precision bf16 or fp16 on a GPU, not {s.precision}"


def _problems_without_gpu(s: Settings) -> Iterator[str]:
    if s.cuda_graphs:
        yield "--cuda-graphs needs a CUDA GPU; none is visible"
    on_gpu = {
        "--pin": s.pin,
        "--prefetch-copies": s.prefetch_copies,
        "--augment-on gpu": s.augment_on == "gpu",
    }
    for option, used in on_gpu.items():
        if used:
            yield f"{option} needs a CUDA GPU; none is visible"
    if s.precision in ("tf32", "fp16"):
        yield f"--precision {s.precision} needs a CUDA GPU; on the CPU there are fp32 and bf16"
    if s.compile != "off" and not shutil.which(os.environ.get("CXX", "g++")):
        yield "--compile on the CPU needs a C++ compiler; install g++ or set CXX"


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _whole(lowest: int) -> Any:
    """An argparse type: a whole number that is at least `lowest`."""

    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < lowest:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {lowest}")
        return int(text)

    return number


def _positive(text: str, *, zero: bool) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (0 < value < float("inf") or (zero and value == 0)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return value


def _milliseconds(text: str) -> float:
    return _positive(text, zero=True)


def _more_than_zero(text: str) -> float:
    return _positive(text, zero=False)
