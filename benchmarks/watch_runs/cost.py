"""What watching costs: blocks of steps with and without a session, taking turns in one process.

    python cost.py --device cuda --blocks 20 --seconds 1 --out cost.json

The loader's `__next__` is wrapped in all blocks, which costs a microsecond; the rest of the
watching begins and ends with the block.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from traceprobe.capture.watch.watch_plan import WatchPlan


def main() -> None:
    """Measure as the arguments say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--width", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    plan = WatchPlan(folder=tempfile.mkdtemp())
    os.environ[plan.VARIABLE] = str(plan.save())
    import torch
    from torch import multiprocessing
    from torch.utils.data import DataLoader, dataloader
    from train import Loop, Numbers

    from traceprobe.capture.loader.loader_hook import install_loader_hook
    from traceprobe.capture.watch.watch_session import WatchSession

    torch.set_num_threads(1)
    install_loader_hook(dataloader)
    cuda = args.device == "cuda"
    width, depth, batch = (4096, 8, 2048) if cuda else (512, 3, 128)
    width = args.width or width
    slow_s = multiprocessing.Value("d", 0.0, lock=False)
    data = iter(DataLoader(Numbers(width, batch, slow_s), batch_size=None, num_workers=2))
    loop = Loop(args.device, width, depth)
    fixed = next(data)
    synchronize = torch.cuda.synchronize if cuda else (lambda: None)

    def block(steps: int, session: WatchSession | None) -> float:
        synchronize()
        began = time.perf_counter()
        for number in range(steps):
            next(data)
            loop.step(fixed)
            if session is not None:
                session.before_step(number)
        synchronize()
        return (time.perf_counter() - began) / steps * 1e3

    block(20, None)
    steps = max(int(args.seconds * 1e3 / block(50, None)), 10)
    rows = []
    for number in range(args.blocks):
        pair = {}
        for which in ("off", "on") if number % 2 else ("on", "off"):
            session = WatchSession(plan) if which == "on" else None
            pair[which] = block(steps, session)
            if session is not None:
                session.close()
        rows.append(pair)
    device = torch.cuda.get_device_name() if cuda else "CPU"
    args.out.write_text(
        json.dumps({"device": device, "torch": torch.__version__, "steps": steps, "blocks": rows})
    )


if __name__ == "__main__":
    main()
