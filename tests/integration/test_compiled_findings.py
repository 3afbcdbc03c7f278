"""Bugs of compiled training: the first finding names the marked lines; the right twin gives none.

In each program the line to change ends with the mark ``# <program culprit>``, the line that suffers
with ``# <program victim>``.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._functorch import config as aot_config
from torch.autograd import graph
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import autogradviz

HERE = Path(__file__)
EAGER = functools.partial(torch.compile, backend="aot_eager")
INDUCTOR = functools.partial(torch.compile, backend="inductor")
BUGS = {}


@pytest.fixture(autouse=True)
def fresh_compiler():
    """Compile in every test."""
    torch.manual_seed(0)
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def bug(slug, *, raises=None, compiler=EAGER, words=()):
    """Register a program with the finding that it gives."""

    def register(work):
        BUGS[work.__name__] = (work, slug, raises, compiler, words)
        return work

    return register


def line_of(name, role):
    """Return the number of the line with a mark, None without one."""
    lines = HERE.read_text(encoding="utf-8").splitlines()
    found = [n for n, line in enumerate(lines, 1) if line.endswith(f"# <{name} {role}>")]
    return found[0] if found else None


def diagnosed(work, *args, engine="python", raises=None):
    """Run a program under recording; return its findings."""
    if raises is None:
        with autogradviz.record(engine=engine) as trace:
            work(*args)
    else:
        with pytest.raises(raises), autogradviz.record(engine=engine) as trace:
            work(*args)
    return trace.diagnose()


def place(location):
    """Return the line of a location in this file."""
    return location and (Path(location.filename).name == HERE.name) and location.lineno


# --- donated buffers --------------------------------------------------------------------------


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(6, 3), nn.Linear(3, 6)

    def forward(self, x):
        return self.decode(torch.tanh(self.encode(x)).exp())


@bug("compiled-buffers-donated", raises=RuntimeError, words=["exp", "overwrite"])
def weight_of_a_second_loss(compiled):
    net = Autoencoder()
    step = compiled(net)
    for epoch in range(3):
        x = torch.randn(4, 6)
        out = step(x)  # <weight_of_a_second_loss victim>
        loss = (out - x).abs().mean()
        if epoch:
            loss.backward(retain_graph=True)  # <weight_of_a_second_loss culprit>
            loss = loss + out.square().mean()
        loss.backward()


@bug("compiled-buffers-donated", raises=RuntimeError, words=["create_graph"])
def penalty_after_plain_steps(compiled):
    @compiled
    def score(x, w):
        return torch.sigmoid(x @ w).exp()

    w = torch.randn(3, 1, requires_grad=True)
    x = torch.randn(2, 3, requires_grad=True)
    score(x, w).sum().backward()
    total = score(x, w).sum()  # <penalty_after_plain_steps victim>
    torch.autograd.grad(total, x, create_graph=True)  # <penalty_after_plain_steps culprit>


# --- two backwards through one region -----------------------------------------------------------


@bug(
    "compiled-region-backward-twice", raises=RuntimeError, words=["one autograd node", "exp", "sin"]
)
def two_losses_of_one_function(compiled):
    a, b = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
    both = compiled(lambda: (a.exp(), b.sin()))
    first, second = both()  # <two_losses_of_one_function victim>
    (grad,) = torch.autograd.grad(first.sum(), a)  # <two_losses_of_one_function culprit>
    (second.sum() + grad.sum()).backward()


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 1)

    def forward(self, x):
        h = torch.tanh(self.trunk(x))
        return {"left": self.left(h).exp(), "right": self.right(h).sigmoid()}


@bug("compiled-region-backward-twice", raises=RuntimeError, words=["eager mode both need"])
def two_heads_on_a_trunk(compiled):
    heads = compiled(Shared())(torch.rand(3, 4))  # <two_heads_on_a_trunk victim>
    losses = [value.mean() for value in heads.values()]
    losses[1].backward()  # <two_heads_on_a_trunk culprit>
    losses[0].backward()


@bug("compiled-region-backward-twice", raises=RuntimeError, words=["earlier step"])
def hidden_state_is_kept(compiled):
    cell = nn.GRUCell(3, 3)

    @compiled
    def step(x, h):
        new = cell(x, h)
        return new.square(), new * 1

    hidden = torch.zeros(2, 3)
    for _ in range(2):
        out, hidden = step(torch.rand(2, 3), hidden)  # <hidden_state_is_kept culprit>
        out.sum().backward()


# --- written between forward and backward ---------------------------------------------------------


@bug("compiled-saved-value-written", compiler=INDUCTOR, words=["version counter of its own"])
def refilled_batch(compiled):
    linear = nn.Linear(5, 3, bias=False)

    def model(x):
        h = x.reshape(-1, 5)
        return (linear(h) * 2).sum()  # <refilled_batch victim>

    batch = torch.rand(2, 2, 5)
    loss = compiled(model)(batch)
    batch.uniform_()  # <refilled_batch culprit>
    loss.backward()


@bug("compiled-saved-value-written", compiler=INDUCTOR)
def state_is_normalized(compiled):
    state, w = torch.rand(4, 3), torch.rand(3, 2, requires_grad=True)

    @compiled
    def read(s):
        return (s @ w).exp()  # <state_is_normalized victim>

    for _ in range(2):
        out = read(state)
        state.div_(state.norm())  # <state_is_normalized culprit>
        out.sum().backward()


@bug("compiled-saved-value-written")
def written_through_data(compiled):
    x, w = torch.rand(2, 3), torch.rand(2, 3, requires_grad=True)

    @compiled
    def product(x):
        y = x * w  # <written_through_data victim>
        return y.sum()

    loss = product(x)
    x.data.zero_()  # <written_through_data culprit>
    loss.backward()


@bug("saved-tensor-mutated", raises=RuntimeError, words=["compiled region"])
def noticed_write(compiled):
    x, w = torch.rand(2, 3), torch.rand(2, 3, requires_grad=True)

    @compiled
    def product(x):
        z = w * 2
        return (x * z).sum()  # <noticed_write victim>

    loss = product(x)
    x.zero_()  # <noticed_write culprit>
    loss.backward()


# --- graph break inside checkpoint ----------------------------------------------------------------


@torch._dynamo.disable
def outside(x):
    return x * 2


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def limit(self, h):
        return outside(h)  # <disabled_inside_checkpoint culprit>

    def forward(self, x):
        return self.limit(self.linear(x).relu())


@bug("compiled-checkpoint-eager", words=["eagerly", "ops of the code around it are compiled"])
def disabled_inside_checkpoint(compiled):
    net = Noisy()

    @compiled
    def model(x):
        h = x.sin()
        h = checkpoint(net, h, use_reentrant=False)  # <disabled_inside_checkpoint victim>
        return h.cos()

    model(torch.rand(2, 3, requires_grad=True)).sum().backward()


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        h = self.linear(x)
        if h.sum().item() > 0:  # <branch_in_a_loop culprit>
            h = h * 2
        return h


@bug("compiled-checkpoint-eager")
def branch_in_a_loop(compiled):
    blocks = nn.ModuleList([Branching(), Branching()])

    @compiled
    def model(x):
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False)  # <branch_in_a_loop victim>
        return x

    model(torch.rand(2, 3, requires_grad=True)).sum().backward()


# --- hooks that are not inlined -------------------------------------------------------------------


def pack_half(tensor):
    return tensor.dtype, tensor.half()


def unpack_half(packed):
    return packed[1].to(packed[0])


@bug("compiled-hooks-not-inlined", words=["GraphModules", "pack_half"])
def half_precision_hooks(compiled):
    net = nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1))
    step = compiled(net)
    hooks = graph.saved_tensors_hooks(pack_half, unpack_half)
    for _ in range(2):
        with hooks:  # <half_precision_hooks culprit>
            loss = step(torch.rand(3, 4)).sum()
        loss.backward()  # <half_precision_hooks victim>


@bug("compiled-hooks-not-inlined")
def offloaded(compiled):
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))
    step = compiled(net)
    with graph.save_on_cpu():  # <offloaded culprit>
        loss = step(torch.rand(3, 4)).sum()
    loss.backward()  # <offloaded victim>


# --- double backward ------------------------------------------------------------------------------


@bug("compiled-double-backward", raises=RuntimeError)
def critic_penalty(compiled):
    critic = compiled(nn.Sequential(nn.Linear(3, 4), nn.Softplus(), nn.Linear(4, 1)))
    real, fake = torch.rand(2, 3), torch.rand(2, 3)
    mixed = torch.lerp(real, fake, 0.5).requires_grad_()
    score = critic(mixed)  # <critic_penalty victim>
    (grad,) = torch.autograd.grad(  # <critic_penalty culprit>
        score.sum(), mixed, create_graph=True
    )
    penalty = (grad.norm(dim=1) - 1).square().mean()
    (score.mean() + penalty).backward()


@bug("compiled-double-backward", raises=RuntimeError)
def hessian_product(compiled):
    w, v = torch.rand(3, requires_grad=True), torch.rand(3)
    energy = compiled(lambda w: (w.exp() * w).sum())
    out = energy(w)  # <hessian_product victim>
    out.backward(create_graph=True)  # <hessian_product culprit>
    torch.autograd.grad((w.grad * v).sum(), w)


# --- errors inside compiled code ------------------------------------------------------------------


@bug("compiled-op-failed", raises=IndexError, words=["index out of range"])
def index_out_of_range(compiled):
    table = nn.Embedding(4, 2)

    @compiled
    def model(words, scale):
        h = table(words)  # <index_out_of_range culprit>
        return (h * scale).tanh()

    model(torch.tensor([0, 9]), torch.rand(2)).sum().backward()  # <index_out_of_range victim>


@bug("compiled-op-failed", raises=Exception)
def shapes_do_not_fit(compiled):
    w = torch.rand(3, 3, requires_grad=True)

    @compiled
    def model(x):
        h = x.exp()
        return h @ w  # <shapes_do_not_fit culprit>

    model(torch.rand(2, 4)).sum().backward()  # <shapes_do_not_fit victim>


class Rows(torch.autograd.Function):
    """Doubles its input; its backward selects rows."""

    @staticmethod
    def forward(ctx, x, rows):
        ctx.save_for_backward(rows)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        (rows,) = ctx.saved_tensors
        return torch.index_select(grad, 0, rows), None  # <failing_formula culprit>


@bug("compiled-op-failed", raises=IndexError, words=["index_select"])
def failing_formula(compiled):
    step = compiled(lambda x, rows: Rows.apply(x, rows).sum())
    x = torch.rand(3, 2, requires_grad=True)
    step(x, torch.tensor([0, 1, 8])).backward()  # <failing_formula victim>


@bug("compiled-op-failed", raises=Exception)
def cannot_be_traced(compiled):
    @functools.partial(compiled, fullgraph=True)
    def model(x):
        y = x.exp()
        if y.mean() > 0:  # <cannot_be_traced culprit>
            y = y * 2
        return y

    model(torch.rand(2, 4, requires_grad=True)).sum().backward()  # <cannot_be_traced victim>


# --- hooks that are registered late ---------------------------------------------------------------


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        features = self.body(x).relu()
        return self.head(features), features


@bug("compiled-output-bypassed", words=["relu", "addmm", "retain_grad"])
def class_activation_map(compiled):
    step = compiled(Classifier())
    logits, features = step(torch.rand(3, 4))  # <class_activation_map victim>
    features.retain_grad()  # <class_activation_map culprit>
    logits[:, 0].sum().backward()
    assert features.grad is None


@bug("compiled-output-bypassed", raises=AttributeError, words=["the hook"])
def activation_hook(compiled):
    step = compiled(Classifier())
    logits, features = step(torch.rand(3, 4))  # <activation_hook victim>
    features.register_hook(lambda grad: grad.clamp(max=1))  # <activation_hook culprit>
    logits.sum().backward()


def activation_map_of_two_regions(compiled):
    net = Classifier()
    body, head = compiled(lambda x: net.body(x).relu()), compiled(net.head)
    features = body(torch.rand(3, 4))
    features.retain_grad()
    head(features)[:, 0].sum().backward()
    assert features.grad is not None


def hook_on_an_output_of_the_loss(compiled):
    logits, features = compiled(Classifier())(torch.rand(3, 4))
    features.retain_grad()
    (logits.sum() + features.square().sum()).backward()
    assert features.grad is not None


def gradient_of_the_features_alone(compiled):
    logits, features = compiled(Classifier())(torch.rand(3, 4))
    logits.retain_grad()  # from which the loss is not computed, in eager mode neither
    features.sum().backward()


@pytest.mark.parametrize(
    "work",
    [activation_map_of_two_regions, hook_on_an_output_of_the_loss, gradient_of_the_features_alone],
)
def test_hook_that_gets_what_it_would_get_in_eager_mode_is_no_finding(work):
    assert "compiled-output-bypassed" not in [each.slug for each in diagnosed(work, EAGER)]


@bug("compiled-budget-ignored", words=["0.1", "had been compiled"])
def late_budget(compiled):
    net = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))
    step = compiled(net)
    step(torch.rand(32, 64)).sum().backward()
    with aot_config.patch(activation_memory_budget=0.1):  # <late_budget culprit>
        step(torch.rand(32, 64)).sum().backward()  # <late_budget victim>


def test_budget_is_found_if_the_region_was_compiled_before_the_recording():
    net = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))
    step = EAGER(net)
    step(torch.rand(32, 64)).sum().backward()

    def train():
        step(torch.rand(32, 64)).sum().backward()

    assert diagnosed(train) == []
    with aot_config.patch(activation_memory_budget=0.1):
        (finding,) = diagnosed(train)
    assert (finding.slug, finding.confidence) == ("compiled-budget-ignored", "hint")


@bug("compiled-hook-ignored")
def late_forward_hook(compiled):
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    step, seen = compiled(net), []
    step(torch.rand(2, 3)).sum().backward()
    net[1].register_forward_hook(lambda *_: seen.append(1))  # <late_forward_hook culprit>
    step(torch.rand(2, 3)).sum().backward()  # <late_forward_hook victim>
    assert not seen


@bug("compiled-hook-ignored")
def late_backward_hook(compiled):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), nn.Linear(3, 1)

        def forward(self, x):
            return self.head(self.body(x))

    net = Net()
    step, seen = compiled(net), []
    for n in range(3):
        loss = step(torch.rand(2, 3)).sum()  # <late_backward_hook victim>
        loss.backward()
        if n == 0:
            net.body.register_full_backward_hook(  # <late_backward_hook culprit>
                lambda *_: seen.append(1)
            )
    assert not seen


# --- recompilations -------------------------------------------------------------------------------


class Scheduled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.rate, self.stage = nn.Linear(3, 3), 0.5, "a"

    def forward(self, x):
        if self.rate > 0.2:  # <changing_attribute victim>
            x = x * 2
        return self.linear(x)


@bug("recompile-storm", words=["rate"])
def changing_attribute(compiled):
    net = Scheduled()
    step = functools.partial(compiled, dynamic=False)(net)
    for n in range(4):
        net.rate = 1 / (n + 1)  # <changing_attribute culprit>
        step(torch.rand(2, 3)).sum().backward()


@bug("recompile-storm", words=["stage"])
def changing_argument(compiled):
    linear, config = nn.Linear(3, 3), {"stage": ""}

    @compiled
    def model(x):
        if config["stage"].endswith("z"):  # <changing_argument victim>
            return x
        return linear(x)

    for n in range(4):
        config["stage"] = f"stage {n}"  # <changing_argument culprit>
        model(torch.rand(2, 3)).sum().backward()


# --- recomputations -------------------------------------------------------------------------------


class Switched(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.deep = nn.Linear(3, 3), False

    def forward(self, x):
        y = torch.tanh(self.linear(x))
        return y.sin() * y.exp() if self.deep else y


@bug("compiled-recompute-differs", words=["deep"])
def recomputed_by_another_graph(compiled):
    net = Switched()
    step = compiled(net)
    x = torch.rand(2, 3, requires_grad=True)
    y = checkpoint(step, x, use_reentrant=False)  # <recomputed_by_another_graph victim>
    net.deep = True  # <recomputed_by_another_graph culprit>
    y.sum().backward()


@bug("compiled-recompute-differs", words=["training"])
def recomputed_in_another_mode(compiled):
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0))
    x = torch.rand(2, 3, requires_grad=True)
    y = checkpoint(compiled(net), x, use_reentrant=False)  # <recomputed_in_another_mode victim>
    net.eval()  # <recomputed_in_another_mode culprit>
    y.sum().backward()


@bug("compiled-recompute-differs", raises=Exception)
def recomputed_eagerly(compiled):
    step = compiled(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)))
    x = torch.rand(2, 3, requires_grad=True)
    y = checkpoint(step, x, use_reentrant=False)  # <recomputed_eagerly victim>
    torch.compiler.set_stance("force_eager")  # <recomputed_eagerly culprit>
    try:
        y.sum().backward()
    finally:
        torch.compiler.set_stance("default")


@bug("compiled-recompute-at-once", words=["5 recomputed checkpoint regions", "partitioner"])
def regions_are_multiplied(compiled):
    def block(x, n):
        return (x + n).sin().exp().tanh()

    @compiled
    def model(x):
        parts = [checkpoint(block, x, n, use_reentrant=False) for n in range(5)]
        total = x
        for part in parts:
            total = total * part  # <regions_are_multiplied culprit>
        return total

    loss = model(torch.rand(32, 32, requires_grad=True)).sum()
    loss.backward()  # <regions_are_multiplied victim>


@bug("compiled-recompute-at-once", words=["4 recomputed checkpoint regions"])
def gated_blocks(compiled):
    gates = nn.Parameter(torch.rand(4))

    def block(x, gate):
        return (x * gate).cos().tanh().exp()

    @compiled
    def model(x):
        total = torch.ones(())
        for n in range(4):
            part = checkpoint(block, x, gates[n], use_reentrant=False)
            total = (total + 1) * part  # <gated_blocks culprit>
        return total

    model(torch.rand(32, 16, requires_grad=True)).sum().backward()


# --- memory ---------------------------------------------------------------------------------------


@bug("compiled-budget-ignored", words=["0.1"])
def budget_below_the_inputs(compiled):
    layers = [nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 4)]
    step = compiled(nn.Sequential(*layers))
    budget = torch._functorch.config.patch(activation_memory_budget=0.1)
    with budget:
        step(torch.rand(32, 64)).sum().backward()


def composite_ops(_ctx, op, *_args, **_kwargs):
    saved = op in {torch.ops.aten.linear.default, torch.ops.aten.matmul.default}
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE


@bug("compiled-policy-ignored", words=["aten.addmm.default"])
def policy_for_composite_ops(compiled):
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    contexts = functools.partial(create_selective_checkpoint_contexts, composite_ops)
    model = compiled(lambda x: checkpoint(net, x, use_reentrant=False, context_fn=contexts))
    model(torch.rand(2, 4, requires_grad=True)).sum().backward()


@bug("compiled-value-expensive", words=["recomputable"])
def large_product(compiled):
    w = torch.rand(16, 4096, requires_grad=True)

    @compiled
    def model(x):
        h = x @ w  # <large_product culprit>
        return h.sin().sum()

    model(torch.rand(128, 16)).backward()  # <large_product victim>


# --- the tests ------------------------------------------------------------------------------------


def check(name, engine):
    work, slug, raises, compiler, words = BUGS[name]
    findings = diagnosed(work, compiler, engine=engine, raises=raises)
    assert findings, "no finding"
    first = findings[0]
    assert first.slug == slug
    culprit = line_of(name, "culprit")
    assert culprit is None or place(first.culprit) == culprit
    assert culprit is not None or place(first.culprit)
    victim = line_of(name, "victim")
    assert victim is None or place(first.victim) == victim
    assert len(first.explanation.splitlines()) <= 30
    for word in words:
        assert word in first.title + first.explanation


COLD = [name for name, (*_, compiler, _) in BUGS.items() if compiler is EAGER]
SLOW = [name for name, (*_, compiler, _) in BUGS.items() if compiler is INDUCTOR]


@pytest.mark.one_in(12, reason="compiles each program", in_ci=2)
@pytest.mark.parametrize("name", COLD)
def test_first_finding_names_the_line(name):
    check(name, "python")


@pytest.mark.slow(reason="Inductor compiles C++")
@pytest.mark.parametrize("name", SLOW)
def test_first_finding_names_the_line_with_inductor(name):
    with torch._inductor.utils.fresh_cache():
        check(name, "python")


BEFORE = """import torch

@torch.compile
def project(x, w):
    return x @ w

def step():
    x, w = torch.rand(2, 3), torch.rand(3, 3, requires_grad=True)
    loss = project(x, w).sum()
    x.zero_()
    loss.backward()
"""


@pytest.mark.slow(reason="Inductor compiles C++")
def test_line_of_a_region_from_the_cache_is_where_it_is_today(tmp_path):
    def run(text, name):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        names = {"__name__": "example"}
        torch.compiler.reset()
        with autogradviz.record() as trace:
            exec(compile(text, str(path), "exec"), names)
            names["step"]()
        (region,) = trace.compiled_regions()
        first = trace.diagnose()[0]
        return region.cache, Path(first.victim.filename).name, first.victim.lineno

    with torch._inductor.utils.fresh_cache():
        assert run(BEFORE, "before.py") == ("miss", "before.py", 5)
        assert run("\n\n\n" + BEFORE, "after.py") == ("hit", "after.py", 8)


NATIVE = [
    "weight_of_a_second_loss", "two_losses_of_one_function", "written_through_data",
    "disabled_inside_checkpoint", "half_precision_hooks", "critic_penalty", "index_out_of_range",
    "late_forward_hook", "changing_argument", "recomputed_by_another_graph", "class_activation_map",
    "activation_hook", "late_budget",
]  # fmt: skip


@pytest.mark.slow(reason="`make test-native-findings` runs all of them")
@pytest.mark.parametrize("name", NATIVE)
def test_native_engine_gives_the_same_finding(native, name):
    check(name, "native")
