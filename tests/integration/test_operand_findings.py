"""Shapes, dropped results, formulas and sums that are legal, and rarely what was meant."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import autogradviz


@pytest.fixture(params=["python", "native"])
def engine(request):
    if request.param == "native":
        request.getfixturevalue("native")
    return request.param


def net(outputs=1):
    torch.manual_seed(0)
    return torch.nn.Linear(3, outputs)


def found(step, engine, outputs=1):
    """Return the slugs of the findings of a step, and the text of their lines."""
    model = net(outputs)
    plain = net(outputs)
    torch.manual_seed(1)
    step(plain)
    torch.manual_seed(1)
    with autogradviz.record(model, engine=engine) as trace:
        step(model)
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a.grad, b.grad) if b.grad is not None else a.grad is None
    return [(each.slug, each.culprit.text) for each in trace.diagnose()]


# --- losses of all pairs ------------------------------------------------------------------------


def subtract(model):
    ((model(torch.rand(8, 3)) - torch.rand(8)) ** 2).mean().backward()


def loss_function(model):
    functional.huber_loss(model(torch.rand(8, 3)), torch.rand(8)).backward()


def batch_of_one(model):
    ((model(torch.rand(1, 3)) - torch.rand(1)) ** 2).mean().backward()


def same_shape(model):
    ((model(torch.rand(8, 3)).squeeze(-1) - torch.rand(8)) ** 2).mean().backward()


def ranking(model):
    scores = model(torch.rand(8, 3)).squeeze(-1)
    torch.relu(1 - (scores[:, None] - scores)).mean().backward()


def distances(model):
    points = model(torch.rand(8, 3))
    (-(points - points.detach().t()).square()).exp().mean().backward()


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("step", [subtract, loss_function])
def test_loss_of_all_pairs(step, engine):
    [(slug, line)] = found(step, engine)
    assert slug == "loss-broadcast"
    assert "torch.rand(8)" in line


@pytest.mark.parametrize("step", [batch_of_one, same_shape, ranking, distances])
def test_pairs_that_are_meant_are_not_reported(step, engine):
    assert "loss-broadcast" not in dict(found(step, engine))


# --- weights and noise ----------------------------------------------------------------------------


def weights_of_all_samples(model):
    advantages = torch.rand(8)
    (-model(torch.rand(8, 3)).sigmoid().log() * advantages).mean().backward()


def weights_of_each_sample(model):
    advantages = torch.rand(8, 1)
    (-model(torch.rand(8, 3)).sigmoid().log() * advantages).mean().backward()


def loss_that_broadcasts(model):
    x = torch.rand(8, 3)
    functional.mse_loss(model(x), x.exp()).backward()


def sum_that_is_missing(model):
    x = torch.rand(8, 3)
    entropy = x.log() * x
    target = torch.rand(8, 1) - 0.2 * entropy
    functional.mse_loss(model(x), target).backward()


def loss_of_expanded(model):
    x = torch.rand(8, 3)
    functional.mse_loss(model(x).expand(8, 3), x).backward()


def products_of_all_pairs(model):
    x = model(torch.rand(8, 3)).squeeze(-1)
    (x[:, None] * x).mean().backward()


def noise_of_one_sample(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        noise = torch.randn(3).clamp(-1, 1)
        model(torch.rand(8, 3) + 0.1 * noise).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def noise_like_one_sample(model):
    action = torch.zeros(3)
    noise = torch.randn_like(action).clamp(-1, 1)
    model(torch.rand(8, 3) + 0.1 * noise).mean().backward()


def random_scales(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scales = torch.rand(3)
    for _ in range(2):
        model(torch.rand(8, 3) * scales).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def noise_of_each_sample(model):
    model(torch.rand(8, 3) + 0.1 * torch.randn(8, 3)).mean().backward()


def one_factor(model):
    model(torch.rand(8, 3) * torch.rand(1)).mean().backward()


def paths_are_dropped(model):
    kept = torch.empty(8, 1).bernoulli_(0.5)
    (model(torch.rand(8, 3)) * kept).mean().backward()


def test_weights_of_other_samples(engine):
    assert [slug for slug, _ in found(weights_of_all_samples, engine)] == ["loss-broadcast"]


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_loss_function_that_broadcasts(engine):
    assert [slug for slug, _ in found(loss_that_broadcasts, engine)] == ["loss-broadcast"]


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_the_line_that_has_a_dimension_too_many_is_named(engine):
    assert found(sum_that_is_missing, engine) == [("loss-broadcast", "entropy = x.log() * x")]


@pytest.mark.parametrize("step", [noise_of_one_sample, noise_like_one_sample])
def test_noise_that_all_samples_share(step, engine):
    [(slug, line)] = found(step, engine)
    assert slug == "noise-broadcast"
    assert line.startswith("noise = ")


@pytest.mark.parametrize(
    "step",
    [weights_of_each_sample, loss_of_expanded, products_of_all_pairs, noise_of_each_sample,
     one_factor, random_scales, paths_are_dropped],
)  # fmt: skip
def test_weights_and_noise_of_each_sample_are_not_reported(step, engine):
    assert not {"loss-broadcast", "noise-broadcast"} & dict(found(step, engine)).keys()


def target_of_the_same_model(model):
    now, later = model(torch.rand(8, 3)), model(torch.rand(8, 3))
    functional.smooth_l1_loss(now, 0.9 * later).backward()


def detached_target(model):
    now, later = model(torch.rand(8, 3)), model(torch.rand(8, 3))
    functional.smooth_l1_loss(now, 0.9 * later.detach()).backward()


def target_of_another_model(model):
    functional.mse_loss(model(torch.rand(8, 3)), torch.nn.Linear(2, 1)(torch.rand(8, 2))).backward()


def test_a_target_that_is_trained_as_well(engine):
    [(slug, line)] = found(target_of_the_same_model, engine)
    assert slug == "loss-target-trained"
    assert "smooth_l1_loss" in line


@pytest.mark.parametrize("step", [detached_target, target_of_another_model])
def test_a_target_of_its_own_is_not_reported(step, engine):
    assert "loss-target-trained" not in dict(found(step, engine))


class Normalizing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x - x.mean(1, keepdim=True)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        count = torch.full((len(x), 1), 2.0).squeeze()
        mean = grad_output.sum(1, keepdim=True) / count  # <-- named
        return grad_output - mean.mean(1, keepdim=True)


def test_a_backward_that_combines_all_pairs(engine):
    [slugs] = [found(apply(Normalizing), engine)]
    assert slugs[0] == ("loss-broadcast", "mean = grad_output.sum(1, keepdim=True) / count"
                        "  # <-- named")  # fmt: skip


# --- results that cannot vary -------------------------------------------------------------------


def one_class(model):
    functional.log_softmax(model(torch.rand(8, 3)), dim=-1).mean().backward()


def one_key(model):
    x = model(torch.rand(1, 1, 3))
    (torch.softmax(x @ x.transpose(1, 2), dim=-1) @ x).sum().backward()


def longer_in_each_step(model):
    total = 0.0
    for length in (1, 2, 3):
        x = model(torch.rand(2, length, 3)).squeeze(-1)
        total = total + (torch.softmax(x, dim=-1) * x).sum()
    total.backward()


def over_the_batch(model):
    functional.log_softmax(model(torch.rand(8, 3)), dim=0).mean().backward()


def test_softmax_over_one_element(engine):
    assert [slug for slug, _ in found(one_class, engine)] == ["result-constant"]


@pytest.mark.parametrize("step", [one_key, longer_in_each_step, over_the_batch])
def test_other_softmaxes_are_not_reported(step, engine):
    assert "result-constant" not in dict(found(step, engine))


# --- dropped results ----------------------------------------------------------------------------


def clamp_without_underscore(model):
    model(torch.rand(8, 3)).sum().backward()
    model.weight.grad.clamp(-1, 1)


def moved_but_not_assigned(model):
    x = torch.rand(8, 3)
    x.to(torch.float64)
    model(x).sum().backward()


def in_place(model):
    model(torch.rand(8, 3)).sum().backward()
    model.weight.grad.clamp_(-1, 1)


def stored(model):
    kept = []
    y = model(torch.rand(8, 3))
    kept.append(y.detach())
    repr(y.mean())
    y.sum().backward()


@pytest.mark.parametrize("step", [clamp_without_underscore, moved_but_not_assigned])
def test_dropped_result(step, engine):
    [(slug, line)] = found(step, engine)
    assert slug == "result-discarded"
    assert line in {"model.weight.grad.clamp(-1, 1)", "x.to(torch.float64)"}


def result_of_a_call(model):
    model(torch.rand(8, 3)).sum()
    model(torch.rand(8, 3)).sum().backward()


def function_of_a_call(model):
    torch.sum(model(torch.rand(8, 3)))
    model(torch.rand(8, 3)).sum().backward()


@pytest.mark.parametrize("step", [result_of_a_call, function_of_a_call])
def test_dropped_result_of_a_value_without_a_name_gets_one(step):
    model = net(1)
    with autogradviz.record(model) as trace:
        step(model)
    [finding] = [each for each in trace.diagnose() if each.slug == "result-discarded"]
    assert finding.fix == f"result = {finding.culprit.text}"


@pytest.mark.parametrize("step", [in_place, stored])
def test_results_that_are_used_are_not_reported(step, engine):
    assert "result-discarded" not in dict(found(step, engine))


# --- the gradient that arrives --------------------------------------------------------------------


class Ignoring(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(2 * x)
        return x.square().sum()

    @staticmethod
    def backward(ctx, grad_output):
        (gradient,) = ctx.saved_tensors
        return gradient


class Scaling(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(2 * x)
        return x.square().sum()

    @staticmethod
    def backward(ctx, grad_output):
        (gradient,) = ctx.saved_tensors
        return gradient * grad_output


class Looking(Ignoring):
    @staticmethod
    def backward(ctx, grad_output):
        (gradient,) = ctx.saved_tensors
        return gradient if bool(grad_output == 1) else gradient * grad_output


class Checkpoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x.detach()
        return ctx.x.tanh()

    @staticmethod
    def backward(ctx, grad_output):
        x = ctx.x.requires_grad_()
        with torch.enable_grad():
            y = x.tanh()
        torch.autograd.backward(y, grad_output)
        return x.grad


class Passing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


def apply(function):
    def step(model):
        (0.5 * function.apply(model(torch.rand(8, 3))).sum()).backward()

    return step


def test_backward_that_ignores_the_incoming_gradient(engine):
    [(slug, line)] = found(apply(Ignoring), engine)
    assert (slug, line) == ("incoming-gradient-ignored", "return gradient")


@pytest.mark.parametrize("function", [Scaling, Looking, Checkpoint, Passing])
def test_backwards_that_use_the_incoming_gradient_are_not_reported(function, engine):
    assert "incoming-gradient-ignored" not in dict(found(apply(function), engine))


# --- accumulation -------------------------------------------------------------------------------


def accumulate(model, batches, *, rest):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in range(batches):
        (model(torch.rand(2, 3)).square().mean() / 4).backward()
        if (batch + 1) % 4 == 0 or (rest and batch == batches - 1):
            optimizer.step()
            optimizer.zero_grad()


def test_step_with_fewer_backwards(engine):
    [(slug, line)] = found(lambda model: accumulate(model, 10, rest=True), engine)
    assert slug == "accumulation-uneven"
    assert "backward" in line


@pytest.mark.parametrize("batches", [8, 10])
def test_steps_with_the_same_number_of_backwards_are_not_reported(batches, engine):
    slugs = dict(found(lambda model: accumulate(model, batches, rest=False), engine))
    assert "accumulation-uneven" not in slugs


# --- a view whose memory was written, met by backward -------------------------------------------


def test_write_that_backward_refuses_is_named_and_not_the_backward(engine):
    def work(model):
        x = torch.rand(2, 4, requires_grad=True) * 1
        first, second = x.chunk(2, dim=1)
        loss = (first.exp() * second).sum()
        x.mul_(0.5)
        loss.backward()

    with (
        pytest.raises(RuntimeError, match="multiple views"),
        autogradviz.record(engine=engine) as trace,
    ):
        work(None)
    [finding] = trace.diagnose()
    assert (finding.slug, finding.confidence) == ("inplace-refused", "likely")
    assert finding.culprit.text == "x.mul_(0.5)"
    assert finding.victim.text == "first, second = x.chunk(2, dim=1)"


# --- views of exchanged axes --------------------------------------------------------------------


def heads_by_view(model):
    model(torch.rand(2, 5, 3)).view(2, 4, 5, 2).softmax(-1).square().sum().backward()


def heads_merged_by_view(model):
    by_head = model(torch.rand(2, 5, 3)).view(2, 5, 4, 2).transpose(1, 2)
    by_head.tanh().contiguous().view(2, 5, 8).square().sum().backward()


def heads_by_transpose(model):
    by_head = model(torch.rand(2, 5, 3)).view(2, 5, 4, 2).transpose(1, 2)
    by_head.tanh().transpose(1, 2).reshape(2, 5, 8).square().sum().backward()


def relative_shift(model):
    scores = model(torch.rand(2, 5, 3))
    padded = torch.cat([torch.zeros(2, 5, 1), scores], -1)
    padded.view(2, 9, 5)[:, 1:].reshape(2, 5, 8).square().sum().backward()


def heads_joined_with_the_batch(model):
    by_head = model(torch.rand(5, 2, 3)).view(5, 2 * 4, 2).transpose(0, 1)
    by_head.tanh().square().sum().backward()


def attention_of_as_many_samples_as_a_head_has_sizes(model):
    attention = torch.nn.MultiheadAttention(8, 4)
    x = model(torch.rand(5, 2, 3))
    attention(x, x, x)[0].square().sum().backward()


def parts_of_equal_size(model):
    model(torch.rand(2, 8, 3)).view(2, 4, 8, 2).square().sum().backward()


def images_flattened(model):
    model(torch.rand(2, 5, 7, 3)).view(2, 35, 8).flatten(1).square().sum().backward()


@pytest.mark.parametrize("step", [heads_by_view, heads_merged_by_view], ids=lambda f: f.__name__)
def test_view_that_exchanges_axes_is_found(step, engine):
    ((slug, text),) = found(step, engine, outputs=8)
    assert slug == "view-mixes-axes"
    assert ".view(2, " in text


@pytest.mark.parametrize(
    "step",
    [
        heads_by_transpose,
        heads_joined_with_the_batch,
        relative_shift,
        parts_of_equal_size,
        attention_of_as_many_samples_as_a_head_has_sizes,
        images_flattened,
    ],
    ids=lambda f: f.__name__,
)
def test_other_views_are_not_found(step, engine):
    assert found(step, engine, outputs=8) == []


def replace_first(x):
    x[:, 0] = x[:, 0].tanh()
    return x


def write_to_result_of_function(model):
    x = model(torch.rand(2, 3)).view(2, 2, 2)
    for _ in range(2):
        x = checkpoint(replace_first, x, use_reentrant=True)
    x.square().sum().backward()


def mask_of_half(model):
    scores = model.half()(torch.rand(2, 3).half())
    scores.masked_fill(scores > 0, -1e9)


def slope_of_distances(model):
    x = torch.rand(4, 3, requires_grad=True)
    distances = torch.cdist(model(x), torch.zeros(1, 4))
    (slope,) = torch.autograd.grad(distances.sum(), x, create_graph=True)
    slope.square().sum().backward()


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (write_to_result_of_function, "x[:, 0] = x[:, 0].tanh()"),
        (mask_of_half, "scores.masked_fill(scores > 0, -1e9)"),
        (slope_of_distances, "distances = torch.cdist(model(x), torch.zeros(1, 4))"),
    ],
)
def test_line_to_change_after_an_exception(step, line, engine):
    with pytest.raises(RuntimeError), autogradviz.record(engine=engine) as trace:
        step(net(4))
    assert trace.diagnose()[0].culprit.text == line


def test_maximum_that_is_subtracted_may_be_detached(engine):
    def step(model):
        scores = model(torch.rand(2, 3))
        weights = torch.exp(scores - scores.amax(-1, keepdim=True).detach())
        (weights / weights.sum(-1, keepdim=True)).square().sum().backward()

    assert found(step, engine, outputs=4) == []


# --- advantages that are trained ----------------------------------------------------------------


class ActorCritic(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic = torch.nn.Linear(3, 2), torch.nn.Linear(3, 1)


def policy_loss(model, *, detached):
    states, chosen, returns = torch.rand(8, 3), torch.randint(2, (8, 1)), torch.rand(8)
    log_prob = model.actor(states).log_softmax(-1).gather(1, chosen)[:, 0]
    advantage = returns - model.critic(states)[:, 0]
    factor = advantage.detach() if detached else advantage
    loss = -(log_prob * factor).mean()
    return loss + advantage.pow(2).mean()


def focal_loss(model):
    log_prob = model.actor(torch.rand(8, 3)).log_softmax(-1).gather(1, torch.zeros(8, 1).long())
    return -((1 - log_prob.exp()) * log_prob).mean() + model.critic(torch.rand(8, 3)).pow(2).mean()


@pytest.mark.parametrize(
    ("loss_of", "count"),
    [
        (lambda model: policy_loss(model, detached=False), 1),
        (lambda model: policy_loss(model, detached=True), 0),
        (focal_loss, 0),
    ],
    ids=["trained", "detached", "focal"],
)
def test_an_advantage_that_passes_its_gradient_on_is_named(loss_of, count, engine):
    torch.manual_seed(0)
    model = ActorCritic()
    with autogradviz.record(model, engine=engine) as trace:
        loss_of(model).backward()
    lines = [f.culprit.text for f in trace.diagnose() if f.slug == "loss-target-trained"]
    assert lines == ["loss = -(log_prob * factor).mean()"] * count


def test_the_detached_advantage_of_a_distribution_has_no_finding(engine):
    torch.manual_seed(0)
    actor, critic = (
        torch.nn.Linear(3, 2),
        torch.nn.Sequential(torch.nn.Linear(3, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)),
    )
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    with autogradviz.record(torch.nn.ModuleList([actor, critic]), engine=engine) as trace:
        for _ in range(3):
            states, returns = torch.rand(8, 3), torch.rand(8)
            policy = torch.distributions.Categorical(logits=actor(states))
            value = critic(states).squeeze(-1)
            advantage = (returns - value).detach()
            loss = -(policy.log_prob(policy.sample()) * advantage).mean()
            optimizer.zero_grad()
            (loss + 0.5 * (returns - value).square().mean()).backward()
            optimizer.step()
    assert trace.diagnose() == []


def test_unscale_in_each_part_of_a_sum_goes_under_the_condition_of_the_step():
    model = nn.Linear(4, 2)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def train():
        for i in range(4):
            scaler.scale(model(torch.ones(3, 4)).sum()).backward()
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if (i + 1) % 2 == 0:
                scaler.step(opt)
                scaler.update()

    with pytest.raises(RuntimeError), autogradviz.record(model) as trace:
        train()
    (finding,) = trace.diagnose()
    assert finding.culprit.lineno == train.__code__.co_firstlineno + 3
    assert finding.fix == (
        "if (i + 1) % 2 == 0:\n"
        "    scaler.unscale_(opt)\n"
        "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        "    scaler.step(opt)"
    )


def test_unscale_after_the_step_goes_before_it():
    model = nn.Linear(4, 2)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    amp = torch.amp.GradScaler("cpu", init_scale=8.0)

    def train():
        amp.scale(model(torch.ones(3, 4)).sum()).backward()
        amp.step(opt)
        amp.unscale_(opt)

    with pytest.raises(RuntimeError), autogradviz.record(model) as trace:
        train()
    (finding,) = trace.diagnose()
    assert finding.fix == "amp.unscale_(opt)  # before this:\namp.step(opt)"
