"""Two encoders and the contrastive loss between them."""

import torch
import torch.nn.functional as F
from torch import nn


class ImageTower(nn.Module):
    def __init__(self, width, dim):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, 8)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.proj = nn.Linear(width, dim)

    def forward(self, images):
        x = self.patch(images)
        x = x.flatten(2).transpose(1, 2)
        x = self.encoder(x)
        x = x.mean(dim=1)
        return F.normalize(self.proj(x), dim=-1)


class TextTower(nn.Module):
    def __init__(self, vocab, width, dim):
        super().__init__()
        self.embed = nn.Embedding(vocab, width, padding_idx=0)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.proj = nn.Linear(width, dim)

    def forward(self, tokens):
        x = self.embed(tokens)
        x, _ = self.gru(x)
        x = x[:, -1]
        return F.normalize(self.proj(x), dim=-1)


class ClipLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.6))

    def forward(self, image, text):
        logits = self.scale.exp() * image @ text.t()
        labels = torch.arange(len(logits), device=logits.device)
        loss_i = F.cross_entropy(logits, labels)
        loss_t = F.cross_entropy(logits.t(), labels)
        return (loss_i + loss_t) / 2
