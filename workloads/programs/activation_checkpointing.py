"""A language model that keeps no activations: the backward pass runs every layer again."""

from __future__ import annotations

import torch
from common import StepClock, device, options
from gpt import GPT, next_token_loss
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
)


def main() -> None:
    """Train."""
    given = options(__doc__).parse_args()
    vocab, length, layers, width, batch = (
        (100, 16, 2, 64, 2) if given.tiny else (32000, 1024, 12, 1024, 16)
    )
    gpu = device()
    with gpu:
        model = GPT(vocab, length, layers, width, width // 64)
    blocks = set(model.blocks)
    apply_activation_checkpointing(
        model, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda part: part in blocks
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(vocab, (8, batch, length), device=gpu)
    clock = StepClock(given.steps, given.timed)
    for step in range(given.steps):
        inputs = tokens[step % len(tokens)]
        with torch.autocast(gpu.type, torch.bfloat16):
            loss = next_token_loss(model(inputs), inputs)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        clock.tick()


if __name__ == "__main__":
    main()
