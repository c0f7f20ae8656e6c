"""What the memory of a GPU is for, in one step of a running program.

The last warm-up step is watched: the allocator keeps a history of what it hands out and gets back,
and the program says where its phases begin and end. The steps that are timed come later. A failure
here becomes a reason in the recording and never ends the run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from traceprobe.capture.machine.hardware import nvidia_smi
from traceprobe.capture.memory.allocation_log import AllocationLog, summarize_allocations

if TYPE_CHECKING:
    import torch

ENTRIES = 1_000_000
"""Allocations and releases that the allocator keeps of the step."""
TROUBLE = 200
"""Characters of an error's text."""


class MemoryMeasurement:
    """Measures a step and, where asked, simulates two.

    Args:
        model, optimizer: those of the loop.
        simulate: whether the loop may be given tensors without data.
    """

    def __init__(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, simulate: bool
    ) -> None:
        self._model, self._optimizer, self._simulate = model, optimizer, simulate
        self._facts: dict[str, Any] = describe_optimizer(optimizer)
        self._step: _Step | None = None

    def begin(self) -> None:
        """The step that is measured begins."""
        import torch

        if next(self._model.parameters()).device.type != "cuda":
            return
        try:
            self._step = _Step(self._model, self._optimizer)
        except Exception as error:
            self._facts["not_measured"] = _trouble(error)
            torch.cuda.memory._record_memory_history(enabled=None)

    def phase(self, name: str) -> Any:
        """A context manager around a phase of the step that is measured."""
        return nullcontext() if self._step is None else self._step.phase(name)

    def end(self, batch: Any) -> None:
        """The step has ended; `batch` is what it was given."""
        import torch

        if self._step is None:
            return
        try:
            self._facts["measured"] = self._step.account(batch)
            self._facts.update(_device())
        except Exception as error:
            self._facts["not_measured"] = _trouble(error)
        finally:
            torch.cuda.memory._record_memory_history(enabled=None)
            self._step = None

    def simulated(self, batch: Any) -> Iterator[tuple[Any, Any]]:
        """Batches without data for the loop, each with what makes its phases.

        None where there is nothing to compare with, or where the loop is not known to bear it.
        """
        if "measured" not in self._facts:
            return
        reason = (
            why_not_simulated(self._model) if self._simulate else "only of the built-in workloads"
        )
        if reason is not None:
            self._facts["not_predicted"] = reason
            return
        from traceprobe.capture.memory.step_simulation import StepSimulation

        simulation = StepSimulation(self._model, self._optimizer)
        for fake in simulation.steps(batch):
            yield fake, simulation.phase
        self._facts["predicted"] = simulation.result

    @property
    def facts(self) -> dict[str, Any] | None:
        """What a recording keeps; None without a GPU."""
        return self._facts if len(self._facts.keys() & {"measured", "not_measured"}) else None


class _Step:
    """The history of the allocator from now on, and what is on the device already."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        import torch
        from torch.utils._pytree import tree_leaves

        self._model = model
        self._marks: deque[tuple[int, Callable[[AllocationLog], None]]] = deque()
        torch.cuda.synchronize()
        known: dict[int, str] = {}
        state = tree_leaves(list(optimizer.state.values()))
        for part, tensors in (
            ("weights", [*model.parameters(), *model.buffers()]),
            ("gradients", [p.grad for p in model.parameters()]),
            ("optimizer_state", [t for t in state if isinstance(t, torch.Tensor)]),
        ):
            known |= dict.fromkeys(_places(tensors), part)
        self._before = [
            (address, nbytes, known.get(address, "held")) for address, nbytes in _blocks()
        ]
        torch.cuda.reset_peak_memory_stats()
        # Without stacks, which would cost more than the step; those of C++ cost already to prepare.
        torch.cuda.memory._record_memory_history(
            enabled="all", context=None, stacks="python", max_entries=ENTRIES
        )
        self._first = _events()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Note where a phase begins and ends, and which gradients there are after it."""
        self._mark(lambda log: log.enter_phase(name))
        try:
            yield
        finally:
            if name == "backward":
                gradients = _places(p.grad for p in self._model.parameters())
                self._mark(lambda log: log.set_parts(gradients, "gradients"))
            self._mark(AllocationLog.leave_phase)

    def _mark(self, tell: Callable[[AllocationLog], None]) -> None:
        """Note what the log is to be told after the events so far."""
        self._marks.append((_events() - self._first, tell))

    def account(self, batch: Any) -> dict[str, Any]:
        """The parts of the step, and the allocator's own peak beside them."""
        import torch
        from torch.utils._pytree import tree_leaves

        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated()
        history = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
        events = [e for e in history if e["action"] in ("alloc", "free_requested")]
        log = AllocationLog()
        inputs = set(_places(t for t in tree_leaves(batch) if isinstance(t, torch.Tensor)))
        for address, nbytes, part in self._before:
            part_of_block = "input" if part == "held" and address in inputs else part
            log.add_existing(address, nbytes, part_of_block)
        marks = self._marks.copy()
        for number, event in enumerate(events):
            while marks and marks[0][0] <= number:
                marks.popleft()[1](log)
            before = log.events
            if event["action"] == "alloc":
                log.allocate(event["addr"], event["size"])
            else:
                log.free(event["addr"])
            if log.events > before:
                log.times.append(event.get("time_us", 0) - events[0].get("time_us", 0))
        for _, tell in marks:
            tell(log)
        return {
            **summarize_allocations(log),
            "allocated_bytes": peak,
            "reserved_bytes": torch.cuda.memory_reserved(),
        }


def _events() -> int:
    """Allocations and releases so far in this process."""
    import torch

    counts = torch.cuda.memory_stats()
    return int(counts["allocation.all.allocated"] + counts["allocation.all.freed"])


def _blocks() -> Iterator[tuple[int, int]]:
    """Address and size, as it was asked for, of each block in use on the current device."""
    import torch

    device = torch.cuda.current_device()
    for segment in torch.cuda.memory_snapshot():
        address = segment["address"]
        for block in segment["blocks"]:
            if segment["device"] == device and block["state"] == "active_allocated":
                yield address, block.get("requested_size", block["size"])
            address += block["size"]


def _places(tensors: Any) -> list[int]:
    """Addresses of the storages of tensors on a GPU."""
    return [
        t.untyped_storage().data_ptr() for t in tensors if t is not None and t.device.type == "cuda"
    ]


def _device() -> dict[str, Any]:
    """Memory of the device, and what of it this process uses outside of the allocator.

    That is the CUDA context, with its kernels and libraries. The driver counts the whole device,
    so it is known only where nobody else is there.
    """
    import torch

    free, total = torch.cuda.mem_get_info()
    outside = total - free - torch.cuda.memory_reserved()
    here = torch.cuda.get_device_properties(torch.cuda.current_device())
    alone = _processes(str(getattr(here, "uuid", ""))) <= 1
    return {"device_bytes": total, "outside_bytes": outside if alone else None}


def _processes(device: str) -> int:
    """Processes that compute on a GPU; 0 where nobody says.

    Within a container the tool may see none of them, not even this one.

    Args:
        device: the UUID of the GPU; of all GPUs where it is empty.
    """
    lines = nvidia_smi("--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader") or []
    rows = (line.split(",") for line in lines if "," in line)
    return sum(device in gpu and pid.strip().isdigit() for gpu, pid in rows)


def describe_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Kind of the optimizer where PyTorch ships it, and how it goes through its parameters."""
    group = optimizer.param_groups[0]
    own = type(optimizer).__module__.startswith("torch.optim")
    ways = ("fused", "foreach")
    chosen = next((way for way in ways if group.get(way)), None)
    default = "for-loop" if group.get("foreach") is False else "foreach"
    return {
        "optimizer": type(optimizer).__name__ if own else None,
        "implementation": chosen or (default if own and "foreach" in group else None),
    }


def why_not_simulated(model: torch.nn.Module) -> str | None:
    """Why steps of a model cannot be simulated; None where they can."""
    kind = type(model).__name__
    if kind in ("DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule"):
        return f"a {kind} does not run on tensors without data"
    if any("forward" in vars(module) for module in model.modules()):
        return "its passes were captured as CUDA graphs"
    return None


def _trouble(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:TROUBLE]
