"""A language model that is evaluated and saved after every fifth step."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from common import StepClock, device, options
from gpt import GPT, next_token_loss

EVERY = 5


def main() -> None:
    """Train."""
    given = options(__doc__, "host").parse_args()
    vocab, length, layers, width, batch = (
        (100, 16, 2, 64, 2) if given.tiny else (8000, 512, 8, 768, 16)
    )
    gpu = device()
    with gpu:
        model = GPT(vocab, length, layers, width, width // 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(vocab, (8, batch, length), device=gpu)
    clock = StepClock(given.steps, given.timed)
    with tempfile.TemporaryDirectory() as folder:
        for step in range(given.steps):
            inputs = tokens[step % len(tokens)]
            with torch.autocast(gpu.type, torch.bfloat16):
                loss = next_token_loss(model(inputs), inputs)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % EVERY == EVERY - 1 and not given.no_host:
                print(f"step {step}: loss {_evaluate(model, tokens):.3f}", flush=True)
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, Path(folder) / "checkpoint.pt")
            clock.tick()


@torch.no_grad()
def _evaluate(model: GPT, tokens: torch.Tensor) -> float:
    model.eval()
    with torch.autocast(tokens.device.type, torch.bfloat16):
        loss = sum(next_token_loss(model(batch), batch).item() for batch in tokens[:4]) / 4
    model.train()
    return float(loss)


if __name__ == "__main__":
    main()
