"""GPT-2 with 124 million parameters: next-token prediction over random windows of a text.

The steps from fp32 over TF32 and bf16 to a compiled model with flash attention, a padded vocabulary
and a fused optimizer are all settings: each makes it faster, and it stays bound by computing.
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
    "gpt2",
    batch_size={"tiny": 4, "small": 8, "full": 16},
    accepts=frozenset({"cuda_graphs", "vocab", "sdpa", "recompute"}),
)


SIZES = {
    "tiny": Size(512, 64, 2, 64, 2),
    "small": Size(8192, 256, 6, 384, 6),
    "full": Size(50257, 1024, 12, 768, 12),
}


class GPT2(nn.Module):
    """Embeddings, causal layers, and the token embedding once more to score the next token."""

    def __init__(self, size: Size, *, recompute: bool = False) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocab, size.width)
        self.positions = nn.Embedding(size.length, size.width)
        self.layers = Layers(
            *(
                Layer(size.width, size.heads, causal=True, norm_first=True)
                for _ in range(size.layers)
            ),
            recompute=recompute,
        )
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.vocab, bias=False)
        self.head.weight = self.tokens.weight
        initialize(self)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Batch × position of ids to batch × position × vocabulary."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return self.head(self.norm(self.layers(x)))


class Windows(torch.utils.data.Dataset[Batch]):
    """Random windows of a text, each with itself one token later as its target."""

    def __init__(self, text: Text, length: int, seed: int) -> None:
        self._text, self._length, self._seed = text, length, seed

    def __getitem__(self, number: int) -> Batch:
        source = np.random.default_rng((self._seed, number))
        window = torch.from_numpy(self._text.window(self._length + 1, source))
        return window[:-1], window[1:]


def loss_of(model: nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of the next tokens."""
    return cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def main() -> None:
    """Train."""
    settings, machine = parse(WORKLOAD)
    with start(settings, machine) as run:
        plain = SIZES[settings.size]
        size = replace(plain, vocab=settings.vocab or plain.vocab)
        record = recorder()
        shape = (settings.batch_size, size.length)
        model = run.prepare(
            GPT2(size, recompute=settings.recompute),
            torch.empty(shape, dtype=torch.int64, device="meta"),
        )
        optimizer = run.optimizer(torch.optim.AdamW, model, lr=6e-4, weight_decay=0.1)
        text = Text.of(run, min(size.vocab, plain.vocab))  # extra entries pad the embedding
        dataset = Windows(text, size.length, settings.seed)
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
