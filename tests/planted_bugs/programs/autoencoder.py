"""A variational autoencoder on random images."""

import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.mean = nn.Linear(64, 3)
        self.log_var = nn.Linear(64, 3)

    def forward(self, x):
        h = torch.relu(self.norm(self.conv(x)))
        h = h.flatten(1)
        mean = self.mean(h)
        log_var = self.log_var(h)
        return mean, log_var


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.expand = nn.Linear(3, 64)
        self.conv = nn.ConvTranspose2d(4, 1, 4, stride=2, padding=1)

    def forward(self, z):
        h = torch.relu(self.expand(z))
        h = h.view(-1, 4, 4, 4)
        image = torch.sigmoid(self.conv(h))
        return image


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.beta = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        mean, log_var = self.encoder(x)
        noise = torch.randn_like(mean)
        z = mean + noise * torch.exp(0.5 * log_var)
        image = self.decoder(z)
        kl = -0.5 * (1 + log_var - mean**2 - log_var.exp()).sum(1)
        return image, kl.mean()


def main():
    torch.manual_seed(0)
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    total = 0.0
    for _ in range(4):
        x = torch.rand(6, 1, 8, 8)
        optimizer.zero_grad()
        image, kl = model(x)
        error = F.mse_loss(image, x)
        weight = F.softplus(model.beta)
        loss = error + weight * kl + (weight - 1.0) ** 2
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.item()
    with torch.no_grad():
        image, _ = model(x)
    return {"image": image, "conv": model.encoder.conv.weight, "mean": model.encoder.mean.weight}
