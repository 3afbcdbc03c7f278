"""Fixes change the statement of the user, and name the line that is to be moved."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import autogradviz


def first_finding(step):
    """Return the first finding of a step with a linear layer, and the audit of the recording."""
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    with contextlib.suppress(RuntimeError), autogradviz.record(model) as trace:
        step(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return trace.diagnose()[0], trace.audit()


def train(model, optimizer, steps=4):
    for _ in range(steps):
        loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        optimizer.step()


def cleared_once(model, optimizer):
    optimizer.zero_grad()
    for _ in range(4):
        loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        optimizer.step()


def cleared_too_late(model, optimizer):
    for _ in range(4):
        loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        optimizer.zero_grad()
        optimizer.step()


@pytest.mark.parametrize(("step", "after"), [(cleared_once, 1), (cleared_too_late, 4)])
def test_a_fix_names_the_line_that_clears_gradients_at_the_wrong_place(step, after):
    finding, _ = first_finding(step)
    line = step.__code__.co_firstlineno + after
    name = __file__.rpartition("/")[2]
    assert f"optimizer.zero_grad()  # moved here from {name}:{line}" in finding.fix


def test_a_fix_without_such_a_line_names_none():
    finding, _ = first_finding(train)
    assert finding.fix == "optimizer.step()\noptimizer.zero_grad()  # before the next backward"


def trained_by_other_names(model, given):
    opt = given
    for _ in range(4):
        total = model(torch.ones(1, 2)).sum()
        total.backward()
        opt.step()


def trained_by_two(model, optimizer):
    other = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        other.step()


@pytest.mark.parametrize(
    ("step", "name"), [(trained_by_other_names, "opt"), (trained_by_two, "other")]
)
def test_a_fix_has_the_name_of_the_optimizer_of_its_line(step, name):
    finding, _ = first_finding(step)
    assert finding.slug == "gradients-not-cleared"
    assert f"{name}.zero_grad()" in finding.fix


def test_what_a_write_into_part_of_a_tensor_reads_is_computed_first():
    def scan(rewritten):
        weight = torch.rand(3, requires_grad=True)
        states = torch.zeros(4, 3)
        states[0] = weight
        for t in range(3):
            if rewritten:
                written = weight * states[t]
                states = states.clone()
                states[t + 1] = written
            else:
                states[t + 1] = weight * states[t]
        states.sum().backward()
        return weight

    with contextlib.suppress(RuntimeError), autogradviz.record() as trace:
        scan(rewritten=False)
    assert trace.diagnose()[0].fix == (
        "written = weight * states[t]\nstates = states.clone()\nstates[t + 1] = written"
    )
    assert scan(rewritten=True).grad is not None


def test_numbers_of_one_finding_count_steps():
    finding, [entry, *_] = first_finding(train)
    assert "It was so in 3 of 3 steps that follow another one." in finding.explanation
    assert entry.effect.endswith("contain those of earlier steps, in 3 backwards")


def gives_numpy(model, _):
    return model(torch.ones(1, 2)).numpy()


def asks_for_unused(model, _):
    unused = torch.ones(2, requires_grad=True)
    loss = model(torch.ones(1, 2)).sum()
    return torch.autograd.grad(loss, [model.weight, unused])


def uses_inference_tensor(model, _):
    with torch.inference_mode():
        x = torch.ones(1, 2)
    model(x).sum().backward()


def targets_are_floats(model, _):
    y = torch.zeros(4)
    loss = torch.nn.CrossEntropyLoss()(model(torch.rand(4, 2)), y)
    loss.backward()


@pytest.mark.parametrize(
    ("step", "fix"),
    [
        (
            targets_are_floats,
            "loss = torch.nn.CrossEntropyLoss()(model(torch.rand(4, 2)), y.long())",
        ),
        (gives_numpy, "return model(torch.ones(1, 2)).detach().numpy()"),
        (
            asks_for_unused,
            "return torch.autograd.grad(loss, [model.weight, unused], allow_unused=True)"
            "  # the gradient of an unused input is None",
        ),
        (
            uses_inference_tensor,
            "with torch.no_grad():  # or clone() the tensor outside inference_mode\n    ...",
        ),
    ],
)
def test_the_fix_of_an_exception_is_a_changed_statement(step, fix):
    finding, _ = first_finding(step)
    assert finding.fix == fix


def clipped_before_unscale(model, sgd):
    amp = torch.amp.GradScaler("cpu")
    for _ in range(3):
        sgd.zero_grad()
        amp.scale(model(torch.ones(1, 2)).sum()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=2.0)
        amp.step(sgd)
        amp.update()


def test_a_fix_has_the_names_of_the_scaler_and_the_call_that_clips():
    finding, _ = first_finding(clipped_before_unscale)
    assert finding.fix == (
        "amp.unscale_(sgd)\n"
        "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=2.0)\n"
        "amp.step(sgd)"
    )


def difference_of_pairs(model, sgd):
    out, labels = model(torch.rand(4, 2)), torch.rand(4)
    mse = ((out - labels) ** 2).mean()
    mse.backward()
    sgd.step()


def loss_module_of_pairs(model, sgd):
    criterion, labels = torch.nn.MSELoss(), torch.rand(4)
    mse = criterion(model(torch.rand(4, 2)), labels)
    mse.backward()
    sgd.step()


def row_and_column(model, sgd):
    out, labels = model(torch.rand(4, 2)), torch.rand(1, 1, 4)
    mse = torch.nn.functional.l1_loss(out, labels)
    mse.backward()
    sgd.step()


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize(
    ("step", "fix"),
    [
        (difference_of_pairs, "mse = ((out.squeeze(-1) - labels) ** 2).mean()"),
        (loss_module_of_pairs, "mse = criterion(model(torch.rand(4, 2)).squeeze(-1), labels)"),
        (row_and_column, "mse = torch.nn.functional.l1_loss(out, labels.reshape_as(out))"),
    ],
)
def test_a_fix_gives_the_tensors_of_a_loss_one_shape(step, fix):
    finding, _ = first_finding(step)
    assert (finding.slug, finding.fix) == ("loss-broadcast", fix)


def target_with_graph(model, sgd):
    states = torch.rand(4, 2)
    now, later = model(states), model(states + 1)
    td = torch.nn.functional.mse_loss(now, 1 + 0.9 * later)
    td.backward()
    sgd.step()


def test_a_fix_detaches_the_target_of_a_loss():
    finding, _ = first_finding(target_with_graph)
    assert finding.fix == "td = torch.nn.functional.mse_loss(now, (1 + 0.9 * later).detach())"


def reentrant_without_input(model, sgd):
    hidden = checkpoint(model, torch.rand(4, 2), use_reentrant=True)
    (hidden.sum() + sum(p.sum() for p in torch.nn.Linear(2, 2).parameters())).backward()
    sgd.step()


def test_a_fix_has_the_checkpointed_call():
    finding, _ = first_finding(reentrant_without_input)
    assert finding.fix.startswith(
        "hidden = checkpoint(model, torch.rand(4, 2), use_reentrant=False)"
    )


class Normalized(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(2, 5), torch.nn.Softmax(-1))

    def forward(self, x):
        return self.layers(x)


def softmax_module_before_loss(_, sgd):
    scores = Normalized()(torch.rand(4, 2))
    loss = torch.nn.functional.cross_entropy(scores, torch.zeros(4, dtype=torch.long))
    loss.backward()


def softmax_before_loss(_, sgd):
    probs = torch.softmax(torch.nn.Linear(2, 5)(torch.rand(4, 2)), dim=1)
    loss = torch.nn.functional.cross_entropy(probs, torch.zeros(4, dtype=torch.long))
    loss.backward()


def softmax_before_nll(_, sgd):
    probs = torch.softmax(torch.nn.Linear(2, 5)(torch.rand(4, 2)), dim=1)
    loss = torch.nn.functional.nll_loss(probs, torch.zeros(4, dtype=torch.long))
    loss.backward()


@pytest.mark.parametrize(
    ("step", "fix"),
    [
        (
            softmax_module_before_loss,
            "self.layers[1] = torch.nn.Identity()  # in place of Softmax",
        ),
        (softmax_before_loss, "probs = torch.nn.Linear(2, 5)(torch.rand(4, 2))"),
        (
            softmax_before_nll,
            "probs = torch.log_softmax(torch.nn.Linear(2, 5)(torch.rand(4, 2)), dim=1)",
        ),
    ],
)
def test_a_fix_gives_a_loss_what_it_takes(step, fix):
    with autogradviz.record() as trace:
        step(None, None)
    finding = trace.diagnose()[0]
    assert (finding.slug, finding.fix) == ("loss-of-probabilities", fix)


def number_made_a_leaf(model, _):
    error = model(torch.rand(4, 2)).square()
    loss = torch.tensor(error.mean().item(), requires_grad=True)
    loss.backward()


def numbers_stacked(model, _):
    parts = [model(torch.rand(4, 2)).sum() for _ in range(2)]
    loss = torch.tensor([parts[0], parts[1]], requires_grad=True).sum()
    loss.backward()


def rounded(model, _):
    steps = model(torch.rand(4, 2)).round()
    steps.sum().backward()


def accuracy_read(model, _):
    y = torch.zeros(4, dtype=torch.long)
    accuracy = (model(torch.rand(4, 2)).argmax(1) == y).float().mean()
    loss = torch.tensor(1 - accuracy.item(), requires_grad=True)
    loss.backward()


def accuracy_as_loss(model, _):
    y = torch.zeros(4, dtype=torch.long)
    loss = 1 - (torch.max(model(torch.rand(4, 2)), 1)[1] == y).float().mean()
    loss.backward()


def accuracy_of_indices(model, _):
    y = torch.zeros(4, dtype=torch.long)
    found = model(torch.rand(4, 2)).argmax(1)
    found = found.eq(y).float().mean()
    (1 - found).backward()


def index_chosen(model, _):
    index = model(torch.rand(4, 2)).argmax(1)
    index.float().sum().backward()


def samples_drawn(model, _):
    mean = model(torch.rand(4, 2))
    z = torch.distributions.Normal(mean, torch.ones(4, 1)).sample()
    (z.square().sum() + 0 * mean.sum()).backward()


def sampled_without_gradients(model, _):
    mean = model(torch.rand(4, 2))
    with torch.no_grad():
        z = torch.distributions.Normal(mean, torch.ones(4, 1)).sample()
    (z.square().sum() + 0 * mean.sum()).backward()


def updated_through_data(model, sgd):
    both = (model.weight, model.bias)
    gradient, _ = torch.autograd.grad(model(torch.ones(1, 2)).sum(), both)
    fast = model.weight.data - 0.1 * gradient.data
    fast.requires_grad_(True)
    torch.nn.functional.linear(torch.ones(1, 2), fast).sum().backward()
    sgd.step()


def without_grad_mode(model, _):
    with torch.no_grad():
        x = torch.rand(4, 2)
        out = model(x)
    loss = out.sum()
    loss.backward()


@pytest.mark.filterwarnings("ignore:Converting a tensor")
@pytest.mark.parametrize(
    ("step", "fix"),
    [
        (number_made_a_leaf, "loss = error.mean()"),
        (numbers_stacked, "loss = torch.stack([parts[0], parts[1]]).sum()"),
        (
            accuracy_read,
            "# an accuracy has no gradient: use a loss, as "
            "torch.nn.functional.cross_entropy(model(torch.rand(4, 2)), y)",
        ),
        (
            accuracy_as_loss,
            "# an accuracy has no gradient: use a loss, as "
            "torch.nn.functional.cross_entropy(model(torch.rand(4, 2)), y)",
        ),
        (
            accuracy_of_indices,
            "# an accuracy has no gradient: use a loss, as "
            "torch.nn.functional.cross_entropy(model(torch.rand(4, 2)), y)",
        ),
        (index_chosen, "index = model(torch.rand(4, 2)).softmax(1)"),
        (
            samples_drawn,
            "z = torch.distributions.Normal(mean, torch.ones(4, 1)).rsample()\n# a distribution "
            "without rsample, as Categorical: use its log_prob(sample) in the loss",
        ),
        (sampled_without_gradients, "# compute what the loss needs outside this block"),
    ],
)
def test_a_fix_keeps_the_gradient_of_a_statement(step, fix):
    finding, _ = first_finding(step)
    assert finding.fix == fix


def test_a_fix_has_the_statement_that_is_to_leave_a_block_without_gradients():
    finding, _ = first_finding(without_grad_mode)
    assert finding.fix == "out = model(x)  # outside of the no_grad block"


def with_two_losses(model, sgd):
    fake = model(torch.rand(4, 2))
    judge = torch.nn.Linear(1, 1)
    judge_sgd = torch.optim.SGD(judge.parameters(), lr=0.1)
    first = judge(fake).sum() + judge(torch.rand(4, 1)).sum()
    first.backward()
    judge_sgd.step()
    judge(fake).sum().backward()
    sgd.step()


def logarithm_of_zero(model, sgd):
    odds = model(torch.zeros(4, 2)) * 0
    loss = torch.log(odds).sum()
    loss.backward()


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        return x * factor

    @staticmethod
    def backward(ctx, arrived):
        return arrived * 0.5


def backward_of_one_gradient(model, sgd):
    Halved.apply(model(torch.rand(4, 2)), 0.5).sum().backward()


class Ignored(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x * x).sum()

    @staticmethod
    def backward(ctx, arrived):
        (x,) = ctx.saved_tensors
        return 2 * x


def backward_of_no_factor(model, sgd):
    Ignored.apply(model(torch.rand(4, 2))).backward()


def leaf_lost(model, sgd):
    weight = torch.rand(2, requires_grad=True)
    for _ in range(2):
        weight.square().sum().backward()
        weight = weight - 0.1 * weight.grad


def hooks_of_a_loop(model, sgd):
    for _ in range(4):
        model.weight.register_hook(lambda grad: grad.clamp(-1, 1))
        model(torch.rand(4, 2)).sum().backward()
        sgd.step()
        sgd.zero_grad()


def penalty_without_graph(model, sgd):
    x = torch.rand(4, 2, requires_grad=True)
    score = model(x).square().sum()
    slope = torch.autograd.grad(score, x, retain_graph=True)[0]
    (score + slope.square().sum()).backward()
    sgd.step()


def written_between_runs(model, sgd):
    x = torch.rand(4, 2)
    y = checkpoint(model, x, use_reentrant=False)
    x.mul_(2)
    y.square().sum().backward()


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize(
    ("step", "fix"),
    [
        (
            with_two_losses,
            "first = judge(fake.detach()).sum() + judge(torch.rand(4, 1)).sum()\n"
            "# this loss does not train what computed fake",
        ),
        (
            logarithm_of_zero,
            "loss = torch.log(odds.clamp_min(1e-08)).sum()  # or log_softmax, log1p, logsumexp",
        ),
        (
            backward_of_one_gradient,
            "return (arrived * 0.5, None)  # as many as forward has arguments, each of its shape",
        ),
        (backward_of_no_factor, "return arrived * (2 * x)"),
        (leaf_lost, "with torch.no_grad():\n    weight -= 0.1 * weight.grad"),
        (
            hooks_of_a_loop,
            "handle = model.weight.register_hook(lambda grad: grad.clamp(-1, 1))\n"
            "...\nhandle.remove()  # or register it once",
        ),
        (
            penalty_without_graph,
            "slope = torch.autograd.grad(score, x, retain_graph=True, create_graph=True)[0]\n"
            "# or detach() the term, if it is meant as a constant",
        ),
        (written_between_runs, "x = x.mul(2)  # write to a new tensor, or after backward()"),
    ],
)
def test_a_fix_is_the_changed_statement(step, fix):
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    with contextlib.suppress(RuntimeError, TypeError), autogradviz.record(model) as trace:
        step(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert fix in [finding.fix for finding in trace.diagnose()]


def chain_of_writes(model, sgd):
    model(torch.rand(4, 2)).sigmoid_().mul_(2).sum().backward()


def test_a_chain_of_writes_is_rewritten_as_one_statement():
    finding, _ = first_finding(chain_of_writes)
    assert finding.fix == "model(torch.rand(4, 2)).sigmoid().mul(2).sum().backward()"


class Narrow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 4)
        self.last = torch.nn.Linear(5, 2, bias=False)

    def forward(self, x):
        return self.last(self.first(x))


def wrong_features(model, sgd):
    Narrow()(torch.rand(4, 3)).sum().backward()


def wrong_dtype(model, sgd):
    features = torch.from_numpy(torch.rand(4, 2).double().numpy())
    model(features).sum().backward()


def of_numpy(model, sgd):
    array = torch.rand(4, 2).double().numpy()
    features = torch.from_numpy(array)
    model(features).sum().backward()


@pytest.mark.parametrize(
    ("step", "fix"),
    [
        (wrong_features, "self.last = torch.nn.Linear(4, 2, bias=False)"),
        (wrong_dtype, "features = torch.from_numpy(torch.rand(4, 2).numpy())"),
        (of_numpy, "features = torch.from_numpy(array).to(torch.float32)"),
    ],
)
def test_the_fix_of_a_refused_product_gives_its_operands_one_dtype_and_shape(step, fix):
    with contextlib.suppress(RuntimeError), autogradviz.record() as trace:
        step(torch.nn.Linear(2, 1), None)
    first = trace.diagnose()[0]
    if step is wrong_features:
        fix += f"  # at {__file__.rpartition('/')[2]}:{first.culprit.lineno}: it gets 4 features"
        assert first.culprit.text.startswith("self.last = ")
    assert first.fix == fix


def test_a_cut_of_parameters_whose_returned_gradients_nothing_uses_says_so():
    model = torch.nn.Linear(2, 1)
    with autogradviz.record(model) as trace:
        updated_through_data(model, torch.optim.SGD(model.parameters(), lr=0.1))
    [cut] = trace.audit().of("cut")
    assert cut.effect.endswith("gets no gradient: weight")
    assert cut.fix == "fast = model.weight - 0.1 * gradient\n# if the gradient is wanted here"


def replaced_head(model, _):
    net = torch.nn.Sequential(model, torch.nn.Linear(1, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    net[1] = torch.nn.Linear(1, 3)
    for _ in range(3):
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        net.zero_grad()


def test_a_fix_moves_the_statement_of_the_optimizer_below_the_line_that_replaced_parameters():
    finding, _ = first_finding(replaced_head)
    line = replaced_head.__code__.co_firstlineno + 3
    statement = "optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)"
    assert finding.fix.startswith(f"{statement}  # after line {line}\n")


def rounded_and_shown(model, optimizer):
    shown = {}
    value = model(torch.ones(1, 2)).sum()
    value = shown["loss"] = round(value.item(), 5)
    (value * torch.ones(1, requires_grad=True)).sum().backward()


def rounded_to_scale(model, optimizer):
    value = model(torch.ones(1, 2)).sum()
    factor = round(value.item(), 5)
    (factor * torch.ones(1, requires_grad=True)).sum().backward()


@pytest.mark.parametrize(
    ("step", "fix"),
    [
        (rounded_and_shown, "shown['loss'] = round(value.item(), 5)"),
        (rounded_to_scale, "# use the tensor itself, without .item()"),
    ],
)
def test_a_function_of_python_gets_no_tensor_in_a_fix(step, fix):
    finding, _ = first_finding(step)
    assert finding.fix.startswith(fix)
