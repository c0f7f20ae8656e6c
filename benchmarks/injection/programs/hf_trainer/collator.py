"""Random sentences, and masked batches of them."""

import torch
from torch.utils.data import Dataset


class Sentences(Dataset):
    def __init__(self, count, length, vocab):
        self.tokens = torch.randint(5, vocab, (count, length))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        input_ids = self.tokens[index]
        return {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}


class MaskingCollator:
    def __init__(self, mask_id=4, probability=0.15):
        self.mask_id = mask_id
        self.probability = probability

    def __call__(self, features):
        input_ids = torch.stack([f["input_ids"] for f in features])
        attention_mask = torch.stack([f["attention_mask"] for f in features])
        labels = input_ids.clone()
        masked = torch.rand(input_ids.shape) < self.probability
        labels[~masked] = -100
        input_ids = input_ids.masked_fill(masked, self.mask_id)
        return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}
