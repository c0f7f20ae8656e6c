"""A language model whose optimizer runs on the CPU, on a copy of the parameters there."""

from __future__ import annotations

import torch
from common import StepClock, device, options
from gpt import GPT, next_token_loss


def main() -> None:
    """Train."""
    given = options(__doc__, "host").parse_args()
    vocab, length, layers, width, batch = (
        (100, 16, 2, 64, 2) if given.tiny else (8000, 512, 12, 768, 32)
    )
    gpu = device()
    with gpu:
        model = GPT(vocab, length, layers, width, width // 64)
    parameters = list(model.parameters())
    offload = gpu.type == "cuda" and not given.no_host
    masters = [p.detach().cpu().pin_memory() for p in parameters] if offload else parameters
    for master in masters:
        master.grad = torch.zeros_like(master, pin_memory=offload)
    optimizer = torch.optim.AdamW(masters, lr=1e-4, fused=True)
    tokens = torch.randint(vocab, (8, batch, length), device=gpu)
    clock = StepClock(given.steps, given.timed)
    for step in range(given.steps):
        inputs = tokens[step % len(tokens)]
        with torch.autocast(gpu.type, torch.bfloat16):
            loss = next_token_loss(model(inputs), inputs)
        model.zero_grad()
        loss.backward()
        if offload:
            for master, parameter in zip(masters, parameters, strict=True):
                master.grad.copy_(parameter.grad, non_blocking=True)
            torch.cuda.synchronize()
        optimizer.step()
        if offload:
            with torch.no_grad():
                for master, parameter in zip(masters, parameters, strict=True):
                    parameter.copy_(master, non_blocking=True)
        clock.tick()


if __name__ == "__main__":
    main()
