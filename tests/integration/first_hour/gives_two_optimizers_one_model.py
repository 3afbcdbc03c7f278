"""The second optimizer has the parameters of the first one."""

import torch
from torch import nn

encoder = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
decoder = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
opt_enc = torch.optim.Adam(encoder.parameters(), lr=1e-3)
opt_dec = torch.optim.Adam(encoder.parameters(), lr=1e-3)  # NAMED

for _ in range(20):
    x = torch.randn(16, 8)
    loss = nn.functional.mse_loss(decoder(encoder(x)), x)
    opt_enc.zero_grad()
    opt_dec.zero_grad()
    loss.backward()
    opt_enc.step()
    opt_dec.step()
