"""The trials of an ablation inside the training process: the same loop with parts taken out.

The loop stays the program's own. What it is fed changes, and whether DDP synchronises gradients.
The device is synchronised at the two ends of a trial only, so that steps overlap as in training,
and variants take turns, so that a machine that warms up or slows down does so for all of them.
"""

from __future__ import annotations

import gc
import json
import math
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from traceprobe.capture.ablation_plan import AblationPlan, RankTrials
from traceprobe.capture.batch_source import BatchSource, NoBatchesError
from traceprobe.capture.hardware import collect_environment, world_size
from traceprobe.capture.other_profilers import other_profilers
from traceprobe.capture.progress import DONE, report_state

LEAD_IN = 2
"""Steps before each trial: the allocator, the queues and DDP get used to the variant."""
PROBE = 3
"""Steps whose duration decides how many a trial has."""
FEWEST, MOST = 4, 2000
BUSY_STEPS = 6
_BARE = ("synthetic-no-comm", "synthetic-device", "synthetic-host")
"""Variants with the least in them first."""
_GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_COLLECTIVE = ("nccl", "rccl")


@dataclass(frozen=True)
class _Variant:
    """`batch` is what every step gets; None takes each from the loader."""

    name: str
    batch: Any = None
    trains: bool = True
    synchronizes: bool = True


class AblationSession:
    """Feeds a loop its trials; `steps` ends when all are done."""

    def __init__(self, plan: AblationPlan) -> None:
        self._plan = plan
        self._report = partial(report_state, plan.folder)
        self._described: dict[str, object] = {}
        self._seconds: dict[str, list[float]] = {}
        self._steps: dict[str, int] = {}
        self._absent: dict[str, str] = {}
        self._models: list[Any] = []
        self._collectives = False

    phases: None = None
    """Its steps have no phases."""

    def memory(self, model: object, optimizer: object) -> None:
        """What memory is for does not matter here."""

    def describe(self, described: dict[str, object]) -> None:
        """Facts about the workload, for the results."""
        self._described.update(described)

    def steps(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The batches of all trials, one after the other; none where the loader gives none."""
        with suppress(NoBatchesError):
            yield from self._run(BatchSource(loader))

    def _run(self, batches: BatchSource[Any]) -> Iterator[Any]:
        self._report("warming up")
        for _ in range(self._plan.warmup):
            yield batches.next()
        batch = batches.next()
        self._guess_samples(batch)
        variants = self._variants(batch)
        for variant in variants:
            yield from self._probe(variant, batches)
        for number in range(self._plan.count):
            self._report(f"trial {number + 1} of {self._plan.count}")
            first = number % len(variants)  # no variant always follows the same other
            for variant in (*variants[first:], *variants[:first]):
                steps = self._steps[variant.name]
                seconds = yield from self._trial(variant, batches, steps)
                self._seconds.setdefault(variant.name, []).append(seconds)
        busy_ns = yield from self._busy(variants, batches)
        self._finish(busy_ns)

    def _variants(self, batch: Any) -> list[_Variant]:
        """What can be measured of this program; the reasons for the rest go into the results."""
        self._models = _data_parallel()
        on_device = _moved(batch, _device(self._models))
        found = [_Variant("io", trains=False), _Variant("full")]
        if on_device is batch:
            self._absent["synthetic-host"] = "the loader's batches are on the device already"
        else:
            found.append(_Variant("synthetic-host", batch))
        if on_device is None:
            self._absent["synthetic-device"] = (
                "the batch holds nothing that could be copied to the device beforehand"
                if _has_gpu()
                else "there is no GPU"
            )
        else:
            found.append(_Variant("synthetic-device", on_device))
        if self._models:
            alone = found[-1].batch
            found.append(_Variant("full-no-comm", synchronizes=False))
            found.append(_Variant("synthetic-no-comm", alone, synchronizes=False))
        else:
            why = "the program has no DistributedDataParallel model"
            self._absent |= {"full-no-comm": why, "synthetic-no-comm": why}
        return found

    def _probe(self, variant: _Variant, batches: BatchSource[Any]) -> Iterator[Any]:
        """Find out how many steps a trial has. All ranks must come to the same number."""
        self._report(f"trying {variant.name}")
        seconds = yield from self._trial(variant, batches, PROBE)
        steps = min(max(math.ceil(self._plan.seconds * PROBE / seconds), FEWEST), MOST)
        if variant.batch is None and batches.workers > 1:
            # Workers deliver in turn: only whole turns have the mean pace.
            steps = math.ceil(steps / batches.workers) * batches.workers
        self._steps[variant.name] = _agreed(steps)

    def _trial(
        self, variant: _Variant, batches: BatchSource[Any], steps: int, lead_in: int = LEAD_IN
    ) -> Generator[Any, None, float]:
        """Run one trial as part of the loop; returns its seconds."""
        with _without_synchronization([] if variant.synchronizes else self._models):
            if variant.batch is None:
                batches.drain()
            else:
                batches.wait_for_workers()
            if variant.trains:
                for _ in range(lead_in):
                    yield batches.next() if variant.batch is None else variant.batch
            _synchronize()
            began = time.perf_counter()
            for _ in range(steps):
                batch = batches.next() if variant.batch is None else variant.batch
                if variant.trains:
                    yield batch
            _synchronize(together=False)
            return time.perf_counter() - began

    def _busy(
        self, variants: list[_Variant], batches: BatchSource[Any]
    ) -> Generator[Any, None, float | None]:
        """Busy time of the GPU in a step of training alone; durations survive a profiler."""
        if not _has_gpu():
            return None
        import torch

        self._report("measuring the GPU")
        known = {variant.name: variant for variant in variants}
        variant = next(known[name] for name in _BARE if name in known)
        yield from self._trial(variant, batches, LEAD_IN)
        other_profilers.claim(self._plan.folder, "torch")
        profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        with other_profilers.ours():
            profile.start()
        try:
            yield from self._trial(variant, batches, BUSY_STEPS, lead_in=0)
        finally:
            with other_profilers.ours():
                profile.stop()
            other_profilers.release()
        with tempfile.TemporaryDirectory(dir=self._plan.folder) as folder:
            path = Path(folder) / "busy.json"
            profile.export_chrome_trace(str(path))
            events = json.loads(path.read_bytes())["traceEvents"]
        # The barrier before the steps is one collective; those of the program come in every step.
        self._collectives = sum(map(_is_collective, events)) >= BUSY_STEPS
        return _union_ns(events) / BUSY_STEPS

    def _guess_samples(self, batch: Any) -> None:
        """Samples in a step, from the first tensor, where the program does not say."""
        first = next(iter(_tensors(batch)), None)
        if "samples_per_step" not in self._described and first is not None and first.dim():
            self._described["samples_per_step"] = first.shape[0] * world_size()

    def _finish(self, busy_ns: float | None) -> None:
        results = RankTrials(
            seconds=self._seconds,
            steps=self._steps,
            absent=self._absent,
            busy_ns=busy_ns,
            collectives=self._collectives,
            workload={**self._plan.workload, **self._described},
            **collect_environment(),
        )
        results.save(Path(self._plan.folder))
        self._report(DONE)


@contextmanager
def _without_synchronization(models: list[Any]) -> Iterator[None]:
    """DDP neither averages the gradients of these models nor sends their buffers."""
    names = ("require_backward_grad_sync", "require_forward_param_sync")
    before = [(m, name, getattr(m, name)) for m in models for name in names if hasattr(m, name)]
    for model, name, _ in before:
        setattr(model, name, False)
    try:
        yield
    finally:
        for model, name, value in before:
            setattr(model, name, value)


def _data_parallel() -> list[Any]:
    """The DDP models of this process, wherever the program keeps them."""
    import torch

    if world_size() == 1:
        return []
    kind = torch.nn.parallel.DistributedDataParallel
    # By type: asking a stranger's object for its class may run code of its own.
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]


def _has_gpu() -> bool:
    """Whether the program uses a GPU: on a machine that has one, not every program does."""
    import torch

    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())


def _synchronize(*, together: bool = True) -> None:
    """Wait for the device, and with `together` for the other ranks."""
    import torch
    import torch.distributed as dist

    if _has_gpu():
        torch.cuda.synchronize()
    if together and world_size() > 1:
        dist.barrier()
        if _has_gpu():
            torch.cuda.synchronize()


def _agreed(number: int) -> int:
    """The largest number that any rank has."""
    if world_size() == 1:
        return number
    import torch
    import torch.distributed as dist

    device = "cuda" if _has_gpu() and "nccl" in str(dist.get_backend()) else "cpu"
    value = torch.tensor(number, device=device)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return int(value.item())


def _tensors(batch: Any) -> Iterator[Any]:
    """The tensors of a nested batch."""
    import torch

    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, dict):
        for value in batch.values():
            yield from _tensors(value)
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            yield from _tensors(value)


def _device(models: list[Any]) -> Any:
    """Where the program trains: the device of its DDP model, else the current one."""
    import torch

    if not _has_gpu():
        return torch.device("cpu")
    used = {p.device for model in models for p in model.parameters() if p.is_cuda}
    return used.pop() if len(used) == 1 else torch.device("cuda", torch.cuda.current_device())


def _moved(batch: Any, device: Any) -> Any:
    """A batch with its tensors on the device: the same where they are, None where none could be."""
    tensors = list(_tensors(batch))
    if not _has_gpu() or not (tensors or hasattr(batch, "to")):
        return None
    if tensors and all(tensor.is_cuda for tensor in tensors):
        return batch
    return _to_device(batch, device)


def _to_device(batch: Any, device: Any) -> Any:
    if hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, dict):
        return type(batch)((key, _to_device(value, device)) for key, value in batch.items())
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):  # a named tuple
        return type(batch)(*(_to_device(value, device) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(_to_device(value, device) for value in batch)
    return batch


def _is_collective(event: dict[str, Any]) -> bool:
    return event.get("cat") == "kernel" and event["name"].lower().startswith(_COLLECTIVE)


def _union_ns(events: list[dict[str, Any]]) -> float:
    """Time in which at least one kernel or copy ran, collectives left out."""
    spans = sorted(
        (float(event["ts"]), float(event["ts"]) + float(event.get("dur", 0)))
        for event in events
        if event.get("cat") in _GPU_WORK and not _is_collective(event)
    )
    total, reach = 0.0, -math.inf
    for begin, end in spans:
        total += max(0.0, end - max(begin, reach))
        reach = max(reach, end)
    return 1e3 * total
