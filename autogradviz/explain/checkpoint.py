"""Pages on checkpointed regions that did not run the same way twice."""

from __future__ import annotations

from typing import Final

from autogradviz.explain.page import Page

_HEAD: Final = """
import torch
from torch.utils.checkpoint import checkpoint
import autogradviz
"""

PAGES: Final = (
    Page(
        slug="checkpoint-different-number",
        title="Recomputation saved another number of tensors than forward",
        means="""A checkpointed region runs twice: in forward, and again when backward needs what it
        saved. The second run took another way through the code, so the saves do not match.""",
        happens="""A branch that depends on something which changes between the runs: a counter, a
        training flag, a random choice, a cache that is filled the first time.""",
        fix="""Make the region depend on its arguments alone; decide outside of it and pass the
        decision in.""",
        example=f"""{_HEAD}
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1  # <-- named
        x = x.sin()
        return x.cos().exp() if self.calls == 1 else x.cos()


block = Block()
x = torch.rand(3, requires_grad=True)
with autogradviz.record(block) as trace:
    checkpoint(block, x, use_reentrant=False, early_stop=False).sum().backward()
""",
    ),
    Page(
        slug="checkpoint-early-stop-caught",
        title="What ends a recomputation was caught inside the region",
        means="""Once a recomputation has saved again all that backward needs, checkpoint raises an
        exception of its own to end it. The region's code caught that one too and went on.""",
        happens="""A broad ``except Exception`` or a bare ``except`` inside a checkpointed function,
        often around a fast kernel with a slow one to fall back on.""",
        fix="""Catch what the kernel raises and nothing else; or switch early stop off around the
        backward with set_checkpoint_early_stop(False).""",
        example=f"""{_HEAD}
def block(x):
    try:
        return x.sin().exp()
    except Exception:  # <-- named
        return x.cos()


with autogradviz.record() as trace:
    x = torch.rand(3, requires_grad=True)
    checkpoint(block, x, use_reentrant=False).sum().backward()
""",
    ),
    Page(
        slug="checkpoint-different-metadata",
        title="Recomputation made tensors of other shapes or types",
        means="""The second run of a checkpointed region saved as many tensors as the first, but
        other ones: another shape, dtype or device at the same place.""",
        happens="""A cache that grows at each call, autocast or a default dtype that was on the
        first time only, a random length.""",
        fix="""Keep caches out of the region, or pass them as arguments; enter contexts inside the
        region, or give checkpoint a context_fn.""",
        example=f"""{_HEAD}
cache = []


def attend(x):
    cache.append(x.detach())  # <-- named
    return (x @ torch.cat(cache).T).exp()


x = torch.rand(2, 3, requires_grad=True)
with autogradviz.record() as trace:
    checkpoint(attend, x, use_reentrant=False).sum().backward()
""",
    ),
    Page(
        slug="checkpoint-more-saved",
        title="Recomputation saved more tensors than forward",
        means="""The second run of a checkpointed region saved a tensor too many: it did work that
        the first run had not done.""",
        happens="""A cache that forward found filled had been emptied when backward ran; a lazy part
        is built again.""",
        fix="""Do not clear what a region reads before backward has run.""",
        example=f"""{_HEAD}
cache = {{"scale": torch.ones(3)}}


def scaled(x):
    x = x.sin()
    if "scale" not in cache:
        cache["scale"] = (x * x).exp().detach()
    return x * cache["scale"]


def step(x):
    y = checkpoint(scaled, x, use_reentrant=False, early_stop=False)
    cache.clear()  # <-- named
    y.sum().backward()


with autogradviz.record() as trace:
    step(torch.rand(3, requires_grad=True))
""",
    ),
    Page(
        slug="checkpoint-state-changed",
        title="Something that the region reads changed, and running it again failed",
        means="""Forward ran well; the same code raised when backward ran it again, because an
        attribute, a list, a variable or a dict was not what it had been.""",
        happens="""The region takes items from a list or an iterator, or reads what the loop around
        it has replaced.""",
        fix="""Pass what changes as an argument.""",
        example=f"""{_HEAD}
scales = [torch.ones(3)]


def scaled(x):
    return (x * scales.pop()).sin()  # <-- named


x = torch.rand(3, requires_grad=True)
with autogradviz.record() as trace:
    checkpoint(scaled, x, use_reentrant=False).sum().backward()
""",
    ),
    Page(
        slug="checkpoint-context-missing",
        title="A context of the forward was not there when the region ran again",
        means="""Forward ran inside a context (a function mode, an attention backend, a default
        dtype) that had been left when backward ran the region again, and then the region failed
        or did something else.""",
        happens="""Checkpoint restores autocast, random states and grad mode, and no other
        context.""",
        fix="""Enter the context inside of the region, keep it open around backward, or give
        checkpoint a context_fn that enters it for both runs.""",
        example=f"""from contextlib import contextmanager
{_HEAD}

@contextmanager
def default(dtype):
    torch.set_default_dtype(dtype)
    yield
    torch.set_default_dtype(torch.float32)


def product(x):
    return (x @ torch.ones(3, 3)).exp()


x = torch.rand(2, 3, dtype=torch.float64, requires_grad=True)
with autogradviz.record() as trace:
    with default(torch.float64):  # <-- named
        y = checkpoint(product, x, use_reentrant=False)
    y.sum().backward()
""",
    ),
    Page(
        slug="checkpoint-random-state",
        title="The region drew another random number, and running it again failed",
        means="""The region draws from Python's or NumPy's generator, which checkpoint does not
        restore. The second draw led the second run where it failed.""",
        happens="""random.random(), random.choice() or numpy.random inside of the region.""",
        fix="""Draw outside and pass the number in, or draw with torch.rand, whose state checkpoint
        restores.""",
        example=f"""import random
{_HEAD}
scales = [torch.ones(3)]


def scaled(x):
    return (x * scales[int(random.random() > 0.9)]).sin()  # <-- named


x = torch.rand(3, requires_grad=True)
with autogradviz.record() as trace:
    random.seed(0)
    y = checkpoint(scaled, x, use_reentrant=False)
    random.seed(2)
    y.sum().backward()
""",
    ),
    Page(
        slug="checkpoint-random-not-restored",
        title="Dropout or another draw was not the same when the region ran again",
        means="""The region drew random numbers with preserve_rng_state=False, so that recomputation
        drew others: the gradient belongs to another mask than the loss. Nothing is raised.""",
        happens="""preserve_rng_state=False is set for speed, and dropout is inside of the
        region.""",
        fix="""Leave preserve_rng_state at True, or put the random part outside.""",
        example=f"""{_HEAD}
def noisy(x):
    return torch.nn.functional.dropout(x.sin(), 0.5).cos()


x = torch.rand(64, requires_grad=True)
with autogradviz.record() as trace:
    y = checkpoint(noisy, x, use_reentrant=False, preserve_rng_state=False)  # <-- named
    y.sum().backward()
""",
    ),
    Page(
        slug="checkpoint-not-repeatable",
        title="The region asks for what is never the same twice",
        means="""A checkpointed region asks a clock or takes from an iterator: the second run got
        another answer, and failed.""",
        happens="""time.time(), next(iterator) or id(...) inside of the region.""",
        fix="""Ask outside of the region, and pass the answer in.""",
        example=f"""import time
{_HEAD}

def scaled(x):
    if time.monotonic_ns() > deadline:  # <-- named
        raise TimeoutError
    return (x * 2).sin()


x = torch.rand(3, requires_grad=True)
with autogradviz.record() as trace:
    deadline = time.monotonic_ns() + 300_000_000
    y = checkpoint(scaled, x, use_reentrant=False)
    time.sleep(0.4)
    y.sum().backward()
""",
    ),
    Page(
        slug="checkpoint-effect-repeated",
        title="A buffer was updated twice",
        means="""A checkpointed region runs twice, and so does all that it does besides computing.
        Gradients are right; running statistics, counters and caches drift.""",
        happens="""BatchNorm, a moving average or a counter of calls inside of the region.""",
        fix="""Leave the layer that updates a buffer out of the region, or use a norm without
        running statistics.""",
        example=f"""{_HEAD}
net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 3))
x = torch.rand(4, 3, requires_grad=True)
with autogradviz.record(net) as trace:
    checkpoint(net, x, use_reentrant=False).sum().backward()  # <-- named
""",
    ),
)
