"""The 3-D U-Net of the SC22 tutorial "Deep Learning at Scale": from dark matter to gas.

It maps cubes of four channels, cut from a simulated box and turned at random, to five channels. By
default it is bound by its loader, which does real work: cut, turn and copy 9 MB per sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.functional import l1_loss

import volume
from harness import Batch, Run, Workload, parse, start
from traceprobe.capture import recorder
from volume import INPUTS, TARGETS, CompressedBox, RawBox, Rotations

WORKLOAD = Workload(
    "unet",
    batch_size={"tiny": 4, "small": 8, "full": 64},
    accepts=frozenset({"storage", "augment_passes", "augment_on", "cuda_graphs", "memory_format"}),
)


@dataclass(frozen=True)
class Size:
    """Width of the first level, number of levels, side of a cube and of the box it is cut from."""

    width: int
    levels: int
    cube: int
    box: int


SIZES = {"tiny": Size(8, 4, 16, 48), "small": Size(16, 5, 32, 128), "full": Size(64, 6, 64, 256)}


class UNet(nn.Module):
    """Each level halves the side; the way up doubles it, and joins what the way down had there."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        widths = [min(size.width << level, 8 * size.width) for level in range(size.levels)]
        form = {"kernel_size": 4, "stride": 2, "padding": 1}
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for i, o in zip([INPUTS, *widths], widths, strict=False):
            self.down.append(nn.Sequential(nn.Conv3d(i, o, **form), nn.LeakyReLU(0.01)))
        for level in reversed(range(size.levels)):
            joined = 1 if level == size.levels - 1 else 2
            out, last = (widths[level - 1], nn.ReLU()) if level else (TARGETS, nn.Tanh())
            up = nn.ConvTranspose3d(joined * widths[level], out, **form)
            self.up.append(nn.Sequential(up, last))
        for parameter in self.parameters():
            if parameter.dim() == 1:
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Batch × channel × cube, in and out."""
        passed = []
        for down in self.down:
            x = down(x)
            passed.append(x)
        x = self.up[0](passed.pop())
        for up in self.up[1:]:
            x = up(torch.cat((x, passed.pop()), dim=1))
        return x


class Cubes(torch.utils.data.Dataset[Batch]):
    """Cubes from random places of a box, turned `passes` times at random.

    Args:
        raw: hand out the whole cube as it lies in the box, and how it is to be turned. Nothing is
            copied then before the cubes are put together into a batch.
    """

    def __init__(
        self, box: RawBox | CompressedBox, size: Size, passes: int, seed: int, *, raw: bool = False
    ) -> None:
        self._box, self._size, self._passes, self._seed = box, size, passes, seed
        self._raw = raw

    def __getitem__(self, number: int) -> Batch:
        source = np.random.default_rng((self._seed, number))
        side = self._size.cube
        corner = source.integers(self._size.box - side, size=3, endpoint=True)
        cube = self._box.cut(tuple(corner.tolist()), side)
        turns = source.integers(len(volume.ROTATIONS), size=self._passes)
        if self._raw:
            return torch.from_numpy(cube), torch.from_numpy(turns)
        for turn in turns:
            cube = volume.rotate(cube, turn)
        sample = torch.from_numpy(cube if self._passes else np.copy(cube))
        return sample[:INPUTS], sample[INPUTS:]


def dataset(run: Run, size: Size) -> Cubes:
    """The training data in the storage that is asked for; made on first use."""
    settings = run.settings
    name = f"unet-box{size.box}-seed{settings.seed}"
    raw = run.generated(f"{name}.npy", lambda f: volume.write_raw(f, size.box, settings.seed))
    box: RawBox | CompressedBox = RawBox(raw)
    if settings.storage == "zlib":
        block = size.cube // 4
        path = run.generated(f"{name}-zlib{block}", lambda f: volume.write_blocks(f, raw, block))
        box = CompressedBox(path, size.box, block)
    on_gpu = settings.augment_on == "gpu"
    return Cubes(box, size, settings.augment_passes, settings.seed, raw=on_gpu)


def loss_of(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean distance of the gas from what it should be."""
    return l1_loss(model(inputs), targets)


def main() -> None:
    """Train."""
    settings, machine = parse(WORKLOAD)
    with start(settings, machine) as run:
        size = SIZES[settings.size]
        record = recorder()
        shapes = [(channels, size.cube, size.cube, size.cube) for channels in (INPUTS, TARGETS)]
        sample = [torch.empty(shape, device="meta") for shape in shapes]
        inputs = torch.empty((settings.batch_size, *shapes[0]), device="meta")
        model = run.prepare(UNet(size), inputs)
        optimizer = run.optimizer(torch.optim.Adam, model, lr=2e-4)
        loader = run.loader(dataset(run, size), endless=record.recording)
        record.describe(**run.facts())
        record.memory(model, optimizer)
        if record.recording:
            record.describe(**run.work(loss_of, sample))
        turned = Rotations(size.cube, run.device) if settings.augment_on == "gpu" else None

        for batch in record.steps(loader):
            with record.phase("h2d"):
                batch = run.to_device(batch)
                if turned is not None:
                    batch = turned(*batch).split((INPUTS, TARGETS), dim=1)
            for inputs, targets in run.parts(model, batch):
                with record.phase("forward"), run.autocast():
                    loss = loss_of(model, inputs, targets)
                    run.watch(loss)
                with record.phase("backward"):
                    run.backward(loss)
            with record.phase("optimizer"):
                run.update(optimizer)


if __name__ == "__main__":
    main()
