"""A quantized matmul keeps the streamed weight on ctx, where checkpoint does not replace it."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class MatMul4Bit(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight  # CULPRIT
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        return grad @ ctx.weight, None


class MatMul4BitSaved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        (weight,) = ctx.saved_tensors
        return grad @ weight, None


class WeightStream:
    """Frozen weights are on the host; all layers share one staging buffer."""

    def __init__(self, n, d):
        self.host = [torch.randn(d, d) * 0.5 for _ in range(n)]
        self.staging = torch.empty(d, d)

    def fetch(self, index):
        self.staging.copy_(self.host[index])  # ALSO
        return self.staging


class Layer(nn.Module):
    def __init__(self, stream, index, matmul, d):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(d) + 0.5)
        self.stream, self.index, self.matmul = stream, index, matmul

    def forward(self, x):
        h = torch.tanh(x * self.scale)
        weight = self.stream.fetch(self.index)
        return self.matmul.apply(h, weight)  # VICTIM


class Model(nn.Module):
    def __init__(self, matmul, n=3, d=6):
        super().__init__()
        stream = WeightStream(n, d)
        self.layers = nn.ModuleList(Layer(stream, i, matmul, d) for i in range(n))

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


def _step(matmul):
    torch.manual_seed(0)
    model = Model(matmul)
    model(torch.randn(4, 6)).square().mean().backward()
    return {n: p.grad for n, p in model.named_parameters()}


def run():
    return _step(MatMul4Bit)


def reference():
    return _step(MatMul4BitSaved)
