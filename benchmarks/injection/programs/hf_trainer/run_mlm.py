"""Masked language modelling with the Trainer of transformers."""

import argparse
import tempfile

import torch.nn.functional as F
from collator import MaskingCollator, Sentences
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainerCallback, TrainingArguments


class MlmTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs.logits
        loss = F.cross_entropy(
            logits.view(-1, logits.size(-1)), labels.view(-1), label_smoothing=0.1
        )
        return (loss, outputs) if return_outputs else loss

    def training_step(self, model, inputs, *rest):
        loss = super().training_step(model, inputs, *rest)
        return loss


class Progress(TrainerCallback):
    def __init__(self):
        self.done = 0

    def on_step_end(self, args, state, control, **kwargs):
        self.done += 1
        if self.done % 100 == 0:
            print(f"{self.done} steps")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--length", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--max-steps", type=int, default=2000)
    args = parser.parse_args()
    config = BertConfig(
        vocab_size=1000,
        hidden_size=args.hidden,
        num_hidden_layers=args.layers,
        num_attention_heads=4,
        intermediate_size=4 * args.hidden,
        max_position_embeddings=args.length,
    )
    with tempfile.TemporaryDirectory() as folder:
        training_args = TrainingArguments(
            output_dir=folder,
            max_steps=args.max_steps,
            per_device_train_batch_size=args.batch_size,
            dataloader_num_workers=args.workers,
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = MlmTrainer(
            model=BertForMaskedLM(config),
            args=training_args,
            train_dataset=Sentences(300 * args.batch_size, args.length, 1000),
            data_collator=MaskingCollator(),
            callbacks=[Progress()],
        )
        trainer.train()


if __name__ == "__main__":
    main()
