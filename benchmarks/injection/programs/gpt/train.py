"""Trains a small GPT on random tokens, with gradient accumulation."""

import argparse
import math
from contextlib import nullcontext

import numpy as np
import torch
from model import GPT

parser = argparse.ArgumentParser()
parser.add_argument("--n-layer", type=int, default=3)
parser.add_argument("--n-embd", type=int, default=96)
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--block-size", type=int, default=64)
parser.add_argument("--accumulate", type=int, default=2)
parser.add_argument("--max-iters", type=int, default=2000)
args = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
ctx = torch.autocast("cuda", dtype=torch.bfloat16) if device == "cuda" else nullcontext()
learning_rate, warmup_iters, grad_clip = 6e-4, 100, 1.0
torch.manual_seed(1337)
data = np.random.default_rng(0).integers(0, 512, 200_000).astype(np.uint16)


def get_batch():
    ix = torch.randint(len(data) - args.block_size, (args.batch_size,))
    x = torch.stack([torch.from_numpy(data[i : i + args.block_size].astype(np.int64)) for i in ix])
    y = torch.stack(
        [torch.from_numpy(data[i + 1 : i + 1 + args.block_size].astype(np.int64)) for i in ix]
    )
    if device == "cuda":
        x = x.pin_memory().to(device, non_blocking=True)
        y = y.pin_memory().to(device, non_blocking=True)
    return x, y


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / warmup_iters
    ratio = min(1.0, (it - warmup_iters) / args.max_iters)
    return 0.5 * learning_rate * (1.0 + math.cos(math.pi * ratio))


model = GPT(512, args.block_size, args.n_layer, 4, args.n_embd).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95))

X, Y = get_batch()
for iter_num in range(args.max_iters):
    lr = get_lr(iter_num)
    for group in optimizer.param_groups:
        group["lr"] = lr
    for _micro_step in range(args.accumulate):
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / args.accumulate
        X, Y = get_batch()
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if iter_num % 100 == 0:
        print(f"iter {iter_num}: loss {loss.item() * args.accumulate:.4f}")
