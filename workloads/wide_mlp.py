"""Few, huge linear layers and small batches: with several ranks, bound by averaging gradients.

At full size 1.07 billion parameters: each step, 4.3 GB of gradients for a few milliseconds of
computing. `--no-ddp` or a batch that is 64 times larger turns it into a compute-bound run.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import mse_loss

from harness import Workload, parse, start
from rows import Rows
from traceprobe.capture import recorder

WORKLOAD = Workload(
    "wide-mlp",
    batch_size={"tiny": 8, "small": 8, "full": 8},
    data="cached-device",
)
WIDTH = {"tiny": 512, "small": 4096, "full": 16384}
LAYERS = 4
ROWS = 256


def build(width: int) -> nn.Module:
    """Linear layers with something between them."""
    layers: list[nn.Module] = [nn.Linear(width, width)]
    for _ in range(LAYERS - 1):
        layers += [nn.ReLU(), nn.Linear(width, width)]
    return nn.Sequential(*layers)


def loss_of(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    """How far the output is from the input."""
    return mse_loss(model(rows), rows)


def main() -> None:
    """Train the net to return its input."""
    settings, machine = parse(WORKLOAD)
    with start(settings, machine) as run:
        width = WIDTH[settings.size]
        record = recorder()
        model = run.prepare(build(width))
        optimizer = run.optimizer(torch.optim.SGD, model, lr=0.01)
        loader = run.loader(Rows.of(run, ROWS, width), endless=record.recording)
        record.describe(**run.facts())
        record.memory(model, optimizer)
        if record.recording:
            record.describe(**run.work(loss_of, [torch.empty(width)]))

        for batch in record.steps(loader):
            with record.phase("h2d"):
                batch = run.to_device(batch)
            for (rows,) in run.parts(model, batch):
                with record.phase("forward"), run.autocast():
                    loss = loss_of(model, rows)
                    run.watch(loss)
                with record.phase("backward"):
                    run.backward(loss)
            with record.phase("optimizer"):
                run.update(optimizer)


if __name__ == "__main__":
    main()
