"""Many tiny layers: the GPU finishes each before the host has launched the next.

`--cuda-graphs` or `--compile reduce-overhead` launches them all at once.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import mse_loss

from harness import Workload, parse, start
from rows import Rows
from traceprobe.capture import recorder

WORKLOAD = Workload(
    "tiny-mlp",
    batch_size={"tiny": 16, "small": 16, "full": 16},
    data="cached-device",
    accepts=frozenset({"cuda_graphs"}),
)
LAYERS = {"tiny": 50, "small": 200, "full": 200}
WIDTH = 64
ROWS = 1024


def build(layers: int) -> nn.Module:
    """Linear layers with something between them."""
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(layers - 1)),
        nn.Linear(WIDTH, WIDTH),
    )


def loss_of(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    """How far the output is from the input."""
    return mse_loss(model(rows), rows)


def main() -> None:
    """Train the net to return its input."""
    settings, machine = parse(WORKLOAD)
    with start(settings, machine) as run:
        record = recorder()
        sample = torch.empty(settings.batch_size, WIDTH, device="meta")
        model = run.prepare(build(LAYERS[settings.size]), sample)
        optimizer = run.optimizer(torch.optim.Adam, model, lr=1e-3)
        loader = run.loader(Rows.of(run, ROWS, WIDTH), endless=record.recording)
        record.describe(**run.facts())
        record.memory(model, optimizer)
        if record.recording:
            record.describe(**run.work(loss_of, [torch.empty(WIDTH)]))

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
