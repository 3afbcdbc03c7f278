"""Pages on gradients that are missing, broken or of the wrong size, and on what stays alive."""

from __future__ import annotations

from typing import Final

from autogradviz.explain.page import Page

_HEAD: Final = """
import torch
import autogradviz
"""

PAGES: Final = (
    Page(
        slug="graph-lost",
        title="The loss has no graph",
        means="""backward() was asked of a tensor that autograd did not follow ("element 0 of
        tensors does not require grad"). The line is named at which the last way from something with
        a gradient to the loss ended.""",
        happens="""torch.no_grad() or inference_mode() around what the loss needs; detach() or
        .data; .item(), NumPy or torch.tensor() of tensors; argmax, comparisons and other whole
        numbers; every parameter frozen.""",
        fix="""Compute the loss from the tensors themselves, outside of no_grad.""",
        example=f"""{_HEAD}
net = torch.nn.Linear(3, 3)
with autogradviz.record(net) as trace:
    with torch.no_grad():  # <-- named
        scores = net(torch.rand(2, 3))
    scores.sum().backward()
""",
    ),
    Page(
        slug="gradient-missing",
        title="A parameter that requires a gradient got none",
        means="""backward ran, and .grad of some parameters is still None. The line is named at
        which the way from the loss to them ends. A frozen part or an expert that got no input looks
        the same: this is a hint.""",
        happens="""detach() or no_grad on the way; a branch that was not taken; a result that the
        loss does not use; a custom Function whose backward returns None.""",
        fix="""Remove what ends the way; or take the parameters out of the optimizer with
        requires_grad_(False).""",
        example=f"""{_HEAD}
encoder, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
model = torch.nn.ModuleDict({{"encoder": encoder, "head": head}})
with autogradviz.record(model) as trace:
    features = encoder(torch.rand(2, 3)).detach()  # <-- named
    head(features).sum().backward()
""",
    ),
    Page(
        slug="not-finite",
        title="A loss or a gradient is NaN or infinite",
        means="""The gradient norms read at the end of every recording show it.
        record(fingerprints=True) names the operator that gave the first such value from finite
        inputs, in forward or in backward. Infinities that a mask wrote are no fault; an operator
        that makes NaN of them is.""",
        happens="""log or a division at 0, the slope of sqrt or of a norm at 0, a softmax over a row
        that is masked whole, an overflow in float16.""",
        fix="""Keep the operator away from that point: x.clamp_min(1e-8), x + 1e-8, log_softmax.""",
        example=f"""{_HEAD}
x = torch.tensor([0.0, 1.0], requires_grad=True)
with autogradviz.record(fingerprints=True) as trace:
    loss = torch.log(x).sum()  # <-- named
    loss.backward()
""",
    ),
    Page(
        slug="gradient-exploding",
        title="Gradients are huge",
        means="""The mean entry of some weight's gradient is larger than ten thousand. One step with
        it may throw the weights far away. A hint: a scaled loss looks the same.""",
        happens="""Weights that are too large, recurrence over many steps, a division by something
        small.""",
        fix="""Clip with torch.nn.utils.clip_grad_norm_; normalize between layers; scale the initial
        weights down.""",
        example=f"""{_HEAD}
net = torch.nn.Sequential(*[torch.nn.Linear(8, 8, bias=False) for _ in range(8)])
for parameter in net.parameters():
    torch.nn.init.constant_(parameter, 2.0)
with autogradviz.record(net) as trace:
    net(torch.ones(2, 8)).sum().backward()  # <-- named
""",
    ),
    Page(
        slug="gradient-vanishing",
        title="Gradients vanish on their way back",
        means="""Early weights get a gradient that is more than a million times smaller than that of
        late ones: they hardly learn. A hint.""",
        happens="""Many layers whose slope is small: sigmoid, tanh at its ends, small weights.""",
        fix="""Residual paths, normalization between layers, ReLU-like activations, initial weights
        of the right scale.""",
        example=f"""{_HEAD}
layers = [part for _ in range(12) for part in (torch.nn.Linear(8, 8), torch.nn.Sigmoid())]
net = torch.nn.Sequential(*layers)
with autogradviz.record(net) as trace:
    net(torch.rand(2, 8)).sum().backward()  # <-- named
""",
    ),
    Page(
        slug="gradient-zero",
        title="A step function passes on zeros",
        means="""round, floor, sign and their like are flat wherever they do not jump: their
        gradient is 0, so that everything before them gets zeros and does not learn. A hint.""",
        happens="""Quantisation without a straight-through estimator.""",
        fix="""Let the gradient pass as if there were no step: x + (x.round() - x).detach().""",
        example=f"""{_HEAD}
net = torch.nn.Linear(3, 3)
with autogradviz.record(net) as trace:
    steps = net(torch.rand(2, 3)).round()  # <-- named
    steps.square().sum().backward()
""",
    ),
    Page(
        slug="context-keeps-tensor",
        title="A custom Function keeps a tensor as an attribute",
        means="""What save_for_backward keeps is freed when backward has run, and its version is
        checked. An attribute of ctx is neither. Where it is the Function's own result, the node and
        the tensor keep each other alive until Python's garbage collector runs.""",
        happens="""ctx.y = y in forward, in place of ctx.save_for_backward(y).""",
        fix="""ctx.save_for_backward(y), and ctx.saved_tensors in backward.""",
        example=f"""{_HEAD}

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x * 2
        ctx.y = y  # <-- named
        return y

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


x = torch.rand(3, requires_grad=True)
with autogradviz.record() as trace:
    Double.apply(x).sum().backward()
""",
    ),
    Page(
        slug="hooks-pile-up",
        title="Hooks of one line pile up on one tensor",
        means="""A hook stays until its handle is removed, and so does all that its function refers
        to. Registered in a loop on the same tensor, each backward runs one more. A hint.""",
        happens="""register_hook on a parameter stands inside of the training loop.""",
        fix="""Register it once, before the loop; or keep the handle and call handle.remove().""",
        example=f"""{_HEAD}
net = torch.nn.Linear(3, 3)
with autogradviz.record(net) as trace:
    for step in range(4):
        net.weight.register_hook(lambda gradient: gradient.clamp(-1, 1))  # <-- named
        net(torch.rand(2, 3)).sum().backward()
""",
    ),
    Page(
        slug="leaf-frozen-early",
        title="A leaf was switched off before backward came to it",
        means="""The forward used a tensor that required a gradient; requires_grad was False when
        backward reached it. The gradient was computed and thrown away, and nothing was raised.""",
        happens="""A discriminator is frozen for the generator's step before its own backward, or a
        layer is frozen between a forward and its backward.""",
        fix="""Call backward() first, and switch the parameters off afterwards.""",
        example="""
import torch
import autogradviz

layer = torch.nn.Linear(3, 1)
with autogradviz.record() as trace:
    loss = layer(torch.rand(2, 3)).sum()
    layer.requires_grad_(False)  # <-- named
    loss.backward()
""",
    ),
    Page(
        slug="leaf-never-thawed",
        title="Parameters that were frozen together were not all switched on again",
        means="""One line set requires_grad to False for several parameters. Some of them were
        switched on after a backward, and learn; the others do not, and nothing says so.""",
        happens="""A warm-up freezes the whole backbone, and the thaw names one block of it.""",
        fix="""Switch on what was switched off: keep the list of parameters that were frozen.""",
        example="""
import torch
import autogradviz

net = torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)])
with autogradviz.record() as trace:
    net[:2].requires_grad_(False)  # <-- named
    for step in range(2):
        x = torch.rand(2, 3)
        for layer in net:
            x = layer(x)
        x.sum().backward()
        net[1].requires_grad_(True)
""",
    ),
)
