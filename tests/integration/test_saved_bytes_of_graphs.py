"""Saved bytes of unusual programs, compared with a walk of the graph by PyTorch's attributes."""

from __future__ import annotations

import os
import tempfile

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

import autogradviz


def held_by_graph(*roots, owned=()):
    """Return the bytes of all storages that the nodes behind some tensors hold."""
    owned = {tensor.untyped_storage()._cdata for tensor in owned}
    found, seen, waiting = {}, set(), [root.grad_fn for root in roots]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting += [function for function, _ in node.next_functions]
        for name in dir(node):
            if name.startswith("_raw_saved_"):
                for tensor in tensors_in(getattr(node, name)):
                    storage = tensor.untyped_storage()
                    if storage._cdata not in owned:  # the address of the C++ object
                        found[storage._cdata] = storage
    return sum(storage.nbytes() for storage in found.values())


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from tensors_in(each)
    elif type(value).__name__ == "SavedTensor":
        yield from tensors_in(value.data)


def leaf(*shape, **options):
    return torch.rand(*shape, requires_grad=True, **options)


PROGRAMS = {}


def program(function):
    """Register a function that returns the roots of its graph, and what its modules own."""
    PROGRAMS[function.__name__] = function
    return function


@program
def views_of_one_storage():
    y = leaf(100, 8).sin()
    return y[:2].exp().sum() + y.t().cos().sum() + y.view(-1).tan().sum() + (y.detach() * y).sum()


@program
def one_tensor_saved_by_many_nodes():
    y = leaf(100).exp()
    return sum((y * y).sum() for _ in range(5))


@program
def expanded():
    return (leaf(1, 8).expand(1000, 8) * leaf(1000, 8)).sum()


@program
def complex_views():
    x = leaf(64, dtype=torch.complex64)
    y = x * x.conj()
    return (torch.view_as_real(y) ** 2).sum() + (y.real * y.imag).sum()


@program
def bfloat16_and_masks():
    return F.dropout(leaf(64, dtype=torch.bfloat16).exp(), 0.5).sum()


class SmallTypes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        packed = torch.empty(16, dtype=torch.uint4)
        ctx.save_for_backward(x > 0, x.to(torch.float8_e4m3fn), packed, None)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0]


@program
def types_below_a_byte():
    return SmallTypes.apply(leaf(64).sin()).sum()


@program
def meta_device():
    model = nn.Sequential(nn.Linear(8, 16, device="meta"), nn.GELU())
    return model(torch.empty(4, 8, device="meta", requires_grad=True)).sum(), model


@program
def empty_tensors():
    return (leaf(0, 8) @ leaf(8, 8)).exp().sum()


@program
def storage_that_grew():
    grown = torch.empty(0).resize_(256).fill_(2.0)
    return (leaf(256) * grown).sum()


@program
def sparse_gradients():
    model = nn.Embedding(100, 8, sparse=True)
    return model(torch.arange(10)).exp().sum(), model


@program
def running_statistics():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
    return model(torch.rand(2, 3, 8, 8)).sum(), model


@program
def flat_weights():
    model = nn.LSTM(8, 16, 2)
    return model(torch.rand(5, 2, 8))[0].sum(), model


@program
def tied_weights():
    model = nn.Embedding(16, 8)
    hidden = model(torch.arange(4))
    return F.cross_entropy(hidden @ model.weight.t(), torch.arange(4)), model


@program
def attention():
    q = leaf(1, 2, 16, 8)
    return F.scaled_dot_product_attention(q, q, q).sum()


@program
def lists_of_tensors():
    x = leaf(64)
    parts = [x.exp(), x.sin(), x.cos()]
    return torch.cat(parts).exp().sum() + torch.einsum("i,i,i->", *parts)


@program
def indices_and_sorts():
    x, rows = leaf(64, 4), torch.randint(0, 64, (10,))
    return x[rows].sum() + x.gather(0, rows[:, None]).sum() + x.sort(0)[0].sum() + x.max(0)[0].sum()


@program
def decompositions():
    x = leaf(6, 6) + 3 * torch.eye(6)
    return torch.linalg.svd(x)[1].sum() + torch.linalg.inv(x).sum() + torch.linalg.det(x)


@program
def gradient_of_a_gradient():
    x = leaf(64)
    y = (x.exp() * x).sum()
    (gradient,) = torch.autograd.grad(y, x, create_graph=True)
    return y + gradient.square().sum()


@program
def hooks_that_keep_the_tensor():
    with saved_tensors_hooks(lambda t: (t.detach(),), lambda kept: kept[0]):
        return leaf(64).exp().sin().sum()


@program
def hooks_that_return_it():
    with saved_tensors_hooks(lambda t: t, lambda t: t):
        return (leaf(64) * 2).exp().sin().sum()


@program
def hooks_that_return_a_key():
    kept = []

    def pack(tensor):
        kept.append(tensor.numpy(force=True).copy())
        return len(kept) - 1

    with saved_tensors_hooks(pack, lambda key: torch.from_numpy(kept[key])):
        return leaf(64).exp().sin().sum()


@program
def hooks_that_write_files():
    folder = tempfile.TemporaryDirectory()

    def pack(tensor):
        name = f"{folder.name}/{len(os.listdir(folder.name))}.pt"
        torch.save(tensor.detach(), name)
        return name

    with saved_tensors_hooks(pack, torch.load):
        loss = leaf(64).exp().sin().sum()
    loss.folder = folder
    return loss


@program
def save_on_cpu_of_a_tensor_on_the_cpu():
    with save_on_cpu():
        return leaf(64).exp().sin().sum()


@program
def hooks_on_one_slot():
    y = leaf(64).exp()
    y.grad_fn._raw_saved_result.register_hooks(lambda t: t.detach().half(), lambda t: t.float())
    return y.sum()


@pytest.mark.one_in(4, reason="measures each program", in_ci=2)
@pytest.mark.parametrize("ops", [True, False], ids=["ops", "no-ops"])
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_saved_bytes_are_those_that_the_graph_holds(name, ops):
    torch.manual_seed(0)
    with autogradviz.record(ops=ops) as trace:
        found = PROGRAMS[name]()
        loss, model = found if isinstance(found, tuple) else (found, nn.Module())
        held = held_by_graph(loss, owned=[*model.parameters(), *model.buffers()])
        del found
        loss.backward()
    sizes = trace.saved_bytes()
    assert (sizes.saved, sizes.at_peak) == (held, held)
    assert (sizes.released, sizes.held) == (held, 0)
    assert max(trace.analysis.memory.nbytes, default=0) == held
    assert trace._scene.summary.peak_nbytes == held


def test_graphs_that_are_kept_are_held_at_the_end():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    with autogradviz.record(model) as trace:
        kept = [model(torch.rand(4, 8)).sum() for _ in range(3)]
        kept[0].backward(retain_graph=True)
        kept[1].backward()
        held = held_by_graph(kept[0], kept[2], owned=model.parameters())
    sizes = trace.saved_bytes()
    assert sizes.held == held
    assert sizes.released == sizes.saved - held > 0


def test_copies_are_offloaded_and_not_held():
    kept = []

    def pack(tensor):
        kept.append(tensor.clone())
        return len(kept) - 1

    with autogradviz.record() as trace:
        with saved_tensors_hooks(pack, kept.__getitem__):
            loss = leaf(64).exp().sum()
        loss.backward()
    [saved] = [each for each in trace.saved_tensors() if each.tensor.nbytes == 256]
    sizes = trace.saved_bytes()
    assert (saved.packed_by, saved.copied) == ("user", True)
    assert (sizes.saved, sizes.at_peak, sizes.offloaded) == (0, 0, 256)
