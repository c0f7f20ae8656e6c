"""A small GPT-2, trained in the ways in which kernels lose what encloses them.

python owner_programs.py eager|compile|reduce-overhead|graph|graphed-callables

Without a GPU there are no CUDA graphs: those ways then run eagerly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional

from traceprobe.capture import recorder

WAYS = ("eager", "compile", "reduce-overhead", "graph", "graphed-callables")
ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH, BATCH = (
    (50_304, 768, 12, 6, 512, 8) if ON_GPU else (256, 32, 2, 2, 16, 2)
)


class Attention(nn.Module):
    """Causal attention."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The output for inputs of shape (batch, length, width)."""
        batch, length, width = x.shape
        heads = self.qkv(x).view(batch, length, 3, HEADS, width // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Attention and a perceptron, each with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The output for inputs of shape (batch, length, width)."""
        x = x + self.attention(self.before(x))
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


class Model(nn.Module):
    """Tokens to logits."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits of shape (batch, length, vocabulary)."""
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def loss_of(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Mean negative logarithm of the probability of the next token."""
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


def trainer(way: str) -> Callable[[torch.Tensor], None]:
    """A function that makes a step with a batch."""
    model = Model().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=ON_GPU, foreach=True)

    def step(ids: torch.Tensor, forward: Callable[[torch.Tensor], torch.Tensor]) -> None:
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = loss_of(forward(ids), ids)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    if way == "compile":
        compiled = torch.compile(model)
        return lambda ids: step(ids, compiled)
    if way == "reduce-overhead" and ON_GPU:
        reduced = torch.compile(model, mode="reduce-overhead")
        return lambda ids: step(ids, reduced)
    if way == "graph" and ON_GPU:
        return _whole_step(lambda ids: step(ids, model), optimizer)
    if way == "graphed-callables" and ON_GPU:
        example = torch.randn(BATCH, LENGTH, WIDTH, device=DEVICE, requires_grad=True)
        with torch.autocast(DEVICE, dtype=torch.bfloat16, cache_enabled=False):
            graphed = torch.cuda.make_graphed_callables(
                tuple(model.blocks), tuple((example,) for _ in model.blocks)
            )
        model.blocks = nn.ModuleList(graphed)
    return lambda ids: step(ids, model)


def _whole_step(
    step: Callable[[torch.Tensor], None], optimizer: torch.optim.Optimizer
) -> Callable[[torch.Tensor], None]:
    """A step that replays one CUDA graph."""
    static = torch.randint(VOCABULARY, (BATCH, LENGTH), device=DEVICE)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(static)
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(static)

    def replay(ids: torch.Tensor) -> None:
        static.copy_(ids)
        graph.replay()

    return replay


def batches() -> Iterator[torch.Tensor]:
    """Random tokens, for ever."""
    while True:
        yield torch.randint(VOCABULARY, (BATCH, LENGTH)).to(DEVICE)


def main(way: str) -> None:
    """Train until the recording is complete; ten steps without one."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    record = recorder()
    train = trainer(way)
    for number, ids in enumerate(record.steps(batches())):
        train(ids)
        if not record.recording and number == 9:
            break


if __name__ == "__main__":
    main(sys.argv[1])
