"""Pages on tensors that were written while backward still needed them."""

from __future__ import annotations

from typing import Final

from autogradviz.explain.page import Page

PAGES: Final = (
    Page(
        slug="saved-tensor-mutated",
        title="A saved tensor was written before backward needed it",
        means="""An operator kept one of its inputs or its result for backward, and another line
        wrote the same memory since. The gradient would have been computed from the new values, so
        PyTorch compared version counters and stopped.""",
        happens="""Methods that end with an underscore, assignments to a slice, out=, an
        optimizer's step between forward and backward, buffers that are updated in forward. All
        views of one storage share one counter: writing a part of it counts for the whole.""",
        fix="""Make a new tensor in place of writing: x = x + 1. Or clone before writing, or write
        after backward. With an optimizer: step after every backward that uses its weights.""",
        example="""
import torch
import autogradviz

a = torch.rand(3, requires_grad=True)
with autogradviz.record() as trace:
    b = a.exp()
    b.add_(1)  # <-- named
    b.sum().backward()
""",
    ),
    Page(
        slug="silent-write",
        title="A saved tensor was written past the version check",
        means="""A tensor that backward needs holds other values than when it was saved, and its
        version counter did not move. PyTorch cannot notice: the gradient is wrong, and nothing is
        raised.""",
        happens=""".data has a version counter of its own; fused optimizers and kernels that write
        through a raw pointer, and NumPy on shared memory, move none.""",
        fix="""Write under torch.no_grad() in place of .data, so that PyTorch can tell; then move
        the write after backward. Kernels call torch.autograd.graph.increment_version.""",
        example="""
import torch
import autogradviz

w = torch.rand(3, requires_grad=True)
with autogradviz.record(fingerprints=True) as trace:
    loss = (w * w).sum()
    w.data.clamp_(max=0.1)  # <-- named
    loss.backward()
""",
    ),
    Page(
        slug="inplace-refused",
        title="A write in place that PyTorch refuses at once",
        means="""Autograd cannot rewrite the history of what is written: a leaf that requires a
        gradient, one of several views that an operator returned together, a view made under no_grad
        or inside of a custom Function.""",
        happens="""Weights are initialized or clipped with gradients on; a part of what unbind,
        split or chunk gave is written.""",
        fix="""Write leaves under torch.no_grad(); take parts one by one, or write out of place.""",
        example="""
import torch
import autogradviz

net = torch.nn.Linear(3, 3)
with autogradviz.record(net) as trace:
    net.weight.uniform_(-0.1, 0.1)  # <-- named
    net(torch.rand(2, 3)).sum().backward()
""",
    ),
    Page(
        slug="inference-tensor",
        title="A tensor of inference mode is used where gradients are on",
        means="""What is made under inference_mode has no version counter, so autograd can neither
        save it for backward nor follow a write to it.""",
        happens="""Features or a cache are computed under inference_mode and then trained on.""",
        fix="""Compute them under torch.no_grad(), or clone() them outside of inference_mode.""",
        example="""
import torch
import autogradviz

net = torch.nn.Linear(3, 3)
with torch.inference_mode():
    features = torch.rand(2, 3)
with autogradviz.record(net) as trace:
    net(features).sum().backward()  # <-- named
""",
    ),
    Page(
        slug="ctx-attribute-written",
        title="A tensor kept on ctx was written before backward read it",
        means="""A custom Function kept a tensor as an attribute of ctx. Only what save_for_backward
        keeps has its version checked: the tensor was written, backward read the new values, and
        nothing was raised.""",
        happens="""ctx.x = x in forward, and x is written in place later.""",
        fix="""ctx.save_for_backward(x), so that PyTorch can tell; and write to a clone.""",
        example="""
import torch
import autogradviz


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2 * ctx.x


a = torch.rand(3, requires_grad=True)
with autogradviz.record() as trace:
    b = a * 1
    loss = Square.apply(b).sum()
    with torch.no_grad():
        b.add_(1)  # <-- named
    loss.backward()
""",
    ),
    Page(
        slug="checkpoint-argument-mutated",
        title="An argument of a checkpointed region was written before it ran again",
        means="""A checkpointed region keeps its arguments, to run again in backward. One of them
        was written in between: recomputation would have started from other values, so PyTorch
        stopped.""",
        happens="""The input is normalized, masked or refilled in place after the region has read
        it, often because a buffer is used again for the next batch.""",
        fix="""Write to a new tensor, or hand a clone to the region.""",
        example="""
import torch
from torch.utils.checkpoint import checkpoint
import autogradviz

net = torch.nn.Linear(3, 3)
x = torch.rand(2, 3)
with autogradviz.record(net) as trace:
    y = checkpoint(net, x, use_reentrant=False)
    x.mul_(2)  # <-- named
    y.sum().backward()
""",
    ),
    Page(
        slug="checkpoint-captured-tensor-mutated",
        title="What a region reads changed before it ran again",
        means="""A region reads tensors that are not its arguments: weights, buffers, what a
        closure holds. One was written between forward and recomputation, so the region was
        recomputed from other values. Checkpoint compares versions of arguments only: nothing is
        raised, and the gradients do not belong to the loss.""",
        happens="""optimizer.step(), an update of averaged weights or a change of a buffer comes
        before the last backward through the region.""",
        fix="""Write after every backward through the region.""",
        example="""
import torch
from torch.utils.checkpoint import checkpoint
import autogradviz

net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
x = torch.rand(2, 3, requires_grad=True)
with autogradviz.record(net) as trace:
    y = checkpoint(net, x, use_reentrant=False)
    with torch.no_grad():
        net[0].weight.mul_(2)  # <-- named
    y.sum().backward()
""",
    ),
    Page(
        slug="mutation-context-left",
        title="Backward ran outside allow_mutation_on_saved_tensors",
        means="""The context clones what is written while it is saved, keeps the clones itself, and
        drops them when it is left. A backward after that has nothing to read.""",
        happens="""Only the forward stands in the with block.""",
        fix="""Put the backward into the block too.""",
        example="""
import torch
from torch.autograd.graph import allow_mutation_on_saved_tensors
import autogradviz

a = torch.rand(3, requires_grad=True)
with autogradviz.record() as trace:
    with allow_mutation_on_saved_tensors():
        b = a.exp()
        b.add_(1)
    b.sum().backward()  # <-- named
""",
    ),
    Page(
        slug="shared-gradient-written",
        title="A gradient was written in place, and another node gets it too",
        means="""An operator may hand one gradient tensor on along several edges. Who writes it in
        place changes what the others get; gradients carry no version check.""",
        happens="""A tensor hook, or the backward of a custom Function, scales or clips the gradient
        that it was given with mul_, clamp_ or +=.""",
        fix="""Return a new tensor: grad * 0.5.""",
        example="""
import torch
import autogradviz

x = torch.rand(3, requires_grad=True)
with autogradviz.record() as trace:
    a, b = x * 2, x * 3
    b.register_hook(lambda grad: grad.mul_(0.5))  # <-- named
    (a + b).square().sum().backward()
""",
    ),
    Page(
        slug="hidden-write",
        title="A saved tensor was written, and saved-tensor hooks hid it",
        means="""Where saved-tensor hooks keep a tensor PyTorch does not check its version. A write
        between save and backward gives a wrong gradient, and no error.""",
        happens="""Hooks that only watch or count hand the tensor itself back, and an in-place
        operation that PyTorch would have refused goes through. torch.utils.checkpoint keeps what
        its recomputation saves in such hooks.""",
        fix="""Write out of place, or let the pack hook return tensor.clone().""",
        example="""
import torch
from torch.autograd.graph import saved_tensors_hooks
import autogradviz

x = torch.rand(3, requires_grad=True)
with autogradviz.record(fingerprints=True) as trace:
    with saved_tensors_hooks(lambda t: t.detach(), lambda t: t):
        y = x.exp()
        loss = y.sum()
        y.add_(1)  # <-- named
    loss.backward()
""",
    ),
    Page(
        slug="hook-memory-reused",
        title="A pack hook put a second tensor where a first one still lay",
        means="""A pack hook that copies into memory of its own, a pinned staging buffer for
        instance, was called again, and wrote over a tensor that backward had yet to take back. The
        gradient is computed from the later tensor, and nothing is raised.""",
        happens="""One buffer serves all saved tensors, a ring of buffers has fewer places than
        tensors are saved, or a cursor is not moved on.""",
        fix="""Give each saved tensor a place of its own, and use a place again only after the
        unpack hook has read it.""",
        example="""
import torch
from torch.autograd.graph import saved_tensors_hooks
import autogradviz

staging = torch.empty(3)

def pack(tensor):
    staging.copy_(tensor)  # <-- named
    return staging

x = torch.rand(3, requires_grad=True)
with autogradviz.record(fingerprints=True) as trace:
    with saved_tensors_hooks(pack, lambda kept: kept):
        loss = x.exp().tanh().sum()
    loss.backward()
""",
    ),
    Page(
        slug="saved-tensor-detached",
        title="A saved tensor was detached in place",
        means="""A node had saved a tensor with a graph; detach_() took that very tensor out of its
        graph, and backward could not take it back.""",
        happens="""A recurrent network's hidden state is cut with detach_() before the loss of its
        window went backward.""",
        fix="""Use h = h.detach(), which leaves the saved tensor as it is, or call backward()
        first.""",
        example="""
import torch
import autogradviz

weight = torch.rand(3, requires_grad=True)
with autogradviz.record() as trace:
    h = weight.tanh()
    loss = (h * weight).sum()
    h.detach_()  # <-- named
    loss.backward()
""",
    ),
)
