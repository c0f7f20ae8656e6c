"""DCGAN: two networks, two optimizers."""

import argparse

import torch
import torch.nn as nn
import torch.optim as optim

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--nz", type=int, default=64)
parser.add_argument("--nf", type=int, default=12)
parser.add_argument("--niter", type=int, default=2000)
opt = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)


def weights_init(m):
    if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(m.weight, 0.0, 0.02)


class Generator(nn.Module):
    def __init__(self, nz, ngf):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 4, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 4),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 4, ngf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, 3, 4, 2, 1, bias=False),
        )

    def forward(self, noise):
        output = self.main(noise)
        return torch.tanh(output)


class Discriminator(nn.Module):
    def __init__(self, ndf):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, ndf, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 2, 1, 8, 1, 0, bias=False),
        )

    def forward(self, image):
        output = self.main(image)
        return output.view(-1)


netG = Generator(opt.nz, opt.nf).to(device)
netG.apply(weights_init)
netD = Discriminator(opt.nf).to(device)
netD.apply(weights_init)
criterion = nn.BCEWithLogitsLoss()
optimizerD = optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
pictures = torch.rand(16, opt.batch_size, 3, 32, 32, device=device) * 2 - 1
ones = torch.ones(opt.batch_size, device=device)
zeros = torch.zeros(opt.batch_size, device=device)

for i in range(opt.niter):
    # (1) Update D: maximize log(D(x)) + log(1 - D(G(z)))
    netD.zero_grad()
    real = pictures[i % len(pictures)]
    errD_real = criterion(netD(real), ones)
    errD_real.backward()
    noise = torch.randn(opt.batch_size, opt.nz, 1, 1, device=device)
    fake = netG(noise)
    errD_fake = criterion(netD(fake.detach()), zeros)
    errD_fake.backward()
    optimizerD.step()
    # (2) Update G: maximize log(D(G(z)))
    netG.zero_grad()
    errG = criterion(netD(fake), ones)
    errG.backward()
    optimizerG.step()
    if i % 100 == 0:
        print(f"[{i}/{opt.niter}] Loss_D {errD_real + errD_fake:.4f} Loss_G {errG:.4f}")
