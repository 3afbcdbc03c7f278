"""Character model trained on chunks of a long text, the state carried over."""

import torch
from torch import nn


class CharModel(nn.Module):
    def __init__(self, chars=30, width=24):
        super().__init__()
        self.embed = nn.Embedding(chars, width)
        self.rnn = nn.LSTM(width, width, batch_first=True)
        self.out = nn.Linear(width, chars)

    def forward(self, chars, state):
        y, state = self.rnn(self.embed(chars), state)
        return self.out(y), state


torch.manual_seed(0)
model = CharModel()
optimizer = torch.optim.Adam(model.parameters())
text = torch.randint(30, (4, 201))
state = None
for start in range(0, 200, 20):
    chunk = text[:, start : start + 20]
    target = text[:, start + 1 : start + 21]
    scores, state = model(chunk, state)  # NAMED
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{start:4d} {loss.item():.3f}")
