"""What all workloads share around their training loop: the process, its device, its settings.

A script declares a `Workload`, and in `main`:

    settings, machine = parse(WORKLOAD)
    with start(settings, machine) as run:
        model = run.prepare(Model())
        ...

The loop itself stays in the script; `Run` has the parts of it that settings change.
"""

from __future__ import annotations

import inspect
import itertools
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import data
from data import Batch
from settings import Machine, SettingError, Settings, Workload, explain, parse
from traceprobe.capture import work

__all__ = ["Batch", "Machine", "Run", "Settings", "Workload", "parse", "start"]

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
"""By the number of dimensions; others have no such layout."""
Loss = Callable[..., torch.Tensor]
"""Of a model and the tensors of a batch."""
KERNELS_TRIED = 4
"""By cuDNN for each convolution; its default of 10 takes a minute for 3-D convolutions."""
WARNING_SWITCH = "set_warn_on_accumulate_grad_stream_mismatch"
"""Of newer versions: they warn of what capturing a part of a model cannot avoid."""
UNTIMED = 2
"""Steps that the summary leaves out: they allocate, compile and build DDP's buckets."""


@contextmanager
def start(settings: Settings, machine: Machine) -> Iterator[Run]:
    """Set this process up, and end it as it should end.

    What a user can put right is one line on standard error and exit code 2.
    """
    try:
        _set_flags(settings)
        run = Run(settings, machine)
        yield run
        run.finish()
    except KeyboardInterrupt:
        _leave(130, machine)
    except (SettingError, OSError) as error:
        explain(settings.workload, str(error))
        _leave(2, machine)
    except Exception as error:
        message = _resource_trouble(error, settings)
        if message is None:
            traceback.print_exc()
            _leave(1, machine)
        explain(settings.workload, message)
        _leave(2, machine)


class Run:
    """One process of a training run."""

    def __init__(self, settings: Settings, machine: Machine) -> None:
        self.settings = settings
        self._machine = machine
        self._all_reduces: int | None = None
        self.device = torch.device("cpu")
        if machine.gpus:
            self.device = torch.device("cuda", machine.local_rank)
            torch.cuda.set_device(self.device)
        elif settings.size == "tiny":  # its operations are too small to be worth sharing out
            torch.set_num_threads(1)
        if machine.ranks > 1:
            backend, device = ("nccl", self.device) if machine.gpus else ("gloo", None)
            dist.init_process_group(backend, device_id=device)
        torch.manual_seed(settings.seed)
        scaled = settings.precision == "fp16"
        self._scaler = torch.amp.GradScaler(self.device.type, enabled=scaled)
        self._samples = self._count_samples()
        self._steps = 0
        self._limit: int | None = None
        self._began = 0.0
        self._loss = torch.zeros(())
        self._parameters = self._tensors = 0
        self._model: nn.Module = nn.Identity()
        self._optimizer: torch.optim.Optimizer | None = None

    # Before the loop

    def generated(self, name: str, write: Callable[[BinaryIO], None]) -> Path:
        """A file of the data folder; the first rank of each machine makes it, the others wait."""
        path = self.settings.data_folder / name
        if self._machine.local_rank == 0:
            data.write_once(path, write)
        if self._machine.ranks > 1:
            dist.barrier()
        return path

    def loader(self, dataset: torch.utils.data.Dataset[Batch], *, endless: bool) -> Iterable[Batch]:
        """Batches of the dataset: without end for a recording, else as many as `--steps`."""
        machine = self._machine
        sample_bytes = sum(tensor.nbytes for tensor in dataset[0])
        if sample_bytes * self.settings.batch_size > _memory_bytes():
            raise SettingError(_too_large(self.settings, "host memory"))
        batches = data.loader(dataset, self.settings, machine.rank, machine.ranks, self.device)
        self._began = time.perf_counter()
        if endless:
            return batches
        self._limit = self.settings.steps
        return itertools.islice(batches, self._limit)

    def prepare(self, model: nn.Module, sample: torch.Tensor | None = None) -> nn.Module:
        """Put a model on the device and wrap it as the settings ask: graphs, DDP, compilation.

        `sample` is like a batch, on the meta device; CUDA graphs are captured in its shape.
        """
        settings = self.settings
        model = model.to(self.device)
        self._parameters = sum(p.numel() for p in model.parameters())
        self._tensors = sum(1 for _ in model.parameters())
        for parameter in model.parameters():
            parameter.data = self._in_layout(parameter.data)
        if settings.cuda_graphs and sample is not None:
            with self.autocast():
                model = torch.cuda.make_graphed_callables(
                    model, (torch.zeros_like(sample, device=self.device),)
                )
        if self._machine.ranks > 1 and settings.ddp:
            devices = [self.device] if self._machine.gpus else None
            model = DistributedDataParallel(model, device_ids=devices, **_ddp_options(settings))
            self._all_reduces = all_reduces(model)
        if settings.compile != "off":
            # The key of a cached graph leaves out some settings, such as the kind of attention.
            torch.compiler.config.force_disable_caches = True
            mode = None if settings.compile == "default" else settings.compile
            model = torch.compile(model, mode=mode)
        self._model = model
        return model

    def optimizer(
        self, kind: type[torch.optim.Optimizer], model: nn.Module, **options: Any
    ) -> torch.optim.Optimizer:
        """An optimizer of all parameters, in the implementation that the settings ask for."""
        if self.settings.fused:
            options["fused"] = True
        elif self.settings.foreach is not None:
            options["foreach"] = self.settings.foreach
        self._optimizer = kind(model.parameters(), **options)
        return self._optimizer

    def facts(self, tokens_per_sample: int = 0) -> dict[str, Any]:
        """What a recording says of this run; rates count all ranks together."""
        samples = self._samples
        found: dict[str, Any] = {
            "name": self.settings.workload,
            "settings": self.settings.facts(),
            "batch_size": self.settings.batch_size,
            "parameters": self._parameters,
            "parameter_tensors": self._tensors,
            "samples_per_step": samples,
            "ranks": self._machine.ranks,
            "device": self.device.type,
        }
        if tokens_per_sample:
            found["tokens_per_step"] = samples * tokens_per_sample
        if self._all_reduces is not None:
            found["predicted_all_reduces_per_step"] = self._all_reduces
        if self.settings.inject:
            found.update(injected=True, injected_ms_per_sample=self.settings.inject)
        return found

    def work(
        self, loss: Loss, sample: Sequence[torch.Tensor], formula: int | None = None
    ) -> dict[str, Any]:
        """What a step computes and moves, for a recording.

        Args:
            loss: of the model and a micro-batch, as in the loop.
            sample: of the data set, of which only shapes and types count.
            formula: operations of a sample by a formula, to hold the count against.
        """
        settings = self.settings
        count = settings.batch_size // settings.accumulate
        shapes = [torch.empty((count, *t.shape), dtype=t.dtype, device="meta") for t in sample]
        batch = [self._in_layout(tensor) for tensor in shapes]

        def autocast_loss(model: nn.Module, *batch: torch.Tensor) -> torch.Tensor:
            with self.autocast():
                return loss(model, *batch)

        found = work(
            self._model,
            autocast_loss,
            *batch,
            optimizer=self._optimizer,
            micro_batches=settings.accumulate,
        )
        if "work" in found:  # the batches of the ranks may differ
            own = sum(
                sum(found["work"][p]["model_flops"].values()) for p in ("forward", "backward")
            )
            found["flops_per_step"] = own * self._samples // settings.batch_size
            if formula is not None:
                found["flops_per_step_by_formula"] = formula * self._samples
        return found

    def _in_layout(self, tensor: torch.Tensor) -> torch.Tensor:
        """An image, a volume or a weight of their convolutions in the layout that is asked for."""
        layout = CHANNELS_LAST.get(tensor.dim())
        if self.settings.memory_format == "contiguous" or layout is None:
            return tensor
        return tensor.contiguous(memory_format=layout)

    def _count_samples(self) -> int:
        """Samples of all ranks in a step; the batch of the last may differ."""
        count = torch.tensor(self.settings.batch_size, device=self.device)
        if self._machine.ranks > 1:
            dist.all_reduce(count)
        return int(count.item())

    # In the loop

    def to_device(self, batch: Batch) -> Batch:
        """Copy a batch to the device; the host does not wait if the batch is page-locked."""
        copied = (t.to(self.device, non_blocking=self.settings.pin) for t in batch)
        return tuple(self._in_layout(tensor) for tensor in copied)

    def parts(self, model: nn.Module, batch: Batch) -> Iterator[Batch]:
        """Micro-batches of a batch; DDP averages gradients in the backward pass of the last."""
        count = self.settings.accumulate
        pieces = zip(*(tensor.chunk(count) for tensor in batch), strict=True)
        for number, piece in enumerate(pieces, 1):
            local = number < count and hasattr(model, "no_sync")
            with model.no_sync() if local else nullcontext():
                yield piece

    def autocast(self) -> torch.autocast:
        """Lower precision where it is safe, if the settings ask for it."""
        dtype = DTYPES.get(self.settings.precision)
        return torch.autocast(
            self.device.type,
            dtype=dtype or torch.bfloat16,
            enabled=dtype is not None,
            cache_enabled=not self.settings.cuda_graphs,
        )

    def watch(self, loss: torch.Tensor) -> None:
        """Keep the loss; with `--item-every`, read it now, for which the host waits."""
        self._loss = loss.detach()
        every = self.settings.item_every
        if every and self._steps % every == 0:
            loss.item()

    def backward(self, loss: torch.Tensor) -> None:
        """Gradients of a micro-batch, scaled so that the parts of a batch make its mean."""
        self._scaler.scale(loss / self.settings.accumulate).backward()

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """Change the weights, drop the gradients, count the step."""
        self._scaler.step(optimizer)
        self._scaler.update()
        optimizer.zero_grad()
        self._steps += 1
        if self._limit is not None and self._steps == min(UNTIMED, self._limit - 1):
            self._synchronize()
            self._began = time.perf_counter()

    # After the loop

    def finish(self) -> None:
        """Print the summary of a run that was not recorded, and leave the process group."""
        if self._limit is not None:
            self._synchronize()
            if self._machine.rank == 0:
                print(self._summary())
        if dist.is_initialized():
            dist.destroy_process_group()

    def _summary(self) -> str:
        s, machine = self.settings, self._machine
        timed = max(1, self._steps - UNTIMED) if self._steps > 1 else 1
        seconds = (time.perf_counter() - self._began) / timed
        rate = self._samples / seconds
        ranks = f" on each of {machine.ranks} ranks" if machine.ranks > 1 else ""
        injected = f", with an artificial delay of {s.inject:g} ms a sample" if s.inject else ""
        return (
            f"{s.workload}: {self._steps} steps of {s.batch_size} samples{ranks}, "
            f"{seconds * 1e3:.2f} ms each, {rate:,.1f} samples/s, "
            f"loss {self._loss.item():.4f} ({s.size}, {self.device.type}, {s.precision}, "
            f"{self._parameters:,} parameters{injected})"
        )

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def _set_flags(settings: Settings) -> None:
    """Flags of the process that decide which kernels run."""
    tf32 = settings.precision != "fp32"
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.benchmark_limit = KERNELS_TRIED
    if settings.cuda_graphs and hasattr(torch.autograd.graph, WARNING_SWITCH):
        getattr(torch.autograd.graph, WARNING_SWITCH)(False)
    if settings.sdpa is not None:
        torch.backends.cuda.enable_flash_sdp(settings.sdpa == "flash")
        torch.backends.cuda.enable_math_sdp(settings.sdpa == "math")
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        torch.backends.cuda.enable_cudnn_sdp(False)


def all_reduces(model: DistributedDataParallel) -> int:
    """How many buckets, and so all-reduces per step, DDP makes of a model's gradients.

    DDP fills buckets in the order in which backward makes the gradients, which is about the reverse
    of the parameters'. The first bucket is small, so that communication starts early, unless a size
    was asked for (in releases that remember whether it was).
    """
    parameters = [p for p in model.parameters() if p.requires_grad][::-1]
    limit = model.bucket_bytes_cap
    by_default = getattr(model, "bucket_bytes_cap_default", True)
    first = dist._DEFAULT_FIRST_BUCKET_BYTES if by_default else limit
    buckets, _ = dist._compute_bucket_assignment_by_size(parameters, [first, limit])
    return len(buckets)


def _ddp_options(settings: Settings) -> dict[str, Any]:
    """DDP's options under the names that this version of PyTorch has for them."""
    options: dict[str, Any] = {}
    if settings.bucket_cap_mb is not None:
        options["bucket_cap_mb"] = settings.bucket_cap_mb
    if settings.broadcast_buffers is not None:
        known = inspect.signature(DistributedDataParallel.__init__).parameters
        newer, older = "forward_sync_buffers", "broadcast_buffers"
        options[newer if newer in known else older] = settings.broadcast_buffers
    return options


def _resource_trouble(error: Exception, settings: Settings) -> str | None:
    """Lack of memory or of a worker, said plainly; None for anything else."""
    said = str(error)
    allocations = ("can't allocate memory", "out of memory", "STATUS_ALLOC_FAILED")
    if isinstance(error, torch.OutOfMemoryError):
        return _too_large(settings, "GPU memory")
    if isinstance(error, MemoryError) or any(text in said for text in allocations):
        return _too_large(settings, "memory")
    if "DataLoader worker" in said and ("killed" in said or "exited" in said):
        return f"a loader process died ({said.splitlines()[0]}); try fewer --workers, or 0"
    return None


def _too_large(settings: Settings, memory: str) -> str:
    return (
        f"out of {memory} with --batch-size {settings.batch_size} at --size {settings.size}; "
        "make either smaller, or split the batch with --accumulate"
    )


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _leave(code: int, machine: Machine) -> NoReturn:
    """End a failed process.

    One of several ranks goes at once: an orderly end would wait for the others, which wait for it.
    """
    if machine.ranks == 1:
        raise SystemExit(code)
    for worker in multiprocessing.active_children():
        worker.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
