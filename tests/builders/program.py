"""A program played call by call: what the host does next, and when the GPU gets to it.

A scenario lays rows out by hand; here the host's clock and the streams advance by themselves, so
that a test can say what a training loop does and no more. Times are integer nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.builders import memory
from tests.builders.loop import LOADER
from tests.builders.scenario import AUTOGRAD, COMM_STREAM, STREAM, Process, Script
from traceprobe.model.events import Trace

CALL_NS = 5_000
LATENCY_NS = 4_000
BATCH = 4_000_000
"""Bytes of a batch."""
UPDATE = "void at::native::multi_tensor_apply_kernel<AdamFunctor<float>>(int)"


class Program:
    """One process. Calls are made by the main thread unless another one is named."""

    def __init__(self, process: Process | None = None, *, start: int = 1_000_000) -> None:
        self.script = Script(process)
        self.now = start
        self._free: dict[int, int] = {}

    @property
    def main(self) -> int:
        """The main thread."""
        return self.script.process.pid

    def _launch(self, kind: str, ns: int, stream: int, **columns: Any) -> None:
        call = self.now
        self.now += CALL_NS
        begin = max(self._free.get(stream, 0), call + LATENCY_NS)
        self._free[stream] = begin + ns
        self.script.op(kind, begin, begin + ns, (call, self.now), stream=stream, **columns)

    def kernel(
        self,
        name: str = "gemm",
        ns: int = 10_000,
        *,
        thread: int | None = None,
        stream: int = STREAM,
        operator: str | None = None,
    ) -> Program:
        """Launch a kernel; `operator` is the CPU operator that does."""
        before = self.now
        self._launch("kernel", ns, stream, name=name, thread=thread)
        if operator is not None:
            self.script.operator(operator, before - 500, self.now + 500, thread=thread)
        return self

    def kernels(self, names: Sequence[str], *, backward: bool = False, ns: int = 10_000) -> Program:
        """Kernels one after the other; those of a backward pass on the thread of autograd."""
        for name in names:
            self.kernel(name, ns, thread=AUTOGRAD if backward else None)
        return self

    def collective(self, ns: int) -> Program:
        """Launch an all-reduce, which takes so long with its waits for others."""
        self._launch("comm", ns, COMM_STREAM)
        return self

    def copy_in(self, size: int = BATCH, ns: int = 20_000) -> Program:
        """Copy a batch to the device."""
        self._launch("h2d", ns, STREAM, bytes=size)
        return self

    def copy_out(self, size: int, ns: int = 5_000) -> Program:
        """Copy results to the host, and wait for them."""
        self._launch("d2h", ns, STREAM, bytes=size)
        return self.wait()

    def wait(self) -> Program:
        """Wait until the GPU has caught up."""
        begin, self.now = self.now, max([self.now + 1_000, *self._free.values()])
        self.script.call("cudaStreamSynchronize", begin, self.now)
        return self

    def sleep(self, ns: int) -> Program:
        """Do nothing that a profiler records."""
        self.now += ns
        return self

    @contextmanager
    def range(self, name: str, thread: int | None = None) -> Iterator[None]:
        """A range around what is done meanwhile."""
        begin = self.now
        yield
        self.script.range(name, begin, self.now, thread=thread)

    def trace(self, **metadata: Any) -> Trace:
        """The program as a trace."""
        return memory.trace(self.script.build(), **metadata)


def program_of_steps(
    extra: Callable[[Program, int], object],
    count: int = 16,
    *,
    waits: Callable[[int], int] | None = None,
    process: Process | None = None,
) -> Program:
    """Steps of 2 ms, kept busy by the GPU.

    Args:
        extra: what step k does besides.
        waits: ns that step k waits for its loader.
    """
    program = Program(process)
    for k in range(count):
        with program.range(f"step {k}"):
            with program.range(LOADER):
                program.sleep(waits(k) if waits else 20_000)
            program.copy_in()
            program.kernels([f"forward_{i}" for i in range(6)], ns=150_000)
            program.kernels([f"backward_{i}" for i in range(6)], ns=150_000, backward=True)
            program.kernel(UPDATE, 100_000).wait()
            extra(program, k)
    return program


def evaluate_and_save(program: Program, k: int) -> None:
    """Every fifth step: an evaluation of 3 ms, and a checkpoint that takes 10 ms to copy."""
    if k % 5 == 4:
        program.kernels([f"forward_{i}" for i in range(20)], ns=150_000)
        program.copy_out(500_000_000, 10_000_000)
