"""Pairs of pictures and captions."""

import numpy as np
import torch
from torch.utils.data import IterableDataset


class Pairs(IterableDataset):
    def __init__(self, size):
        self.size = size

    def __iter__(self):
        rng = np.random.default_rng(0)
        while True:
            image = rng.random((3, self.size, self.size), dtype=np.float32)
            length = int(rng.integers(4, 16))
            caption = rng.integers(1, 500, length)
            yield image, caption


class PadCollator:
    def __init__(self, pad=0):
        self.pad = pad

    def __call__(self, samples):
        images = torch.from_numpy(np.stack([image for image, _ in samples]))
        longest = max(len(caption) for _, caption in samples)
        tokens = torch.full((len(samples), longest), self.pad)
        for row, (_, caption) in enumerate(samples):
            tokens[row, : len(caption)] = torch.from_numpy(caption)
        return {"images": images, "tokens": tokens}
