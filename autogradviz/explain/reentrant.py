"""Pages on the pitfalls of ``use_reentrant=True``."""

from __future__ import annotations

from typing import Final

from autogradviz.explain.page import Page

_HEAD: Final = """
import torch
from torch.utils.checkpoint import checkpoint
import autogradviz

net = torch.nn.Linear(3, 3)
"""
_USE_OTHER: Final = "Use use_reentrant=False, which has none of these limits"

PAGES: Final = (
    Page(
        slug="reentrant-needs-backward",
        title="A reentrant checkpoint under torch.autograd.grad",
        means="""The backward of a reentrant region runs a backward of its own that fills .grad. It
        cannot be asked for the gradients of chosen inputs.""",
        happens="""A gradient penalty, meta-learning or backward(inputs=...) goes through a region
        with use_reentrant=True.""",
        fix=f"{_USE_OTHER}.",
        example=f"""{_HEAD}
x = torch.rand(2, 3, requires_grad=True)
with autogradviz.record(net) as trace:
    y = checkpoint(net, x, use_reentrant=True)  # <-- named
    torch.autograd.grad(y.sum(), x)
""",
    ),
    Page(
        slug="reentrant-no-grad-input",
        title="No input of a reentrant checkpoint requires a gradient",
        means="""For autograd a reentrant region is one node, and it is made only where an argument
        requires a gradient. Without one the parameters inside get none. PyTorch warns once.""",
        happens="""The first block of a network is checkpointed: its input is plain data. Tensors in
        lists, dicts and objects do not count as arguments.""",
        fix=f"{_USE_OTHER}; or call x.requires_grad_() on the input.",
        example=f"""{_HEAD}
head = torch.nn.Linear(3, 1)
with autogradviz.record(net) as trace:
    h = checkpoint(net, torch.rand(2, 3), use_reentrant=True)  # <-- named
    head(h).sum().backward()
""",
    ),
    Page(
        slug="reentrant-nested-results",
        title="All that a reentrant region returns lies inside a list or dict",
        means="""A reentrant checkpoint follows what it returns where that is a tensor or a tuple
        of tensors. In a list, a dict or an object nothing is followed: no gradient, no error.""",
        happens="""The checkpointed function returns a dict or a dataclass of tensors.""",
        fix=f"{_USE_OTHER}; or return a tuple of tensors.",
        example=f"""{_HEAD}
def features(x):
    return {{"h": net(x)}}


x = torch.rand(2, 3, requires_grad=True)
with autogradviz.record(net) as trace:
    h = checkpoint(features, x, use_reentrant=True)["h"]  # <-- named
    (h.sum() + x.sum()).backward()
""",
    ),
    Page(
        slug="reentrant-detached-output",
        title="A reentrant region gives nothing that has a gradient",
        means="""For autograd everything that a reentrant region returns requires a gradient. When
        backward ran it again nothing did, so there was nothing to run.""",
        happens="""detach() or no_grad inside of the region.""",
        fix=f"Detach outside of the region. {_USE_OTHER}.",
        example=f"""{_HEAD}
def features(x):
    return net(x).detach()  # <-- named


x = torch.rand(2, 3, requires_grad=True)
with autogradviz.record(net) as trace:
    checkpoint(features, x, use_reentrant=True).sum().backward()
""",
    ),
    Page(
        slug="reentrant-captured-graph",
        title="A reentrant region reads a tensor with a graph that is no argument",
        means="""The arguments of a reentrant region are cut off from their graph while its own
        backward runs. A captured tensor is not: its graph is run there, and once more from the
        loss, and the first of the two frees it.""",
        happens="""A lambda or a method reads a tensor that was computed before, from a closure, a
        global or an attribute.""",
        fix=f"Pass it as an argument. {_USE_OTHER}.",
        example=f"""{_HEAD}
x = torch.rand(2, 3, requires_grad=True)
with autogradviz.record(net) as trace:
    gate = net(x).exp()

    def gated(x):
        return (x * gate).sin()

    y = checkpoint(gated, x, use_reentrant=True)  # <-- named
    (y.sum() + gate.sum()).backward()
""",
    ),
    Page(
        slug="reentrant-side-channel",
        title="The loss uses what a reentrant region left on the side",
        means="""The forward of a reentrant region runs without gradients, and only what it returns
        gets a node. A tensor that it leaves in a list or an attribute is a constant for the loss:
        its gradient is missing, and nothing is raised.""",
        happens="""An auxiliary loss, attention weights or statistics are kept in an attribute.""",
        fix=f"Return it from the region. {_USE_OTHER}.",
        example=f"""{_HEAD}
kept = []


def block(x):
    y = net(x)
    kept.append(y.square().mean())
    return y.exp()


x = torch.rand(2, 3, requires_grad=True)
with autogradviz.record(net) as trace:
    y = checkpoint(block, x, use_reentrant=True)  # <-- named
    (y.sum() + kept[0]).backward()
""",
    ),
    Page(
        slug="reentrant-hook-repeated",
        title="A hook ran once a region, on parts of the gradient",
        means="""The backward of a reentrant region is a backward of its own: it fills .grad and
        calls hooks with its part. A parameter that several regions share has its hook called with
        each part, and not once with the sum.""",
        happens="""Shared weights, and hooks that clip, scale, communicate or step.""",
        fix=f"{_USE_OTHER}; or do the hook's work after backward().",
        example=f"""{_HEAD}
def clip(weight):
    weight.grad.clamp_(-1, 1)


net.weight.register_post_accumulate_grad_hook(clip)
x = torch.rand(2, 3, requires_grad=True)
with autogradviz.record(net) as trace:
    y = checkpoint(net, x, use_reentrant=True)
    y = checkpoint(net, y, use_reentrant=True)  # <-- named
    y.sum().backward()
""",
    ),
)
