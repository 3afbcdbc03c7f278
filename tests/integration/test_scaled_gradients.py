"""Numbers by which losses and gradients are divided, and clipping inside an accumulation."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import autogradviz
from autogradviz.events import LossDivisorRead

SLUGS = {
    "accumulation-divisor", "accumulation-uneven", "gradient-scaled-twice",
    "clip-while-accumulating", "gradients-discarded",
}  # fmt: skip
PARTS = 4


def train(model, loss_of, before_step, after_backward=lambda model: None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in range(2 * PARTS):
        loss_of(model(torch.rand(2, 3)).square()).backward()
        after_backward(model)
        if batch % PARTS == PARTS - 1:
            before_step(model)
            optimizer.step()
            optimizer.zero_grad()


def found(work, **options):
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    with autogradviz.record(model, **options) as trace:
        work(model)
    return [(f.slug, f.culprit.text, f.confidence) for f in trace.diagnose() if f.slug in SLUGS]


def mean_of_parts(values):
    return values.mean() / PARTS


def sum_of_samples(values):
    return values.sum() / 2


def keep(model):
    pass


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)  # <-- named


def divide_again(model):
    for parameter in model.parameters():
        parameter.grad.div_(PARTS)  # <-- named


def multiply_again(model):
    for parameter in model.parameters():
        parameter.grad *= 1 / PARTS  # <-- named


def divide_all_again(model):
    torch._foreach_div_([each.grad for each in model.parameters()], PARTS)  # <-- named


def divide_by_number_of_samples(model):
    for parameter in model.parameters():
        parameter.grad.div_(2)


def eighth_of_mean(values):
    return values.mean() / 8  # <-- named


def averaged_twice(model):
    train(model, mean_of_parts, divide_again)


def averaged_twice_by_a_factor(model):
    train(model, mean_of_parts, multiply_again)


def averaged_twice_at_once(model):
    train(model, mean_of_parts, divide_all_again)


def divided_by_another_number(model):
    train(model, eighth_of_mean, keep)


def stepped_after_each_backward(model):
    """Divide for an accumulation that never happens."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        loss = model(torch.rand(2, 3)).square().mean() / PARTS
        loss.backward()
        optimizer.step()  # <-- named
        optimizer.zero_grad()


def divided_by_the_batch_again(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.rand(PARTS, 3)).square().mean() / PARTS  # <-- named
        loss.backward()
        optimizer.step()


def all_but_one_batch_is_a_step(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in range(3 * PARTS):
        model(torch.rand(2, 3)).square().mean().backward()
        if batch % PARTS:  # <-- named
            optimizer.step()
            optimizer.zero_grad()


def clipped_after_each_backward_of_one_step(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(PARTS):
        mean_of_parts(model(torch.rand(2, 3)).square()).backward()
        clip(model)
    optimizer.step()


def clipped_after_each_backward(model):
    train(model, mean_of_parts, keep, clip)


def cleared_part(model):
    """Clear the bias after each backward, and step with it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.rand(2, 3)).square().mean().backward()
        model.bias.grad.zero_()  # <-- named
        optimizer.step()


WRONG = {
    averaged_twice: "gradient-scaled-twice",
    averaged_twice_by_a_factor: "gradient-scaled-twice",
    averaged_twice_at_once: "gradient-scaled-twice",
    divided_by_another_number: "accumulation-divisor",
    clipped_after_each_backward: "clip-while-accumulating",
    clipped_after_each_backward_of_one_step: "clip-while-accumulating",
    stepped_after_each_backward: "accumulation-divisor",
    divided_by_the_batch_again: "accumulation-divisor",
    all_but_one_batch_is_a_step: "accumulation-uneven",
    cleared_part: "gradients-discarded",
}


@pytest.mark.parametrize("engine", ["python", "native"])
@pytest.mark.parametrize("work", WRONG)
def test_mistake_is_a_hint_at_its_line(native, work, engine):
    [(slug, line, confidence)] = found(work, engine=engine)
    assert (slug, confidence) == (WRONG[work], "hint")
    assert line.endswith("# <-- named")


def averaged_in_the_loss(model):
    train(model, mean_of_parts, keep)


def averaged_in_the_gradient(model):
    train(model, torch.mean, divide_again)


def sum_over_samples(model):
    train(model, sum_of_samples, keep)


def averaged_over_samples_and_parts(model):
    train(model, mean_of_parts, divide_by_number_of_samples)


def clipped_before_the_step(model):
    train(model, mean_of_parts, clip)


def weighted_mean(model):
    train(model, lambda values: 0.5 * values.mean(), keep)


def bias_of_some_steps(model):
    """Clear the bias in one of four steps, as a regularizer may."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        model(torch.rand(2, 3)).square().mean().backward()
        if step == 2:
            model.bias.grad.zero_()
        optimizer.step()


def scaled_and_unscaled(model):
    """Scale the loss by hand, and divide the gradients by it once."""

    def unscale(model):
        for parameter in model.parameters():
            parameter.grad.div_(128)

    train(model, lambda values: values.mean() * 128, unscale)


def half_of_a_mean(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        (model(torch.rand(2, 3)).square().mean() / 2).backward()
        optimizer.step()


CORRECT = [
    half_of_a_mean,
    averaged_in_the_loss, averaged_in_the_gradient, sum_over_samples, clipped_before_the_step,
    averaged_over_samples_and_parts, weighted_mean, bias_of_some_steps, scaled_and_unscaled,
]  # fmt: skip


@pytest.mark.parametrize("work", CORRECT)
def test_correct_accumulation_has_no_finding(work):
    assert found(work) == []


# --- weights of the losses of one step ----------------------------------------------------------


COUNTS = (4, 12)


def accumulated(loss_of, **options):
    """Return slug and line of what is found if each step uses the gradients of two losses."""
    torch.manual_seed(0)
    net = nn.Linear(3, 5)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with autogradviz.record(net, **options) as trace:
        for _ in range(3):
            for part in range(2):
                loss = loss_of(net, part)
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return [(each.slug, each.culprit.text) for each in trace.diagnose()]


def labels(count):
    found = torch.arange(12) % 5
    found[count:] = -100
    return found


def mean_of_targets(net, part):
    return nn.functional.cross_entropy(net(torch.randn(12, 3)), labels(COUNTS[part])) / 2


def mean_of_a_mask(net, part):
    mask = torch.arange(12) < COUNTS[part]
    loss = net(torch.randn(12, 3)).square().sum(1)
    loss = (loss * mask).sum() / mask.sum()
    return loss / 2


def mean_of_rows(net, part):
    return net(torch.randn(COUNTS[part], 3)).square().mean() / 2


def other_divisor_in_a_step(net, part):
    return net(torch.randn(12, 3)).square().mean() / (2 + part)


@pytest.mark.parametrize("engine", [None, "python"])
@pytest.mark.parametrize(
    ("loss_of", "line"),
    [
        (mean_of_targets, "return nn.functional.cross_entropy(net(torch.randn(12, 3)), "
         "labels(COUNTS[part])) / 2"),
        (mean_of_a_mask, "loss = (loss * mask).sum() / mask.sum()"),
        (mean_of_rows, "return net(torch.randn(COUNTS[part], 3)).square().mean() / 2"),
        (other_divisor_in_a_step, "return net(torch.randn(12, 3)).square().mean() / (2 + part)"),
    ],
)  # fmt: skip
def test_losses_of_a_step_whose_elements_weigh_unlike_are_reported(loss_of, line, engine):
    options = {} if engine is None else {"engine": engine}
    assert accumulated(loss_of, **options) == [("accumulation-uneven", line)]


def test_steps_whose_losses_are_divided_by_other_numbers_are_reported():
    batches = iter(range(6))

    def loss_of(net, part):
        loss = net(torch.randn(12, 3)).square().mean()
        return loss / (2 if next(batches) < 4 else 1)

    expected = "return loss / (2 if next(batches) < 4 else 1)"
    assert accumulated(loss_of) == [("accumulation-uneven", expected)]


def same_number_of_targets(net, part):
    return nn.functional.cross_entropy(net(torch.randn(12, 3)), labels(7)) / 2


def weighed_by_their_number(net, part):
    loss = nn.functional.cross_entropy(net(torch.randn(12, 3)), labels(COUNTS[part]))
    return loss * COUNTS[part] / sum(COUNTS)


def sums(net, part):
    loss = nn.functional.cross_entropy(
        net(torch.randn(12, 3)), labels(COUNTS[part]), reduction="sum"
    )
    return loss / sum(COUNTS)


@pytest.mark.parametrize("loss_of", [same_number_of_targets, weighed_by_their_number, sums])
def test_losses_of_a_step_whose_elements_weigh_alike_are_not_reported(loss_of):
    assert accumulated(loss_of) == []


def test_what_a_loss_was_divided_by_is_recorded():
    net = nn.Linear(3, 5)
    with autogradviz.record(net) as trace:
        mean_of_targets(net, 0).backward()
        loss = mean_of_a_mask(net, 1)
        loss.backward(retain_graph=True)
        loss.backward()
    read = trace.analysis.log.of(LossDivisorRead)
    divisors = [(each.backward_id, each.divisor) for each in read]
    assert divisors == [(0, 2), (0, 4), (1, 2), (1, 12), (2, 2), (2, 12)]


# --- the scale of a loss, and what is left of it --------------------------------------------------


def scaled(model, change, scale=128, parts=1):
    """Train with a loss that is multiplied by a number, and gradients that a function changes."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        for _ in range(parts):
            loss = model(torch.rand(2, 3)).square().mean()
            (loss * scale).backward()  # <-- scaled
        change(model)
        optimizer.step()


def multiply(model, factor):
    for parameter in model.parameters():
        parameter.grad.mul_(factor)


def multiply_by_constant(model):
    for parameter in model.parameters():
        parameter.grad.mul_(128.0)  # <-- changed


def divide_twice(model):
    multiply(model, 1 / 128**2)  # <-- changed


REMAINS = {
    "never divided": (lambda model: None, {}, "# <-- scaled"),
    "multiplied": (multiply_by_constant, {}, "# <-- changed"),
    "divided twice": (divide_twice, {"parts": 2}, "# <-- changed"),
}


@pytest.mark.parametrize("name", REMAINS)
def test_the_scale_of_a_loss_that_remains_is_found(name):
    change, options, line = REMAINS[name]
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    with autogradviz.record(model) as trace:
        scaled(model, change, **options)
    [finding] = [each for each in trace.diagnose() if each.slug == "loss-scale-remains"]
    assert finding.confidence == "hint"
    assert line in finding.culprit.text


SCALED_CORRECTLY = {
    "divided": (lambda model: multiply(model, 1 / 128), {}),
    "divided by the parts as well": (lambda model: multiply(model, 1 / 256), {"parts": 2}),
    "a weight": (lambda model: None, {"scale": 100}),
    "a small weight": (lambda model: None, {"scale": 16}),
    "divided by a tensor": (lambda model: multiply(model, torch.tensor(1 / 128)), {}),
}


@pytest.mark.parametrize("name", SCALED_CORRECTLY)
def test_the_scale_of_a_loss_that_is_undone_has_no_finding(name):
    change, options = SCALED_CORRECTLY[name]
    model = nn.Linear(3, 1)
    with autogradviz.record(model) as trace:
        scaled(model, change, **options)
    assert not [each for each in trace.diagnose() if each.slug == "loss-scale-remains"]


def test_a_hook_that_clips_scaled_gradients_is_named():
    model = nn.Linear(3, 1)
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: gradient.clamp(-1, 1))  # <-- named
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with autogradviz.record(model) as trace:
        for _ in range(2):
            optimizer.zero_grad()
            scaler.scale(model(torch.rand(2, 3)).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
    [finding] = [each for each in trace.diagnose() if each.slug == "clip-before-unscale"]
    assert finding.culprit.text.endswith("# <-- named")


# --- the gradients that are clipped together, and those of the step -------------------------------


def two_nets(train):
    """Return the texts of the findings about what is clipped."""
    torch.manual_seed(0)
    first, second = nn.Linear(3, 3), nn.Linear(3, 1)
    with autogradviz.record() as trace:
        train(first, second)
    found = [each for each in trace.diagnose() if each.slug == "clip-other-parameters"]
    assert all(each.confidence == "hint" for each in found)
    return [(each.title.partition(":")[0], each.culprit.text) for each in found]


def both_clipped_before_each_step(first, second):
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (first, second)]
    for number in range(6):
        second(first(torch.rand(4, 3)).tanh()).square().mean().backward()
        both = [*first.parameters(), *second.parameters()]
        nn.utils.clip_grad_norm_(both, 0.1)  # <-- named
        optimizers[number % 2].step()
        first.zero_grad()
        second.zero_grad()


def in_turn(first, second):
    """Step one of two, whose gradients are clipped alone."""
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (first, second)]
    for number in range(6):
        second(first(torch.rand(4, 3)).tanh()).square().mean().backward()
        nn.utils.clip_grad_norm_((first, second)[number % 2].parameters(), 0.1)
        optimizers[number % 2].step()
        first.zero_grad()
        second.zero_grad()


def both_step(first, second):
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (first, second)]
    for _ in range(3):
        second(first(torch.rand(4, 3)).tanh()).square().mean().backward()
        nn.utils.clip_grad_norm_([*first.parameters(), *second.parameters()], 0.1)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def one_optimizer(first, second, *clipped):
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
    for _ in range(3):
        second(first(torch.rand(4, 3)).tanh()).square().mean().backward()
        for each in clipped:
            nn.utils.clip_grad_norm_(each, 0.1)  # <-- named
        optimizer.step()
        optimizer.zero_grad()


def head_is_left_out(first, second):
    one_optimizer(first, second, list(first.parameters()))


def weight_is_passed_twice(first, second):
    one_optimizer(first, second, [first.weight, *first.parameters(), *second.parameters()])


def each_by_itself(first, second):
    one_optimizer(first, second, list(first.parameters()), list(second.parameters()))


@pytest.mark.parametrize(
    ("train", "title"),
    [
        (both_clipped_before_each_step,
         "the norm includes 4 gradients that the step after it does not use"),
        (weight_is_passed_twice, "the gradients of 1 parameter are twice in the norm"),
    ],
)  # fmt: skip
def test_gradients_that_are_clipped_with_others_are_found(train, title):
    [(what, line)] = two_nets(train)
    assert what == title
    assert line.endswith("# <-- named")


def test_gradients_that_are_left_out_are_an_entry_of_the_audit():
    first, second = nn.Linear(3, 3), nn.Linear(3, 1)
    with autogradviz.record() as trace:
        head_is_left_out(first, second)
    [entry] = trace.audit().of("order")
    assert entry.effect.startswith("2 gradients of the same step are not clipped")


@pytest.mark.parametrize("train", [in_turn, both_step, each_by_itself, head_is_left_out])
def test_gradients_that_are_clipped_for_their_step_have_no_finding(train):
    assert two_nets(train) == []


def train_with_scaler(step, *, optimizer=torch.optim.SGD, **options):
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = optimizer(model.parameters(), lr=0.1, **options)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with autogradviz.record(model) as trace:
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale(model(torch.rand(2, 3)).square().mean()).backward()
            step(model, optimizer, scaler)
    return [each for each in trace.diagnose() if each.slug == "loss-scale-remains"]


def step_directly(model, optimizer, scaler):
    optimizer.step()  # <-- named


def step_by_scaler(model, optimizer, scaler):
    scaler.step(optimizer)
    scaler.update()


def unscale_and_step(model, optimizer, scaler):
    scaler.unscale_(optimizer)
    optimizer.step()
    scaler.update()


def divide_by_hand(model, optimizer, scaler):
    multiply(model, 1 / scaler.get_scale())
    optimizer.step()


def replace_by_hand(model, optimizer, scaler):
    for parameter in model.parameters():
        parameter.grad = parameter.grad / scaler.get_scale()
    optimizer.step()


def test_a_step_with_the_gradients_of_a_scaled_loss_is_found():
    [finding] = train_with_scaler(step_directly)
    assert finding.culprit.text.endswith("# <-- named")
    assert finding.fix == "scaler.step(optimizer)\nscaler.update()"


@pytest.mark.parametrize(
    "step", [step_by_scaler, unscale_and_step, divide_by_hand, replace_by_hand]
)
def test_a_step_that_divides_by_the_scale_of_a_scaler_has_no_finding(step):
    assert train_with_scaler(step) == []


def test_a_fused_optimizer_divides_by_the_scale_of_a_scaler():
    assert train_with_scaler(step_by_scaler, optimizer=torch.optim.Adam, fused=True) == []
