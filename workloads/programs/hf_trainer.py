"""Hugging Face Trainer: GPT-2 on text that workers tokenise while it trains."""

from __future__ import annotations

import random
import tempfile
from typing import Any

import torch
from common import StepClock, options
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

WORDS = ["".join(random.Random(i).choices("etaoinshrdlu", k=2 + i % 9)) for i in range(4000)]


class Documents(Dataset):
    """Documents of random words; of each, some tokens from a random place.

    Args:
        words: in a document, all of which are tokenised. length: tokens of a sample.
        cached: whether the first document is tokenised once and always returned.
    """

    def __init__(self, words: int, length: int, cached: bool) -> None:
        self.words, self.length = words, length
        self.tokenizer = Tokenizer(models.BPE())
        self.tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer = trainers.BpeTrainer(vocab_size=2000, show_progress=False)
        self.tokenizer.train_from_iterator(WORDS, trainer)
        self.sample = self._load(0) if cached else None

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.sample or self._load(index)

    def _load(self, index: int) -> dict[str, Any]:
        source = random.Random(index)
        ids = self.tokenizer.encode(" ".join(source.choices(WORDS, k=self.words))).ids
        start = source.randrange(len(ids) - self.length)
        tokens = torch.tensor(ids[start : start + self.length])
        return {"input_ids": tokens, "labels": tokens}


class Clock(TrainerCallback):
    """Times the steps of a Trainer."""

    def __init__(self, steps: int, timed: int) -> None:
        self.clock = StepClock(steps, timed)

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.clock.tick()


def main() -> None:
    """Train."""
    parser = options(__doc__, "loading")
    parser.add_argument("--words", type=int, default=1000, help="words of a document")
    parser.add_argument("--workers", type=int, default=4)
    given = parser.parse_args()
    length, batch, layers, width, heads = (
        (32, 2, 2, 64, 2) if given.tiny else (512, 16, 12, 768, 12)
    )
    config = GPT2Config(
        vocab_size=50257, n_positions=length, n_layer=layers, n_embd=width, n_head=heads
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=given.steps,
            per_device_train_batch_size=batch,
            bf16=torch.cuda.is_available(),
            dataloader_num_workers=given.workers,
            logging_steps=10,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = Trainer(
            GPT2LMHeadModel(config),
            arguments,
            train_dataset=Documents(given.words, length, given.no_loading),
            callbacks=[Clock(given.steps, given.timed)],
        )
        trainer.train()


if __name__ == "__main__":
    main()
