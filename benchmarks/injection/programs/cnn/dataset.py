"""Small pictures, augmented as they are read."""

import torch
from torch.utils.data import Dataset


class Pictures(Dataset):
    def __init__(self, count, size):
        generator = torch.Generator().manual_seed(0)
        self.images = torch.randint(0, 256, (count, 3, size, size), generator=generator).byte()
        self.labels = torch.randint(0, 10, (count,), generator=generator)

    def __len__(self):
        return len(self.images)

    def augment(self, image):
        if torch.rand(1) < 0.5:
            image = image.flip(-1)
        shift = int(torch.randint(-2, 3, (1,)))
        image = image.roll(shift, dims=-1)
        return image

    def __getitem__(self, index):
        image = self.images[index].float() / 255
        image = self.augment(image)
        image = (image - 0.5) / 0.25
        label = self.labels[index]
        return image, label


def collate(samples):
    images = torch.stack([image for image, _ in samples])
    labels = torch.stack([label for _, label in samples])
    return images, labels
