"""Pages on backwards that ask for what was used up."""

from __future__ import annotations

from typing import Final

from autogradviz.explain.page import Page

_SELECTIVE: Final = """
import torch
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
import autogradviz


def policy(ctx, op, *args, **kwargs):
    kept = op == torch.ops.aten.addmm.default
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


def contexts():
    return create_selective_checkpoint_contexts(policy)


net = torch.nn.Linear(3, 3)
"""

PAGES: Final = (
    Page(
        slug="graph-freed",
        title="A second backward needs a graph that the first one freed",
        means="""backward() frees what the graph had saved, part by part as it goes. A second one
        that reaches the same nodes finds nothing. Where something computed later took a tensor of
        the old graph, the line that took it is named; else the first backward.""",
        happens="""Two losses share a part and are run one after the other; or a loop carries a
        hidden state or a running loss over from the step before, and its graph with it.""",
        fix="""Detach what is carried over; or add the losses and run one backward; or keep the
        graph with retain_graph=True.""",
        example="""
import torch
import autogradviz

cell = torch.nn.Linear(3, 3)
with autogradviz.record(cell) as trace:
    hidden = torch.zeros(2, 3)
    for step in range(2):
        hidden = torch.tanh(cell(hidden))  # <-- named
        hidden.sum().backward()
""",
    ),
    Page(
        slug="gradient-refused",
        title="A custom backward or a hook returned what the engine cannot take",
        means="""The engine checks what it is given: how many gradients, of which shape and type.
        Its message names the Function or the hook; the line that returned is named here.""",
        happens="""A backward returns a gradient too many or too few after forward got another
        argument; a hook returns a number, or a sum; a backward marked @once_differentiable is run
        back a second time.""",
        fix="""Return one gradient for each argument of forward, of its shape, or None. A hook that
        only looks returns None.""",
        example="""
import torch
import autogradviz


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor  # <-- named


x = torch.rand(3, requires_grad=True)
with autogradviz.record() as trace:
    Scale.apply(x, 2.0).sum().backward()
""",
    ),
    Page(
        slug="saved-tensors-read-twice",
        title="ctx.saved_tensors was read twice under checkpoint",
        means="""Every read of ctx.saved_tensors unpacks all saved tensors anew. That is harmless
        without checkpoint, which hands each recomputed tensor out once.""",
        happens="""backward of a custom Function reads ctx.saved_tensors in two places.""",
        fix="""Read it once, into a variable.""",
        example="""
import torch
from torch.utils.checkpoint import checkpoint
import autogradviz


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        first = ctx.saved_tensors[0]
        again = ctx.saved_tensors[0]  # <-- named
        return gradient * 2


x = torch.rand(3, requires_grad=True)
with autogradviz.record() as trace:
    checkpoint(Double.apply, x, use_reentrant=False).sum().backward()
""",
    ),
    Page(
        slug="exec-group-overlap",
        title="Two backwards in one GraphExecGroup need the same tensor",
        means="""Inside a GraphExecGroup a checkpointed region is recomputed once, and each tensor
        that this gives is handed out once. A second backward over the same region finds none.""",
        happens="""Two losses through one checkpointed block, each with a backward of its own.""",
        fix="""Add the losses and call backward() once, or leave the group.""",
        example="""
import torch
from torch.utils.checkpoint import GraphExecGroup, checkpoint
import autogradviz

net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh())
x = torch.rand(2, 3)
with autogradviz.record(net) as trace:
    y = checkpoint(net, x, use_reentrant=False)
    with GraphExecGroup():
        y.sum().backward(retain_graph=True)
        y.mean().backward()  # <-- named
""",
    ),
    Page(
        slug="selective-backward-twice",
        title="A selectively checkpointed region was asked for a second backward",
        means="""What a checkpoint policy keeps is handed out once, in the first recomputation. A
        second backward over the region cannot be served.""",
        happens="""Two losses through the region, or retain_graph=True and a second call.""",
        fix="""Add the losses and call backward() once, or checkpoint without a policy.""",
        example=f"""{_SELECTIVE}
with autogradviz.record(net) as trace:
    y = checkpoint(net, torch.rand(2, 3), use_reentrant=False, context_fn=contexts).exp()
    y = checkpoint(lambda x: net(x).exp().sin(), y, use_reentrant=False, context_fn=contexts)
    y.sum().backward(retain_graph=True)
    y.sum().backward()  # <-- named
""",
    ),
    Page(
        slug="selective-cache-mutated",
        title="What a checkpoint policy kept was written",
        means="""The policy kept an operator's result, so as not to run it again. It was written
        before the region was recomputed, and recomputation would have gone on from the new values:
        PyTorch stopped.""",
        happens="""The region hands a tensor out, to an attribute or a list, and it is written
        there.""",
        fix="""Write to a clone; or let the policy recompute that operator.""",
        example=f"""{_SELECTIVE}
kept = []


def block(x):
    y = net(x)
    if not kept:
        kept.append(y)
    return y.exp().sin()


with autogradviz.record(net) as trace:
    y = checkpoint(block, torch.rand(2, 3), use_reentrant=False, context_fn=contexts)
    with torch.no_grad():
        kept[0].mul_(2)  # <-- named
    y.sum().backward()
""",
    ),
    Page(
        slug="handmade-checkpoint-differs",
        title="A checkpoint of one's own runs the forward again otherwise",
        means="""A custom Function keeps its inputs and calls the function again in backward. An
        operator that was given the same as in forward gave something else: the random state was
        not put back, or autocast was set otherwise.""",
        happens="""torch.utils.checkpoint restores random states and autocast with its dtype; a
        checkpoint written by hand restores what its author thought of.""",
        fix="""Call torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=False).""",
        example="""
import torch
import autogradviz

def block(x):
    return torch.dropout(x.tanh(), 0.5, True)

class Checkpoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        with torch.no_grad():
            return block(x)

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = block(x)  # <-- named
        return torch.autograd.grad(y, x, gradient)[0]

x = torch.rand(64, requires_grad=True)
with autogradviz.record(fingerprints=True) as trace:
    Checkpoint.apply(x).sum().backward()
""",
    ),
    Page(
        slug="gradient-counted-twice",
        title="A custom backward fills .grad itself, and returns the gradient too",
        means="""A Function's backward called backward() on something that it computed from one of
        its own arguments, a leaf. That added to the leaf's .grad; what the Function returned for
        the same leaf was added once more.""",
        happens="""A checkpoint of one's own recomputes with the parameter itself, calls
        torch.autograd.backward(), and returns parameter.grad.""",
        fix="""Return torch.autograd.grad(output, inputs, gradient): it fills no .grad.""",
        example="""
import torch
import autogradviz

class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.kept = x.detach(), weight
        return x * weight

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.kept[0].requires_grad_(), ctx.kept[1]
        with torch.enable_grad():
            y = x * weight
        torch.autograd.backward(y, gradient)  # <-- named
        return x.grad, weight.grad

weight = torch.rand(3, requires_grad=True)
with autogradviz.record() as trace:
    x = torch.rand(3, requires_grad=True) * 2
    Product.apply(x, weight).sum().backward()
""",
    ),
)
