"""A rank of a training that hangs: SCENARIO RANK RANKS PORT FOLDER. Its dump is written to FOLDER.

What a user's program does is what it does here: the dump is taken by another thread while the main
one waits in a collective, as PyTorch's watchdog takes it.
"""

import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as recorder

scenario, rank, ranks, port, folder = sys.argv[1], *map(int, sys.argv[2:5]), Path(sys.argv[5])
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
recorder._dump_fr_trace()  # the first takes seconds
data, tensor = (dist.new_group(group_desc=name) for name in ("data", "tensor"))
gradients = torch.ones(8)


def train_step():
    dist.all_reduce(gradients)


def take_dump():
    time.sleep(0.5)
    temporary = folder / f".{rank}"
    temporary.write_bytes(recorder._dump_fr_trace())
    temporary.rename(folder / f"nccl_trace_rank_{rank}")


def hang():
    if scenario == "absent":
        if rank != 1:
            train_step()
    elif scenario == "circle":
        for group in (data, tensor) if rank == 0 else (tensor, data):
            dist.all_reduce(gradients, group=group)


for _ in range(3):
    train_step()
threading.Thread(target=take_dump, daemon=True).start()
hang()
time.sleep(600)  # until it is killed
