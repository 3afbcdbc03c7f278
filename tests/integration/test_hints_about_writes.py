"""Findings about writes in place: only those that other code than the writer sees."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import autogradviz


def slugs(step, steps=1):
    torch.manual_seed(0)
    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with autogradviz.record(net) as trace:
        for _ in range(steps):
            optimizer.zero_grad()
            step(net, torch.rand(3, 4)).backward()
            optimizer.step()
    return [(each.slug, each.culprit.text) for each in trace.diagnose()]


def normalized(net, x):
    y = 1 + torch.relu(net(x))
    y /= y.sum(-1, keepdim=True)
    return y.square().sum()


def normalized_by_name(net, x):
    y = torch.sigmoid(net(x)) + 0
    total = y.sum(-1, keepdim=True) + 1
    y /= total
    return (y * x).sum()


def scaled_loss(net, x):
    loss = net(x).square().mean()
    loss /= 4
    return loss


def masked(net, x):
    mask = torch.ones(3, 4, dtype=torch.bool)
    first = net(x) * mask.float()
    mask[0] = False
    return (first * mask.float()).sum()


def filled(net, x):
    out = torch.zeros(3, 4)
    for row, value in enumerate(net(x)):
        out[row] = value
    return out.square().sum()


def helper(y):
    y /= 2
    return y


def rescaled_argument(net, x):
    return helper(net(x) + 0).square().sum()


@pytest.mark.parametrize(
    "step", [normalized, normalized_by_name, scaled_loss, masked, filled, rescaled_argument]
)
def test_a_write_whose_new_values_are_what_the_line_says_is_no_finding(step):
    assert slugs(step) == []


def test_a_queue_that_is_written_after_its_backward_is_no_finding():
    queue = torch.rand(4, 4)

    def step(net, x):
        queue[:3] = x  # the backward of the step before has used the old values
        return (net(x) @ queue).square().mean()

    assert slugs(step, steps=3) == []


def doubled(y):
    y *= 2
    return y


def test_a_function_that_writes_its_argument_which_the_caller_reads_is_named():
    def step(net, x):
        y = net(x) + 0
        weights = y.sum(-1, keepdim=True)
        return (weights * doubled(y)).sum()

    assert slugs(step) == [("written-in-place", "y *= 2")]


def test_a_write_that_a_view_from_before_sees_is_named():
    def step(net, x):
        y = net(x) + 0
        head = y[:, :2]
        before = head.sum()
        y *= 2
        return before + (head + 1).sum() + y.sum()

    assert slugs(step) == [("written-in-place", "y *= 2")]


def test_a_write_to_a_saved_tensor_that_hooks_hide_is_named():
    def step(net, x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            y = torch.exp(net(x))
            y.mul_(2.0)
            return y.sum()

    assert slugs(step) == [("written-in-place", "y.mul_(2.0)")]


def test_a_write_to_a_detached_name_of_a_value_that_the_loss_reads_is_named():
    def step(net, x):
        scores = net(x) + 0
        weights = scores.detach()
        weights[:, 0] = 9.0
        return (scores * weights.softmax(-1)).sum()

    assert slugs(step)[0] == ("written-in-place", "weights = scores.detach()")


def masked_data(net, x):
    scores = net(x) + 0
    scores.data[:, 0] = 9.0  # says what it writes
    return (scores * scores.detach().softmax(-1)).sum()


def masked_copy(net, x):
    scores = net(x) + 0
    weights = scores.detach().clone()
    weights[:, 0] = 9.0
    return (scores * weights.softmax(-1)).sum()


def masked_last(net, x):
    scores = net(x) + 0
    weights = scores.detach()
    loss = scores.sum()
    weights[:, 0] = 9.0  # the graph has used the old values
    return loss


@pytest.mark.parametrize("step", [masked_data, masked_copy, masked_last])
def test_a_detached_tensor_that_is_written_on_purpose_or_unseen_is_no_finding(step):
    assert not any(slug == "written-in-place" for slug, _ in slugs(step))


def shifted_labels(net, x):
    tokens = torch.randint(1, 4, (3, 5))
    seen, labels = tokens[:, :-1], tokens[:, 1:]
    labels.masked_fill_(torch.ones(3, 4, dtype=torch.bool).tril(), 0)
    table = net(torch.eye(4))
    return nn.functional.cross_entropy(table[seen].flatten(0, 1), labels.flatten(), ignore_index=0)


def ranked(net, x):
    distance = net(x).square().unsqueeze(-1)
    ranking = distance[..., 0]
    ranking.masked_fill_(torch.eye(3, 4, dtype=torch.bool), -1.0)
    nearest = ranking.topk(2).indices
    return distance.squeeze(-1).gather(-1, nearest).sum()


def stored_scores(net, x):
    scores = net(x)
    before = scores
    scores.masked_fill_(torch.eye(3, 4, dtype=torch.bool), -1e3)
    share = scores.softmax(-1)
    return (share * x).sum() + before.clamp(-1, 1).sum()


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (shifted_labels, "labels.masked_fill_(torch.ones(3, 4, dtype=torch.bool).tril(), 0)"),
        (ranked, "ranking.masked_fill_(torch.eye(3, 4, dtype=torch.bool), -1.0)"),
        (stored_scores, "scores.masked_fill_(torch.eye(3, 4, dtype=torch.bool), -1e3)"),
    ],
)
def test_write_that_another_name_sees_is_named(step, text):
    assert slugs(step) == [("written-in-place", text)]


def parts_of_projection(net, x):
    query, key, value, rest = (net(x) * 1).unsqueeze(-1).chunk(4, 1)
    with torch.no_grad():
        scale = torch.ones(3, 4)
        first, second = scale.chunk(2, 1)
        first.mul_(0.5)
        scale = scale * first.sum() * second.sum()
    return (query * key * value * rest).sum() * scale.sum()


def rows_of_buffer(net, x):
    out = torch.zeros(3, 4)
    for index, values in enumerate(net(x)):
        row = out[index]
        row.copy_(values)
        row.mul_(2)
    return out.square().sum() + row.sum()


def flat_view(net, x):
    y = net(x) + 0
    flat = y.view(-1)
    flat.index_fill_(0, torch.tensor([1, 3]), 0.0)
    return y.square().sum()


def rotated_part(net, x):
    y = net(x) + 0
    part = y[:, :2]
    part.mul_(0.5)
    return y.sum() + 0 * x.sum()


def halves_of_tokens(net, x):
    tokens = torch.randint(0, 4, (3, 6))
    first, second = tokens[:, :3], tokens[:, 3:]
    first.clamp_(min=1)
    table = net(torch.eye(4))
    return table[first].sum() + table[second].sum()


def renamed(net, x):
    scores = net(x)
    out = scores
    out = out.clone()
    out.mul_(2)
    return scores.sum() + out.square().sum()


@pytest.mark.parametrize(
    "step",
    [
        parts_of_projection, rows_of_buffer, flat_view, rotated_part, halves_of_tokens, renamed,
    ],
)  # fmt: skip
def test_write_to_a_part_or_by_the_only_name_is_correct(step):
    assert slugs(step) == []
