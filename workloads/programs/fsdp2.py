"""FSDP2: a language model of 1.2 G parameters, sharded over the ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist
from common import StepClock, device, join_ranks, options
from gpt import GPT, next_token_loss
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def main() -> None:
    """Train."""
    parser = options(__doc__, "ranks", "wire")
    parser.add_argument("--batch-size", type=int, default=1, help="sequences a rank")
    given = parser.parse_args()
    vocab, length, layers, width = (100, 16, 2, 64) if given.tiny else (32000, 1024, 24, 2048)
    gpu = device()
    torch.manual_seed(0)
    with gpu:
        model = GPT(vocab, length, layers, width, width // 64)
        tokens = torch.randint(vocab, (8, given.batch_size, length))
    if not given.one_rank:
        join_ranks(silent=given.silent)
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in model.blocks:
            fully_shard(block, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    clock = StepClock(given.steps, given.timed)
    for step in range(given.steps):
        batch = tokens[step % len(tokens)]
        with torch.autocast(gpu.type, torch.bfloat16, enabled=given.one_rank):
            loss = next_token_loss(model(batch), batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        clock.tick()
    if not given.one_rank:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
