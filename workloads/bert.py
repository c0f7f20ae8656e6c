"""BERT-large: guess masked tokens of sequences of 512, gradients accumulated over micro-batches.

`--accumulate 1` shows what accumulation costs in speed and saves in memory.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from harness import Batch, Workload, parse, start
from text import Text
from traceprobe.capture import recorder
from transformer import Layer, Layers, Size, flops_by_formula, initialize

WORKLOAD = Workload(
    "bert",
    batch_size={"tiny": 4, "small": 8, "full": 16},
    accumulate=4,
    accepts=frozenset({"vocab", "sdpa", "recompute"}),
)
MASKED = 0.15
"""Share of the tokens to guess."""
MASK, IGNORED = 1, -100
"""Token that hides another; target of the tokens that are not to be guessed."""


SIZES = {
    "tiny": Size(512, 64, 2, 64, 2),
    "small": Size(8192, 128, 4, 256, 4),
    "full": Size(30522, 512, 24, 1024, 16),
}


class BERT(nn.Module):
    """Embeddings, layers that look both ways, and a head that guesses every token."""

    def __init__(self, size: Size, *, recompute: bool = False) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocab, size.width)
        self.positions = nn.Embedding(size.length, size.width)
        self.segments = nn.Embedding(2, size.width)
        self.norm = nn.LayerNorm(size.width)
        self.layers = Layers(
            *(
                Layer(size.width, size.heads, causal=False, norm_first=False)
                for _ in range(size.layers)
            ),
            recompute=recompute,
        )
        self.head = nn.Sequential(
            nn.Linear(size.width, size.width),
            nn.GELU(),
            nn.LayerNorm(size.width),
            nn.Linear(size.width, size.vocab),
        )
        self.head[-1].weight = self.tokens.weight
        initialize(self)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Batch × position of ids to batch × position × vocabulary."""
        segments = torch.zeros_like(tokens)
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]] + self.segments(segments)
        return self.head(self.layers(self.norm(x)))


class MaskedWindows(torch.utils.data.Dataset[Batch]):
    """Random windows of a text with some tokens hidden, and those tokens as the targets."""

    def __init__(self, text: Text, size: Size, seed: int) -> None:
        self._text, self._size, self._seed = text, size, seed

    def __getitem__(self, number: int) -> Batch:
        source = np.random.default_rng((self._seed, number))
        length = self._size.length
        window = self._text.window(length, source)
        chosen = source.choice(length, round(MASKED * length), replace=False)
        targets = np.full(length, IGNORED)
        targets[chosen] = window[chosen]
        # Of ten chosen tokens, eight are hidden, one is replaced by another, one stays.
        fate = source.random(len(chosen))
        window[chosen[fate < 0.8]] = MASK
        replaced = chosen[fate >= 0.9]
        window[replaced] = source.integers(self._size.vocab, size=len(replaced))
        return torch.from_numpy(window), torch.from_numpy(targets)


def loss_of(model: nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of the tokens that were chosen."""
    scores = model(tokens).flatten(0, 1)
    return cross_entropy(scores, targets.flatten(), ignore_index=IGNORED)


def main() -> None:
    """Train."""
    settings, machine = parse(WORKLOAD)
    with start(settings, machine) as run:
        plain = SIZES[settings.size]
        size = replace(plain, vocab=settings.vocab or plain.vocab)
        record = recorder()
        model = run.prepare(BERT(size, recompute=settings.recompute))
        optimizer = run.optimizer(torch.optim.AdamW, model, lr=1e-4)
        text = Text.of(run, min(size.vocab, plain.vocab))  # extra entries pad the embedding
        dataset = MaskedWindows(text, size, settings.seed)
        loader = run.loader(dataset, endless=record.recording)
        record.describe(**run.facts(tokens_per_sample=size.length), vocabulary=size.vocab)
        record.memory(model, optimizer)
        if record.recording:
            record.describe(**run.work(loss_of, dataset[0], flops_by_formula(size, model)))

        for batch in record.steps(loader):
            with record.phase("h2d"):
                batch = run.to_device(batch)
            for tokens, targets in run.parts(model, batch):
                with record.phase("forward"), run.autocast():
                    loss = loss_of(model, tokens, targets)
                    run.watch(loss)
                with record.phase("backward"):
                    run.backward(loss)
            with record.phase("optimizer"):
                run.update(optimizer)


if __name__ == "__main__":
    main()
