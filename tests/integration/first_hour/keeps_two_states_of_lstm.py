"""The two tensors of an LSTM's state are carried on with their graph, behind an embedding."""

import torch
from torch import nn


class CharRNN(nn.Module):
    def __init__(self, vocab=30, d=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.lstm = nn.LSTM(d, d, num_layers=2)
        self.head = nn.Linear(d, vocab)

    def forward(self, tokens, hidden):
        e = self.embed(tokens)
        out, hidden = self.lstm(e, hidden)
        return self.head(out), hidden


def main():
    net = CharRNN()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(net.parameters())
    text = torch.randint(30, (65, 4))
    h, c = torch.zeros(2, 4, 16), torch.zeros(2, 4, 16)
    for start in range(0, 64, 16):
        x, y = text[start : start + 16], text[start + 1 : start + 17]
        scores, (h, c) = net(x, (h, c))  # NAMED
        loss = criterion(scores.view(-1, 30), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
