"""A chain of element-wise operations on large tensors: bound by the bandwidth of the memory.

Each of them reads and writes the whole tensor, 256 MB at full size, for one operation per value.
`--compile default` fuses the chain.
"""

from __future__ import annotations

import torch
from torch import nn

from harness import Workload, parse, start
from rows import Rows
from traceprobe.capture import recorder

WORKLOAD = Workload(
    "pointwise",
    batch_size={"tiny": 64, "small": 64, "full": 64},
    data="cached-device",
)
WIDTH = {"tiny": 1 << 12, "small": 1 << 17, "full": 1 << 20}
ROWS = 64
OPERATIONS = 64
PER_LINK = 4


class Chain(nn.Module):
    """Links of four operations, each with a scale to train, so that there is a backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.Parameter(torch.ones(OPERATIONS // PER_LINK))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape, in and out."""
        for scale in self.scales:
            x = 4 * torch.sigmoid(x * scale) - 2
        return x


def loss_of(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    """Mean square of the output."""
    return model(rows).square().mean()


def main() -> None:
    """Train the scales for small outputs."""
    settings, machine = parse(WORKLOAD)
    with start(settings, machine) as run:
        record = recorder()
        model = run.prepare(Chain())
        optimizer = run.optimizer(torch.optim.SGD, model, lr=0.01)
        loader = run.loader(Rows.of(run, ROWS, WIDTH[settings.size]), endless=record.recording)
        record.describe(**run.facts())
        record.memory(model, optimizer)
        if record.recording:
            record.describe(**run.work(loss_of, [torch.empty(WIDTH[settings.size])]))

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
