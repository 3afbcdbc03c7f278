"""Two pinned buffers alternate; the third tensor overwrites the first."""

import torch
from torch.autograd.graph import saved_tensors_hooks


class Ring:
    def __init__(self, slots, shape):
        self.slots = [torch.empty(shape) for _ in range(slots)]
        self.turn = 0

    def take(self):
        slot = self.slots[self.turn % len(self.slots)]
        self.turn += 1
        return slot


def go(slots):
    torch.manual_seed(0)
    ring = Ring(slots, (3, 4))

    def pack(tensor):
        slot = ring.take()
        slot.copy_(tensor)  # CULPRIT
        return slot

    w = torch.randn(3, 4, requires_grad=True)
    with saved_tensors_hooks(pack, lambda slot: slot):
        a = w.exp()  # VICTIM
        b = a.tanh()
        c = b.sigmoid()
    c.sum().backward()
    return {"w": w.grad}


def run():
    return go(2)


def reference():
    return go(8)
