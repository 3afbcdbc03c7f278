"""Steps of optimizers are recorded without changing them, and what is found about them."""

import copy

import pytest
import torch
from torch import nn

import autogradviz
from autogradviz.events import FrozenTensorsFound, NoOptimizerFound, OptimizerStepped

FOUND = {
    "step-without-gradients", "parameter-not-updated", "graph-kept", "function-input-written",
    "clip-without-gradients", "gradients-discarded", "gradients-not-cleared", "clip-after-step",
    "clip-before-unscale", "scaler-without-scale",
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


def metric_averaged():
    net, optimizer = make(torch.optim.SGD)
    average = 0.0
    for _ in range(4):
        optimizer.zero_grad()
        result = net(batch())
        result.square().mean().backward()
        optimizer.step()
        error = result - 1  # <-- named
        average = 0.9 * average + 0.1 * error.abs().mean()


class Queue(nn.Module):
    def __init__(self, *, detached):
        super().__init__()
        self.net, self.detached = nn.Linear(3, 3), detached
        self.register_buffer("queue", torch.zeros(6, 3))

    def forward(self, x):
        y = self.net(x)
        self.queue[: len(y)] = y.detach() if self.detached else y  # <-- named
        return y


def queue_with_graphs(*, detached=False):
    net = Queue(detached=detached)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        net(batch()).square().mean().backward()
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


def cleared_in_the_branch_that_does_not_run(use_scaler=True):
    net = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for _ in range(4):
        net(batch()).square().mean().backward()
        if use_scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
            optimizer.zero_grad()  # <-- named


def never_cleared():
    net, optimizer = make(torch.optim.Adam)
    for _ in range(4):
        net(batch()).square().mean().backward()
        optimizer.step()  # <-- named


def another_optimizer_cleared():
    """Clear the generator's gradients twice, and the discriminator's never."""
    g, d = nn.Linear(3, 3), nn.Linear(3, 1)
    for_g, for_d = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (g, d))
    for _ in range(4):
        fake = g(batch())
        for_g.zero_grad()
        (d(fake.detach()).mean() - d(batch()).mean()).backward()
        for_d.step()  # <-- named
        for_g.zero_grad()
        (-d(fake).mean()).backward()
        for_g.step()


def closure_without_clearing():
    net, optimizer = make(torch.optim.LBFGS)
    x = batch()

    def closure():
        loss = net(x).square().mean()
        loss.backward()  # <-- named
        return loss

    optimizer.step(closure)


def closure_of_each_step_without_clearing():
    net, optimizer = make()

    def closure():
        loss = net(batch()).square().mean()
        loss.backward()  # <-- named
        return loss

    for _ in range(4):
        optimizer.step(closure)


def helper_of_a_closure_without_clearing():
    net, optimizer = make(torch.optim.LBFGS)
    x = batch()

    def compute():
        loss = net(x).square().mean()
        loss.backward()
        return loss

    def closure():
        return compute()  # <-- named

    optimizer.step(closure)


def clipped_after_step():
    net, optimizer = make()
    for _ in range(3):
        optimizer.zero_grad(set_to_none=False)
        net(batch()).square().mean().backward()
        optimizer.step()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)  # <-- named


def clipped_while_scaled():
    net, optimizer = make()
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(3):
        optimizer.zero_grad()
        scaler.scale(net(batch()).square().mean()).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)  # <-- named
        scaler.step(optimizer)
        scaler.update()


def loss_not_scaled():
    net, optimizer = make()
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.zeros(()))
    for _ in range(3):
        optimizer.zero_grad()
        net(batch()).square().mean().backward()  # <-- named
        scaler.step(optimizer)
        scaler.update()


class PlainTemperature(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 2)
        self.temperature = torch.ones(1, requires_grad=True)  # <-- named

    def forward(self, x):
        return self.inner(x) / self.temperature


def tensor_that_is_no_parameter():
    net = PlainTemperature()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        net(batch()).square().mean().backward()
        optimizer.step()


class LayersInAList(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.more = [nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(2)]  # <-- named

    def forward(self, x):
        x = self.first(x)
        for layer in self.more:
            x = layer(x)
        return x


def layers_in_a_list():
    net = LayersInAList()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        net(batch()).square().mean().backward()
        optimizer.step()


class LayerInForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)

    def forward(self, x):
        return nn.Linear(3, 2)(self.first(x))  # <-- named


def layer_made_in_forward():
    net = LayerInForward()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        net(batch()).square().mean().backward()
        optimizer.step()


def target_network_with_gradients():
    net, optimizer = make()
    target = copy.deepcopy(net)
    for _ in range(3):
        value = target(batch())  # <-- named
        optimizer.zero_grad()
        (net(batch()) - value).square().mean().backward()
        optimizer.step()
        target.load_state_dict(net.state_dict())


class Values(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

    def forward(self, x):
        return self.layers(x)


def make_values():
    online, target = Values(), Values()
    target.load_state_dict(online.state_dict())
    return online, target, torch.optim.SGD(online.parameters(), lr=0.1)


def chosen(network, x, action):
    values = network(x)
    return values.gather(1, action).squeeze(1)


def target_network_of_the_same_class():
    online, target, optimizer = make_values()
    for _ in range(3):
        value = 0.9 * target(batch()).max(1)[0]  # <-- named
        optimizer.zero_grad()
        (online(batch()).max(1)[0] - value).square().mean().backward()
        optimizer.step()
        for new, old in zip(online.parameters(), target.parameters(), strict=True):
            old.data.mul_(0.9).add_(0.1 * new.data)


def target_network_in_a_shared_function():
    online, target, optimizer = make_values()
    for _ in range(3):
        best = online(batch()).argmax(1, keepdim=True)
        value = chosen(target, batch(), best)  # <-- named
        optimizer.zero_grad()
        (chosen(online, batch(), best) - value).square().mean().backward()
        optimizer.step()
        target.load_state_dict(online.state_dict())


def target_network_on_the_line_of_the_other():
    online, target, optimizer = make_values()
    for _ in range(3):
        loss = nn.functional.mse_loss(online(batch()), 0.9 * target(batch()))  # <-- named
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        target.load_state_dict(online.state_dict())


def values_with_a_graph_loaded():
    """Compute weights from a learned factor, and load them, which drops their graph."""
    net, factor = nn.Linear(3, 2), nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([factor], lr=0.1)
    for _ in range(3):
        scaled = {name: factor * value.detach() for name, value in net.named_parameters()}
        net.load_state_dict(scaled)  # <-- named
        optimizer.zero_grad()
        net(batch()).square().mean().backward()
        optimizer.step()


def copies_trained():
    net, optimizer = make()
    for _ in range(3):
        replicas = [copy.deepcopy(net) for _ in range(2)]  # <-- named
        optimizer.zero_grad()
        sum(replica(batch()).square().mean() for replica in replicas).backward()
        optimizer.step()


def average_with_graph():
    """Keep the graphs of all losses in an average that dies with the function."""
    net, optimizer = make()
    average = torch.zeros(())
    for _ in range(4):
        loss = net(batch()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average = 0.9 * average + 0.1 * loss  # <-- named


def tensor_without_requires_grad():
    net, _ = make()
    optimizer = torch.optim.SGD([torch.zeros(1, 3), *net.parameters()], lr=0.1)  # <-- named
    prompt = optimizer.param_groups[0]["params"][0]
    for _ in range(4):
        optimizer.zero_grad()
        net(batch() + prompt).square().mean().backward()
        optimizer.step()


def optimizer_of_a_detached_tensor():
    weight = torch.rand(3, requires_grad=True)
    bias = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight.detach(), bias], lr=0.1)  # <-- named
    for _ in range(4):
        optimizer.zero_grad()
        (batch() * weight + bias).square().mean().backward()
        optimizer.step()


def optimizer_of_the_data_of_a_parameter():
    net = nn.Linear(3, 2)
    optimizer = torch.optim.SGD([net.weight.data, net.bias], lr=0.1)  # <-- named
    for _ in range(4):
        optimizer.zero_grad()
        net(batch()).square().mean().backward()
        optimizer.step()


WRONG = {
    tensor_without_requires_grad: ("step-without-gradients", "hint"),
    optimizer_of_a_detached_tensor: ("step-without-gradients", "hint"),
    optimizer_of_the_data_of_a_parameter: ("parameter-not-updated", "hint"),
    never_cleared: ("gradients-not-cleared", "hint"),
    cleared_in_the_branch_that_does_not_run: ("gradients-not-cleared", "hint"),
    closure_of_each_step_without_clearing: ("gradients-not-cleared", "hint"),
    closure_without_clearing: ("gradients-not-cleared", "hint"),
    helper_of_a_closure_without_clearing: ("gradients-not-cleared", "hint"),
    clipped_after_step: ("clip-after-step", "hint"),
    clipped_while_scaled: ("clip-before-unscale", "hint"),
    loss_not_scaled: ("scaler-without-scale", "hint"),
    tensor_that_is_no_parameter: ("parameter-not-updated", "hint"),
    layers_in_a_list: ("parameter-not-updated", "hint"),
    layer_made_in_forward: ("parameter-not-updated", "hint"),
    target_network_with_gradients: ("parameter-not-updated", "hint"),
    target_network_of_the_same_class: ("parameter-not-updated", "hint"),
    target_network_in_a_shared_function: ("parameter-not-updated", "hint"),
    target_network_on_the_line_of_the_other: ("parameter-not-updated", "hint"),
    values_with_a_graph_loaded: ("parameter-not-updated", "hint"),
    copies_trained: ("step-without-gradients", "hint"),
    average_with_graph: ("graph-kept", "hint"),
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
    metric_averaged: ("graph-kept", "hint"),
    queue_with_graphs: ("graph-kept", "hint"),
    losses_listed: ("graph-kept", "hint"),
}


@pytest.mark.filterwarnings("ignore:`parameters` is an empty generator")
@pytest.mark.parametrize("keep_steps", [None, 3])
@pytest.mark.parametrize("work", WRONG)
def test_mistake_is_reported_at_its_line(work, keep_steps):
    [(slug, line, confidence)] = findings(work, keep_steps=keep_steps)
    assert (slug, confidence) == WRONG[work]
    assert line.endswith("# <-- named")


def test_gradients_that_another_optimizer_clears_are_reported():
    # Each iteration has two steps, so the last three steps show no second sum.
    [(slug, line, confidence)] = findings(another_optimizer_cleared)
    assert (slug, confidence) == ("gradients-not-cleared", "hint")
    assert line.endswith("# <-- named")


def test_a_loss_of_the_average_of_a_network_is_to_be_of_the_network():
    def work():
        online, target, optimizer = make_values()
        for _ in range(3):
            optimizer.zero_grad()
            target(batch()).square().mean().backward()
            optimizer.step()
            for new, old in zip(online.parameters(), target.parameters(), strict=True):
                old.data.lerp_(new.data, 0.1)

    [finding] = [each for each in recorded(work).diagnose() if each.slug == "parameter-not-updated"]
    assert finding.fix.startswith("# call here the network that the optimizer has")


def test_a_queue_of_detached_values_is_no_finding():
    assert not findings(lambda: queue_with_graphs(detached=True))


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


def scaled_and_clipped():
    net, optimizer = make()
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(3):
        optimizer.zero_grad(set_to_none=False)
        scaler.scale(net(batch()).square().mean()).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()


def discriminator_cleared_before_its_loss():
    """Let the generator's backward add to the discriminator's gradients, and clear them then."""
    g, d = nn.Linear(3, 3), nn.Linear(3, 1)
    for_g, for_d = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (g, d))
    for step in range(4):
        fake = g(batch())
        for_d.zero_grad(set_to_none=step % 2 == 0)
        (d(fake.detach()).mean() - d(batch()).mean()).backward()
        for_d.step()
        for_g.zero_grad()
        (-d(fake).mean()).backward()
        for_g.step()


def line_search():
    net, optimizer = make(torch.optim.LBFGS)
    x = batch()

    def closure():
        optimizer.zero_grad()
        for half in x.chunk(2):
            loss = net(half).square().mean()
            loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)


def moving_average_of_values():
    net, optimizer = make()
    average = torch.zeros(())
    for _ in range(4):
        loss = net(batch()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average = (0.9 * average + 0.1 * loss).detach()


def target_network():
    net, optimizer = make()
    target = copy.deepcopy(net)
    for _ in range(3):
        with torch.no_grad():
            value = target(batch())
        optimizer.zero_grad()
        (net(batch()) - value).square().mean().backward()
        optimizer.step()
        target.load_state_dict(net.state_dict())


def target_of_the_same_network():
    online, _, optimizer = make_values()
    for _ in range(3):
        value = 0.9 * online(batch()).max(1)[0].detach()
        optimizer.zero_grad()
        (online(batch()).max(1)[0] - value).square().mean().backward()
        optimizer.step()


def target_of_both_networks():
    online, target, optimizer = make_values()
    for _ in range(3):
        best = online(batch()).argmax(1, keepdim=True)
        value = chosen(target, batch(), best).detach()
        optimizer.zero_grad()
        nn.functional.smooth_l1_loss(chosen(online, batch(), best), value).backward()
        optimizer.step()
        for new, old in zip(online.parameters(), target.parameters(), strict=True):
            old.data.mul_(0.9).add_(0.1 * new.data)


def learned_input():
    """Keep a leaf that requires a gradient in an attribute, and use its gradient."""
    net, optimizer = make()
    net.input = batch().requires_grad_()
    for _ in range(3):
        optimizer.zero_grad()
        net(net.input).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            net.input -= 0.1 * net.input.grad
        net.input.grad = None


def frozen_layer_in_the_group():
    net, optimizer = make()
    net[0].requires_grad_(False)
    for _ in range(4):
        optimizer.zero_grad()
        net(batch()).square().mean().backward()
        optimizer.step()


def frozen_tensor_in_a_list():
    weights = [torch.rand(3, 3, requires_grad=True) for _ in range(2)]
    weights[0].requires_grad_(False)
    optimizer = torch.optim.SGD(weights, lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        (batch() @ weights[0] @ weights[1]).square().mean().backward()
        optimizer.step()


def thawed_after_two_steps():
    """Train the last layer first; the optimizer has both from the beginning."""
    net, optimizer = make()
    net[0].requires_grad_(False)
    for step in range(5):
        net[0].requires_grad_(step > 1)
        for _ in range(2):
            net(batch()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def gradients_set_by_hand():
    """Estimate the gradient of a tensor that autograd does not know, beside a trained model."""
    net, _ = make()
    scale = torch.ones(3)
    optimizer = torch.optim.SGD([scale, *net.parameters()], lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        net(batch() * scale).square().mean().backward()
        scale.grad = torch.rand(3)
        optimizer.step()


CORRECT = [
    frozen_layer_in_the_group, thawed_after_two_steps,
    gradients_set_by_hand,
    scaled_and_clipped, discriminator_cleared_before_its_loss, line_search, learned_input,
    moving_average_of_values, target_network, target_of_the_same_network, target_of_both_networks,
    adversarial, sharpness_aware, gradients_of_each_task,
    taking_turns, generator_waits, accumulating, with_closure, updated_by_plain_ops,
    updated_in_hooks, frozen_by_rate_zero, master_weights, first_step_before_training, values_kept,
    truncated_state,
]  # fmt: skip


@pytest.mark.one_in(6, reason="trains each model", in_ci=2)
@pytest.mark.parametrize("keep_steps", [None, 3])
@pytest.mark.parametrize("work", CORRECT)
def test_correct_training_gives_no_finding(work, keep_steps):
    assert findings(work, keep_steps=keep_steps) == []


# --- the recording ------------------------------------------------------------------------------


def zeroed_in_place():
    net, optimizer = make()
    for _ in range(3):
        optimizer.zero_grad(set_to_none=False)
        net(batch()).square().mean().backward()
        optimizer.step()


def test_gradients_added_to_zeros_are_not_mixed_with_those_of_earlier_steps():
    assert [entry.effect for entry in recorded(zeroed_in_place).audit()] == []
    [entry] = recorded(never_cleared).audit().of("mix")
    assert "contain those of earlier steps" in entry.effect


def test_steps_of_optimizers_are_recorded():
    trace = recorded(head_replaced)
    steps = trace.log.of(OptimizerStepped)
    assert [(s.optimizer_name, len(s.tensor_ids), s.gradient_count) for s in steps] == [
        ("SGD", 4, 2)
    ] * 3
    assert trace.analysis.location(steps[0].stack_id).text == "optimizer.step()"
    [missing] = trace.log.of(NoOptimizerFound)
    names = [trace.analysis.parameters[each][0] for each in missing.tensor_ids]
    assert [name.partition(".")[2] for name in names] == ["2.weight", "2.bias"]


def test_frozen_tensors_of_optimizers_are_recorded_with_each_step():
    log = recorded(thawed_after_two_steps).log
    steps, frozen = log.of(OptimizerStepped), log.of(FrozenTensorsFound)
    assert [event.tensor_ids for event in frozen] == [steps[0].tensor_ids[:2]] * 2
    assert [a.seq < b.seq for a, b in zip(frozen, steps, strict=False)] == [True, True]
    assert [event.plain_tensor_ids for event in frozen] == [(), ()]
    assert list(recorded(gradients_set_by_hand).log.of(FrozenTensorsFound)) == []
    [event, *_] = recorded(optimizer_of_a_detached_tensor).log.of(FrozenTensorsFound)
    assert event.plain_tensor_ids == event.tensor_ids != ()


def test_tensor_that_the_program_froze_is_not_reported():
    assert findings(frozen_tensor_in_a_list) == []


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


@pytest.mark.parametrize("forgotten", ["D", "G"])
def test_one_of_two_optimizers_that_is_not_cleared_is_named(forgotten):
    torch.manual_seed(0)
    nets = {"D": nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)), "G": nn.Linear(3, 2)}
    optimizers = {name: torch.optim.SGD(net.parameters(), 0.01) for name, net in nets.items()}
    criterion = nn.BCEWithLogitsLoss()

    def clear(name):
        if name != forgotten:
            optimizers[name].zero_grad()

    with autogradviz.record(nn.ModuleDict(nets), keep_steps=3) as trace:
        for _ in range(5):
            fake = nets["G"](torch.randn(4, 3))
            clear("D")
            criterion(nets["D"](torch.randn(4, 2)), torch.ones(4, 1)).backward()
            criterion(nets["D"](fake.detach()), torch.zeros(4, 1)).backward()
            optimizers["D"].step()
            clear("G")
            criterion(nets["D"](fake), torch.ones(4, 1)).backward()
            optimizers["G"].step()
    finding = trace.diagnose()[0]
    assert finding.slug == "gradients-not-cleared"
    assert finding.culprit.text == f'optimizers["{forgotten}"].step()'
    entry = next(each for each in trace.audit() if "earlier steps" in each.effect)
    assert entry.location == finding.culprit


def test_losses_that_one_optimizer_sums_are_no_finding():
    """As in a GAN, whose generator has an optimizer of its own."""
    nets = nn.ModuleDict({"D": nn.Linear(2, 1), "G": nn.Linear(3, 2)})
    optimizers = {name: torch.optim.SGD(net.parameters(), 0.01) for name, net in nets.items()}
    with autogradviz.record(nets, keep_steps=3) as trace:
        for _ in range(5):
            fake = nets["G"](torch.randn(4, 3))
            optimizers["D"].zero_grad()
            (-nets["D"](torch.randn(4, 2)).mean()).backward()
            nets["D"](fake.detach()).mean().backward()
            optimizers["D"].step()
            optimizers["G"].zero_grad()
            (-nets["D"](fake).mean()).backward()
            optimizers["G"].step()
    assert trace.diagnose() == []
    assert any("sums over 2 losses" in each.effect for each in trace.audit())
