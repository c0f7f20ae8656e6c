"""A variational autoencoder as a LightningModule."""

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn


class VAE(L.LightningModule):
    def __init__(self, width, latent, lr):
        super().__init__()
        self.lr = lr
        self.encoder = nn.Sequential(
            nn.Conv2d(1, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1), nn.ReLU()
        )
        self.to_latent = nn.Linear(width * 49, 2 * latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, width * 49),
            nn.ReLU(),
            nn.Unflatten(1, (width, 7, 7)),
            nn.ConvTranspose2d(width, width, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(width, 1, 4, 2, 1),
        )

    def encode(self, x):
        hidden = self.encoder(x).flatten(1)
        mu, logvar = self.to_latent(hidden).chunk(2, dim=-1)
        return mu, logvar

    def forward(self, x):
        mu, logvar = self.encode(x)
        std = torch.exp(0.5 * logvar)
        z = mu + std * torch.randn_like(std)
        return self.decoder(z), mu, logvar

    def training_step(self, batch, batch_idx):
        x, _ = batch
        logits, mu, logvar = self(x)
        reconstruction = F.binary_cross_entropy_with_logits(logits, x)
        divergence = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).mean()
        loss = reconstruction + 1e-3 * divergence
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.lr)
        return optimizer
