"""Accelerate: BERT, with the gradients of four small batches for one update."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from common import StepClock, options
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification

ACCUMULATE = 4


def main() -> None:
    """Train."""
    given = options(__doc__, "loading").parse_args()
    length, batch, layers, width = (16, 2, 2, 64) if given.tiny else (128, 8, 12, 768)
    accelerator = Accelerator(
        gradient_accumulation_steps=ACCUMULATE,
        mixed_precision="bf16" if torch.cuda.is_available() else "no",
    )
    config = BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        intermediate_size=4 * width,
    )
    model = BertForSequenceClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=1000)
    samples = ACCUMULATE * batch * given.steps
    data = TensorDataset(
        torch.randint(config.vocab_size, (samples, length)), torch.randint(2, (samples,))
    )
    loader = DataLoader(data, batch, shuffle=True, num_workers=0 if given.tiny else 2)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    batches = iter(loader)
    if given.no_loading:
        batches = iter([next(batches)] * (ACCUMULATE * given.steps))
    clock = StepClock(given.steps, given.timed)
    model.train()
    for tokens, labels in batches:
        with accelerator.accumulate(model):
            loss = model(input_ids=tokens, labels=labels).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            clock.tick()


if __name__ == "__main__":
    main()
