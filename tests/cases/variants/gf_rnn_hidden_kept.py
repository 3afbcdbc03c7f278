"""Character RNN: the hidden state is carried from batch to batch (discuss.pytorch.org, many threads)."""

import torch
import torch.nn.functional as F
from torch import nn


class CharRNN(nn.Module):
    def __init__(self, vocab=13, d=8):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(vocab, d), nn.LSTM(d, d, batch_first=True), nn.Linear(d, vocab)

    def forward(self, x, hidden):
        y, hidden = self.rnn(self.emb(x), hidden)  # VICTIM
        return self.out(y), hidden


def train(model, data, bug):
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    hidden = (torch.zeros(1, 3, 8), torch.zeros(1, 3, 8))
    for x, y in data:
        opt.zero_grad()
        if not bug:
            hidden = tuple(h.detach() for h in hidden)
        logits, hidden = model(x, hidden)  # CULPRIT
        loss = F.cross_entropy(logits.transpose(1, 2), y)
        loss.backward()
        opt.step()


def go(bug):
    torch.manual_seed(0)
    model = CharRNN()
    data = [(torch.randint(0, 13, (3, 6)), torch.randint(0, 13, (3, 6))) for _ in range(3)]
    train(model, data, bug)
    return {n: p.grad for n, p in model.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
