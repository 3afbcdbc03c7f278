"""record(fingerprints=True): silently wrong programs are reported, and correct ones are not."""

import numpy as np
import programs
import pytest
import torch
from programs import Block, stack
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.diagnose.rules import checkpoint_values
from autogradviz.events import NotFiniteSeen, OpCalled, RecorderFailed

# Silently wrong programs, with their expected finding.
WRONG = {
    "data_write_is_silent": "silent-write",
    "checkpoint_without_rng": "checkpoint-random-not-restored",
    "reentrant_without_rng": "checkpoint-random-not-restored",
}


def surest(trace):
    return [(f.slug, f.confidence) for f in trace.diagnose() if f.confidence != "hint"]


@pytest.mark.one_in(18, reason="records every program again", in_ci=6)
@pytest.mark.parametrize("name", [n for n in programs.PROGRAMS if n not in WRONG])
def test_correct_program_gives_no_finding(name):
    torch.manual_seed(0)
    try:
        with autogradviz.record(fingerprints=True) as trace:
            programs.PROGRAMS[name]()
    except BaseException:
        return  # programs that raise may have findings
    assert surest(trace) == []


@pytest.mark.parametrize("name", WRONG)
def test_silently_wrong_program_gives_a_certain_finding(name):
    torch.manual_seed(0)
    with autogradviz.record(fingerprints=True) as trace:
        programs.PROGRAMS[name]()
    assert surest(trace)[0] == (WRONG[name], "certain")


DRAWS = {
    "cauchy_": lambda t: torch.empty_like(t).cauchy_(),
    "geometric_": lambda t: torch.empty_like(t).geometric_(0.5),
    "_standard_gamma": lambda t: torch._standard_gamma(t.detach().abs() + 1),
    "bernoulli_": lambda t: torch.nn.functional.dropout(t, 0.5),
}


@pytest.mark.parametrize("name", DRAWS)
def test_random_operators_are_recognized_without_a_list_of_names(name):
    x = torch.rand(8, requires_grad=True)
    with autogradviz.record(fingerprints=True) as trace:
        y = checkpoint(
            lambda t: (t * DRAWS[name](t)).sin(), x, use_reentrant=False, preserve_rng_state=False
        )
        y.sum().backward()
    assert surest(trace)[0] == ("checkpoint-random-not-restored", "certain")
    assert f"{name} at" in trace.diagnose()[0].explanation


def test_write_of_equal_values_gives_no_finding():
    w = nn.Parameter(torch.rand(3))
    with autogradviz.record(fingerprints=True) as trace:
        loss = (w * w).sum()
        w.data.copy_(w.detach().clone())
        loss.backward()
    assert surest(trace) == []


def test_write_through_numpy_is_found_without_a_recorded_write():
    a = torch.rand(4, requires_grad=True)
    with autogradviz.record(fingerprints=True) as trace:
        b = a * 1
        loss = b.square().sum()
        np.add(b.detach().numpy(), 1, out=b.detach().numpy())
        loss.backward()
    (finding,) = trace.diagnose()
    assert (finding.slug, finding.confidence) == ("silent-write", "likely")
    assert finding.culprit.text.startswith("np.add(b.detach()")


def test_write_through_data_not_read_by_backward_gives_no_finding():
    net = nn.Linear(3, 1)
    with autogradviz.record(fingerprints=True) as trace:
        loss = net(torch.rand(2, 3)).sum()
        net.weight.data.clamp_(-0.01, 0.01)  # the weight gradient needs only the input
        loss.backward()
    assert surest(trace) == []


def test_counter_that_changes_values_silently_is_reported():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Block()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return self.block(x * self.calls)

    net = Scaled()
    with autogradviz.record(net, fingerprints=True) as trace:
        checkpoint(net, torch.rand(2, 8), use_reentrant=False).sum().backward()
    (finding,) = trace.diagnose()
    assert finding.slug == "checkpoint-different-values"
    assert finding.culprit.text == "self.calls += 1"
    assert finding.confidence == "certain"


def test_training_loop_gives_no_finding():
    net = nn.Sequential(stack(2), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(net.parameters())
    with autogradviz.record(net, fingerprints=True) as trace:
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.rand(4, 8)).square().mean().backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
    assert trace.diagnose() == []


def test_content_is_not_read_without_fingerprints():
    with autogradviz.record() as trace:
        torch.rand(3, requires_grad=True).exp().sum().backward()
    assert {op.output_hashes for op in trace.analysis.ops} == {()}


def test_no_cause_is_searched_without_a_difference(monkeypatch):
    monkeypatch.setattr(checkpoint_values, "find_cause", pytest.fail)  # reads all files of the user
    with autogradviz.record() as trace:
        checkpoint(
            Block(), torch.rand(2, 8, requires_grad=True), use_reentrant=True
        ).sum().backward()
    assert trace.diagnose() == []


def test_different_branch_with_equal_saves_gives_no_finding():
    linear, other = nn.Linear(3, 3), nn.Linear(3, 3)
    calls = []

    def region(x):
        calls.append(1)
        if len(calls) == 1:
            return torch.tanh(linear(x))
        return torch.tanh(linear(x)) * other(x)  # early stop ends before other

    with autogradviz.record(fingerprints=True) as trace:
        checkpoint(region, torch.rand(2, 3), use_reentrant=False).exp().sum().backward()
    assert surest(trace) == []


def test_statistics_updated_twice_are_not_reported_as_different_values():
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Tanh())
    with autogradviz.record(net, fingerprints=True) as trace:
        checkpoint(net, torch.rand(4, 3), use_reentrant=False).sum().backward()
    assert {slug for slug, _ in surest(trace)} == {"checkpoint-effect-repeated"}


def test_weights_changed_between_two_backwards_are_reported():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    with autogradviz.record(net, fingerprints=True) as trace:
        out = checkpoint(net, torch.rand(4, 3), use_reentrant=False)
        out.sum().backward(retain_graph=True)
        with torch.no_grad():
            net[2].weight.mul_(2)
        out.square().sum().backward()
    assert surest(trace)[0] == ("checkpoint-captured-tensor-mutated", "certain")
    assert trace.diagnose()[0].culprit.text == "net[2].weight.mul_(2)"


@pytest.mark.parametrize("fingerprints", [True, False])
def test_gates_that_share_a_storage_are_not_a_silent_write(fingerprints):
    cell = nn.GRUCell(3, 4)
    with autogradviz.record(cell, fingerprints=fingerprints) as trace:
        state = cell(torch.rand(2, 3), torch.zeros(2, 4))
        cell(torch.rand(2, 3), state).sum().backward()
    assert surest(trace) == []


def test_noise_drawn_after_its_save_is_not_a_different_value():
    net = nn.Sequential(nn.Linear(8, 8), nn.RReLU(0.1, 0.9), nn.Linear(8, 8))
    with autogradviz.record(net, fingerprints=True) as trace:
        checkpoint(net, torch.rand(16, 8), use_reentrant=False).square().sum().backward()
    assert surest(trace) == []


def contents(*tensors):
    """Return the content hashes of tensors in a recording."""
    with autogradviz.record(fingerprints=True) as trace:
        for tensor in tensors:
            tensor.sum()
    return [op.input_hashes[0] for op in trace.log.of(OpCalled) if op.op.startswith("aten.sum")]


@pytest.mark.parametrize("rows", [2, 1000, 1001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.complex64])
def test_content_hashes_do_not_depend_on_the_layout(rows, dtype):
    wide = (torch.randn(rows, 199) * 1000).to(dtype)
    spread = torch.empty(rows, 2 * 199, dtype=dtype)[:, ::2]
    shifted = torch.empty(rows * 199 + 1, dtype=dtype)[1:].view(rows, 199)
    same = [wide, wide.t().contiguous().t(), spread.copy_(wide), shifted.copy_(wide)]
    others = [wide.clone() for _ in range(4)]
    others[0][-1, -1] += 1
    others[1].neg_()
    others[2][1].zero_()
    others[3] *= 2
    assert len(set(contents(*same))) == 1
    assert len(set(contents(wide, *others))) == 5


@pytest.mark.parametrize("times", [600, 601])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int16])
def test_expanded_tensor_has_the_hash_of_its_copy(times, dtype):
    row = (torch.randn(3, 1, 5) * 1000).to(dtype)
    wide = row.expand(3, times, 5)
    same, copied, other = contents(wide, wide.clone(), wide * 2)
    assert same == copied != other


def test_tensor_expanded_beyond_memory_is_read():
    with autogradviz.record(fingerprints=True) as trace:
        wide = torch.tensor([[1.0], [float("nan")]]).expand(2, 2**50).unsqueeze(0)
        wide[:, :, :3].isnan()
    assert trace.log.of(RecorderFailed) == ()
    assert (2**50, 0) in {
        (seen.nan_count, seen.infinity_count) for seen in trace.log.of(NotFiniteSeen)
    }


def test_small_content_hashes_depend_on_the_order():
    with autogradviz.record(fingerprints=True) as trace:
        square = torch.arange(16.0).reshape(4, 4)
        turned = square.t().contiguous()
        square.t() * 1
        assert not torch.equal(square, turned)
    hashes = {op.op: op.output_hashes for op in trace.log.of(OpCalled)}
    assert hashes["aten.clone.default"] != hashes["aten.arange.default"]
    assert hashes["aten.clone.default"] == hashes["aten.mul.Tensor"]


def test_product_of_a_matrix_and_its_transpose_is_not_a_silent_write():
    weight = torch.randn(4, 4, requires_grad=True)
    with autogradviz.record(fingerprints=True) as trace:
        h = (torch.randn(4, 4) @ weight).tanh()
        (h @ h.t()).square().sum().backward()
    assert trace.diagnose() == []


class Counting(TorchDispatchMode):
    """Rounds the inputs of matrix products, and lists the operators."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        if func is torch.ops.aten.mm.default:
            args = [(a * 4).round() / 4 for a in args]
        return func(*args, **(kwargs or {}))


def rounded_in_forward_only():
    x, w = torch.rand(3, 4, requires_grad=True), torch.rand(4, 4, requires_grad=True)
    with Counting() as mode:
        y = checkpoint(lambda x, w: torch.tanh(x @ w), x, w, use_reentrant=False)
    y.sum().backward()
    return mode.seen, w.grad


def test_contents_are_read_below_the_modes_of_the_user():
    torch.manual_seed(0)
    seen, gradient = rounded_in_forward_only()
    torch.manual_seed(0)
    with autogradviz.record(fingerprints=True) as trace:
        seen_again, gradient_again = rounded_in_forward_only()
    assert seen_again == seen
    assert torch.equal(gradient_again, gradient)
    first = trace.diagnose()[0]
    assert first.confidence == "likely"
    assert first.culprit.text == "with Counting() as mode:"


@pytest.mark.parametrize("late", [True, False])
def test_other_parameters_in_a_recomputation_need_no_fingerprints(late):
    layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    h = torch.rand(2, 4)
    with autogradviz.record(layers) as trace:
        for layer in layers:
            if late:
                h = checkpoint(lambda t: layer(t).sin(), h, use_reentrant=False)  # noqa: B023
            else:
                h = checkpoint(lambda t, layer=layer: layer(t).sin(), h, use_reentrant=False)
        h.sum().backward()
    found = [each for each in trace.diagnose() if each.slug == "checkpoint-different-values"]
    assert len(found) == late
    for finding in found:
        assert finding.culprit.text.startswith("h = checkpoint(lambda t: layer(t)")
        assert "read 0.weight" in str(finding.explanation)
        assert "2.weight when recomputed" in str(finding.explanation)
