"""A training loop that times its own steps: `python loop.py OUT [--traceml]`."""

from __future__ import annotations

import json
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

STEPS, WIDTH, BATCH = 5000, 256, 32


def traced(model: torch.nn.Module) -> AbstractContextManager[object]:
    """A step, as TraceML's documentation has it; nothing without TraceML."""
    if "--traceml" not in sys.argv:
        return nullcontext()
    import traceml_ai

    return traceml_ai.trace_step(model)


def main() -> None:
    """Train, and leave what each step took."""
    if "--traceml" in sys.argv:
        import traceml_ai

        traceml_ai.init()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # what shrinks to such numbers takes twice as long
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()) for _ in range(8)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.randn(STEPS * BATCH, WIDTH))
    times = []
    try:
        before = time.perf_counter()
        for (batch,) in DataLoader(data, batch_size=BATCH, num_workers=1):
            with traced(model):
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()
            now = time.perf_counter()
            times.append((now - before) * 1e3)
            before = now
    finally:
        Path(sys.argv[1]).write_text(json.dumps(times))


if __name__ == "__main__":
    main()
