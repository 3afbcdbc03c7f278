"""Steps of optimizers are recorded without changing them, and what is found about them."""

import copy

import pytest
import torch
from torch import nn

import autogradviz
from autogradviz.events import NoOptimizerFound, OptimizerStepped

FOUND = {
    "step-without-gradients", "parameter-not-updated", "graph-kept", "function-input-written",
    "clip-without-gradients", "gradients-discarded",
}  # fmt: skip


def recorded(work, **options):
    torch.manual_seed(0)
    with autogradviz.record(**options) as trace:
        kept = work()
    del kept
    return trace


def findings(work, **options):
    """Return slug, culprit and confidence of the findings about optimizers."""
    found = recorded(work, **options).diagnose()
    return [(f.slug, f.culprit and f.culprit.text, f.confidence) for f in found if f.slug in FOUND]


def batch():
    return torch.rand(4, 3)


def make(kind=torch.optim.SGD):
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    return net, kind(net.parameters(), lr=0.1)


# --- wrong programs -----------------------------------------------------------------------------


def cleared_after_backward():
    net, optimizer = make()
    for _ in range(3):
        net(batch()).square().mean().backward()
        optimizer.zero_grad()  # <-- named
        optimizer.step()


def zeroed_after_backward():
    net, optimizer = make(torch.optim.Adam)
    for _ in range(3):
        net(batch()).square().mean().backward()
        net.zero_grad(set_to_none=False)  # <-- named
        optimizer.step()


def removed_after_backward():
    net, optimizer = make()
    for _ in range(3):
        net(batch()).square().mean().backward()
        for parameter in net.parameters():
            parameter.grad = None  # <-- named
        optimizer.step()


def stepped_before_backward():
    net, optimizer = make()
    for _ in range(3):
        optimizer.zero_grad()
        loss = net(batch()).square().mean()
        optimizer.step()  # <-- named
        loss.backward()


def head_replaced():
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net[2] = nn.Linear(8, 5)  # <-- named
    for _ in range(3):
        optimizer.zero_grad()
        net(batch()).square().mean().backward()
        optimizer.step()


def weight_parametrized():
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    nn.utils.parametrizations.weight_norm(net[0])  # <-- named
    for _ in range(3):
        optimizer.zero_grad()
        net(batch()).square().mean().backward()
        optimizer.step()


def model_copied():
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net = copy.deepcopy(net)  # <-- named
    for _ in range(3):
        optimizer.zero_grad()
        net(batch()).square().mean().backward()
        optimizer.step()


def group_forgotten():
    net = nn.ModuleDict({"body": nn.Linear(3, 8), "head": nn.Linear(8, 2)})
    optimizer = torch.optim.SGD(net["head"].parameters(), lr=0.1)  # <-- named
    for _ in range(3):
        optimizer.zero_grad()
        net["head"](net["body"](batch())).square().mean().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()


def losses_summed():
    net, optimizer = make()
    total = 0
    for _ in range(5):
        loss = net(batch()).square().mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        total = total + loss  # <-- named
    return total


def losses_listed():
    net, optimizer = make()
    losses = []
    for _ in range(5):
        losses.append(net(batch()).square().mean())  # <-- named
        optimizer.zero_grad()
        losses[-1].backward(retain_graph=True)
        optimizer.step()
    return losses


def zeroed_for_each_micro_batch():
    net, optimizer = make()
    for micro in range(12):
        optimizer.zero_grad()  # <-- named
        (net(batch()).square().mean() / 3).backward()
        if micro % 3 == 2:
            optimizer.step()


def clipped_before_backward():
    net, optimizer = make()
    for _ in range(3):
        optimizer.zero_grad()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # <-- named
        net(batch()).square().mean().backward()
        optimizer.step()


def clipped_by_a_used_generator():
    net = nn.Linear(3, 2)
    parameters = (parameter for parameter in net.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        net(batch()).square().mean().backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)  # <-- named
        optimizer.step()


def optimizer_of_another_model():
    net, optimizer = make()
    other, for_other = make()
    for _ in range(3):
        optimizer.zero_grad()
        net(batch()).square().mean().backward()
        optimizer.step()
        for_other.step()  # <-- named
    return other


WRONG = {
    cleared_after_backward: ("step-without-gradients", "likely"),
    zeroed_after_backward: ("step-without-gradients", "likely"),
    removed_after_backward: ("step-without-gradients", "likely"),
    stepped_before_backward: ("step-without-gradients", "likely"),
    head_replaced: ("parameter-not-updated", "hint"),
    weight_parametrized: ("parameter-not-updated", "hint"),
    model_copied: ("parameter-not-updated", "hint"),
    group_forgotten: ("parameter-not-updated", "hint"),
    zeroed_for_each_micro_batch: ("gradients-discarded", "hint"),
    clipped_before_backward: ("clip-without-gradients", "hint"),
    clipped_by_a_used_generator: ("clip-without-gradients", "hint"),
    optimizer_of_another_model: ("step-without-gradients", "hint"),
    losses_summed: ("graph-kept", "likely"),
    losses_listed: ("graph-kept", "hint"),
}


@pytest.mark.filterwarnings("ignore:`parameters` is an empty generator")
@pytest.mark.parametrize("keep_steps", [None, 3])
@pytest.mark.parametrize("work", WRONG)
def test_mistake_is_reported_at_its_line(work, keep_steps):
    [(slug, line, confidence)] = findings(work, keep_steps=keep_steps)
    assert (slug, confidence) == WRONG[work]
    assert line.endswith("# <-- named")


# --- correct programs ---------------------------------------------------------------------------


def taking_turns():
    """Train a GAN whose generator steps every fifth time, so not in the last three steps."""
    g, d = nn.Linear(3, 3), nn.Linear(3, 1)
    for_g, for_d = (torch.optim.Adam(each.parameters()) for each in (g, d))
    for step in range(8):
        fake = g(batch())
        for_d.zero_grad()
        (d(fake.detach()).mean() - d(batch()).mean()).backward()
        for_d.step()
        if step % 5 == 0:
            for_g.zero_grad()
            (-d(fake).mean()).backward()
            for_g.step()


def generator_waits():
    """Let gradients reach a generator whose optimizer never steps while it is recorded."""
    g, d = nn.Linear(3, 3), nn.Linear(3, 1)
    for_g, for_d = (torch.optim.Adam(each.parameters()) for each in (g, d))
    for _ in range(4):
        for_d.zero_grad()
        d(g(batch())).mean().backward()
        for_d.step()
    return g, d, for_g


def accumulating():
    net, optimizer = make()
    for _ in range(3):
        optimizer.zero_grad()
        for _ in range(3):
            (net(batch()).square().mean() / 3).backward()
        optimizer.step()


def with_closure():
    net, _ = make()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = net(batch()).square().mean()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
        optimizer.zero_grad()


def updated_by_plain_ops():
    net, optimizer = make()
    other = nn.Linear(3, 3)
    for _ in range(3):
        optimizer.zero_grad()
        net(other(batch())).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.sub_(parameter.grad, alpha=0.1)
                parameter.grad = None


def updated_in_hooks():
    net, _ = make()
    optimizers = {p: torch.optim.SGD([p], lr=0.1, foreach=False) for p in net.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        net(batch()).square().mean().backward()
    return net


def frozen_by_rate_zero():
    net = nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 2))
    groups = [{"params": net[0].parameters(), "lr": 0.0}, {"params": net[1].parameters()}]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        net(batch()).square().mean().backward()
        optimizer.step()


def master_weights():
    """Update copies in a wider type, as mixed precision without autocast does."""
    net = nn.Linear(3, 2).bfloat16()
    wide = [p.detach().float().requires_grad_() for p in net.parameters()]
    optimizer = torch.optim.SGD(wide, lr=0.1)
    for _ in range(3):
        net(batch().bfloat16()).square().mean().backward()
        for parameter, copied in zip(net.parameters(), wide, strict=True):
            copied.grad, parameter.grad = parameter.grad.float(), None
        optimizer.step()
        with torch.no_grad():
            for parameter, copied in zip(net.parameters(), wide, strict=True):
                parameter.copy_(copied)


def first_step_before_training():
    net, optimizer = make()
    optimizer.step()
    accumulated = net(batch()).square().mean()
    accumulated.backward()
    optimizer.step()


def values_kept():
    net, optimizer = make()
    before, average, values = None, 0.0, []
    for _ in range(6):
        optimizer.zero_grad()
        loss = net(batch()).square().mean()
        loss.backward(retain_graph=True)
        optimizer.step()
        change = loss - before if before is not None else loss
        before, average = loss, 0.9 * average + 0.1 * loss.detach()
        values.append(loss.item())
        with torch.no_grad():
            values.append(net(batch()))
    return before, average, values, change


def truncated_state():
    cell = nn.GRUCell(3, 3)
    optimizer = torch.optim.Adam(cell.parameters())
    state = torch.zeros(4, 3)
    for _ in range(6):
        optimizer.zero_grad()
        for _ in range(2):
            state = cell(batch(), state)
        state.square().mean().backward()
        optimizer.step()
        state = state.detach()
    return state


def adversarial():
    """Use the gradient of an input, and discard those of the parameters."""
    net, optimizer = make()
    for _ in range(4):
        x = batch()
        shift = torch.zeros_like(x, requires_grad=True)
        net(x + shift).square().mean().backward()
        net.zero_grad()
        net(x + shift.grad.sign()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def sharpness_aware():
    net, optimizer = make()
    for _ in range(4):
        x = batch()
        net(x).square().mean().backward()
        moves = [0.05 * parameter.grad for parameter in net.parameters()]
        with torch.no_grad():
            torch._foreach_add_(list(net.parameters()), moves)
        optimizer.zero_grad()
        net(x).square().mean().backward()
        with torch.no_grad():
            torch._foreach_sub_(list(net.parameters()), moves)
        optimizer.step()
        optimizer.zero_grad()


def gradients_of_each_task():
    net, optimizer = make()
    for _ in range(3):
        found = []
        for _ in range(2):
            optimizer.zero_grad()
            net(batch()).square().mean().backward()
            found.append([parameter.grad for parameter in net.parameters()])
        for parameter, *both in zip(net.parameters(), *found, strict=True):
            parameter.grad = sum(both) / 2
        optimizer.step()


CORRECT = [
    adversarial, sharpness_aware, gradients_of_each_task,
    taking_turns, generator_waits, accumulating, with_closure, updated_by_plain_ops,
    updated_in_hooks, frozen_by_rate_zero, master_weights, first_step_before_training, values_kept,
    truncated_state,
]  # fmt: skip


@pytest.mark.parametrize("keep_steps", [None, 3])
@pytest.mark.parametrize("work", CORRECT)
def test_correct_training_gives_no_finding(work, keep_steps):
    assert findings(work, keep_steps=keep_steps) == []


# --- the recording ------------------------------------------------------------------------------


def test_steps_of_optimizers_are_recorded():
    trace = recorded(head_replaced)
    steps = trace.log.of(OptimizerStepped)
    assert [(s.optimizer_name, len(s.tensor_ids), s.gradient_count) for s in steps] == [
        ("SGD", 4, 2)
    ] * 3
    assert trace.analysis.location(steps[0].stack_id).text == "optimizer.step()"
    [missing] = trace.log.of(NoOptimizerFound)
    assert [trace.analysis.parameters[each][0] for each in missing.tensor_ids] == [
        "Sequential.2.weight", "Sequential.2.bias",
    ]  # fmt: skip


@pytest.mark.parametrize("work", [taking_turns, with_closure, updated_in_hooks])
def test_recording_does_not_change_the_training(work, monkeypatch):
    made = []
    initialize = nn.Linear.__init__

    def remember(self, *args):
        initialize(self, *args)
        made.append(self)

    monkeypatch.setattr(nn.Linear, "__init__", remember)
    torch.manual_seed(0)
    work()
    plain = [parameter.clone() for net in made for parameter in net.parameters()]
    made.clear()
    recorded(work)
    parameters = [parameter for net in made for parameter in net.parameters()]
    assert all(map(torch.equal, plain, parameters))
    assert len(plain) == len(parameters)
