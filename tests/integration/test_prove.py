"""``prove``: the step again with one cause undone. It agrees with the facts and changes nothing."""

import builtins
import copy
import dataclasses
import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from interpreters import run_forked
from torch import nn
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.event_log.stacks import line_of_file
from autogradviz.experiments.replace_statement import NotUndoneError, Statement, left_out

pytestmark = pytest.mark.one_in(3, reason="runs each step several times", in_ci=1)

HERE = __file__
CASES = Path(__file__).parent.parent / "cases"


def line_with(text, occurrence=0):
    """Return the location of a line of this file."""
    lines = Path(HERE).read_text(encoding="utf-8").splitlines()
    numbers = [n for n, line in enumerate(lines, 1) if text in line and "line_with" not in line]
    return line_of_file(HERE, numbers[occurrence], "")


def recorded(step, model=None, *, times=1):
    """Return the trace of a step, which may raise."""
    try:
        with autogradviz.record(model, fingerprints=True) as trace:
            for _ in range(times):
                step()
    except Exception:
        pass
    return trace


def proof_of(step, model=None, *, times=1):
    """Return the proof of the first finding of a step."""
    trace = recorded(step, model, times=times)
    return trace.prove(step=step, model=model)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


X = torch.rand(5, 3, generator=torch.Generator().manual_seed(1))


# --- each mechanism -------------------------------------------------------------------------


def test_write_that_raises_is_proved_with_the_gradient_of_the_fixed_step():
    model = net()

    def step(fixed=False):
        hidden = model[1](model[0](X))
        out = model[2](hidden).sum()
        if not fixed:
            hidden.mul_(0.5)  # the write
        out.backward()

    proof = proof_of(step, model)
    assert proof.answer == "proved", proof.reason
    assert proof.finding.confidence == "certain"
    assert proof.finding.culprit == dataclasses.replace(
        line_with("hidden.mul_(0.5)  # the write"), function=proof.finding.culprit.function
    )
    step(fixed=True)
    norms = {name: float(p.grad.norm()) for name, p in model.named_parameters()}
    name, norm = max(norms.items(), key=lambda each: each[1])
    assert f"no RuntimeError is raised, and the gradient of {name} (and of 3 more)" in proof.reason
    assert f"has norm {norm:.3g}" in proof.reason


def test_silent_write_is_proved_by_the_gradient_that_the_saved_values_give():
    model = net()

    def step():
        hidden = model[1](model[0](X))
        out = model[2](hidden).sum()
        hidden.data.mul_(0.5)
        out.backward()

    proof = proof_of(step, model)
    assert (proof.answer, proof.finding.confidence) == ("proved", "certain"), proof.reason
    assert "has norm" in proof.reason
    assert "where it was" in proof.reason


def test_write_by_numpy_is_undone_as_well():
    model = net()

    def step():
        hidden = model[1](model[0](X))
        out = model[2](hidden).sum()
        array = hidden.detach().numpy()
        array *= 0.5
        out.backward()

    trace = recorded(step, model)
    [finding, *_] = trace.diagnose()
    wrong = dataclasses.replace(finding, culprit=line_with("array *= 0.5"))
    assert trace.prove(wrong, step=step, model=model).answer == "proved"


def test_line_that_writes_something_else_is_not_cured_and_steps_back():
    model = net()

    def step():
        hidden = model[1](model[0](X))
        out = model[2](hidden).sum()
        copied = model[0].weight.detach().exp_()  # writes what nothing else reads
        hidden.mul_(0.5)
        model[2].bias.data.add_(copied.sum() * 0)  # writes the same values again
        out.backward()

    trace = recorded(step, model)
    [finding, *_] = trace.diagnose()
    assert finding.confidence == "certain"
    other = dataclasses.replace(finding, culprit=line_with("model[2].bias.data.add_(copied"))
    proof = trace.prove(other, step=step, model=model)
    assert proof.answer in {"not cured", "cannot tell"}
    if proof.answer == "not cured":
        assert proof.finding.confidence == "likely"


def without_grad(hidden):
    with torch.no_grad():
        return hidden * 1


CUTS = {
    "hidden.detach()": lambda hidden: hidden.detach(),
    "hidden.data": lambda hidden: hidden.data,
    "with torch.no_grad():": without_grad,
    "torch.tensor([each.sum()])": lambda hidden: torch.stack(
        [torch.tensor([each.sum()]) for each in hidden]
    ),
    "torch.round(hidden + 0)": lambda hidden: torch.round(hidden + 0),
    "nn.Parameter(hidden * 1)": lambda hidden: nn.Parameter(hidden * 1),
    "torch.tensor(hidden.tolist())": lambda hidden: torch.tensor(hidden.tolist()),
}


def cut_finding(place):
    """Return a hint that a line cuts a gradient."""
    [finding, *_] = recorded(lambda: X.sum().backward()).diagnose()
    return dataclasses.replace(
        finding, slug="gradient-cut", mechanism="cut", confidence="hint", culprit=place
    )


@pytest.mark.parametrize("text", CUTS)
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
def test_cut_is_proved_by_the_gradient_that_arrives(text):
    model = net()

    def step():
        (CUTS[text](model[0](X)).sum() + model[2].weight.sum()).backward()

    number = CUTS[text].__code__.co_firstlineno
    place = line_of_file(HERE, number + (text == "with torch.no_grad():" or "each" in text), "")
    assert text in place.text
    proof = autogradviz.prove(step, model, cut_finding(place))
    assert proof.answer == "proved", proof.reason
    assert "the gradient of 0." in proof.reason
    assert "where there was none" in proof.reason or "where it was 0" in proof.reason
    assert proof.finding.confidence == "hint"


def test_effect_that_may_be_meant_is_no_proof_of_a_hint():
    model = net()

    def step():
        hidden = model[0](X)
        (hidden.square().sum() + hidden.detach().sum() * hidden.sum()).backward()  # one way

    proof = autogradviz.prove(step, model, cut_finding(line_with("* hidden.sum()).backward()")))
    assert proof.answer == "cannot tell"
    assert "the gradient of 0." in proof.reason
    assert proof.reason.endswith("which may be meant")
    likely = dataclasses.replace(proof.finding, confidence="likely")
    assert autogradviz.prove(step, model, likely).answer == "proved"


def test_straight_through_estimator_may_be_meant():
    model = net()

    def step():
        hidden = model[0](X)
        rounded = hidden.detach() * 2
        out = rounded + (hidden - rounded).detach()  # straight through
        (out.sum() + model[2].weight.sum()).backward()

    proof = autogradviz.prove(step, model, cut_finding(line_with("# straight through")))
    assert (proof.answer, "may be meant" in proof.reason) == ("cannot tell", True)


def test_statement_in_a_block_without_gradients_is_proved():
    model = net()

    def step():
        with torch.no_grad():
            weight = torch.rand(5, 4)
            hidden = weight * model[0](X)  # belongs below
        (hidden.sum() + model[2].weight.sum()).backward()

    proof = autogradviz.prove(step, model, cut_finding(line_with("# belongs below")))
    assert proof.answer == "proved", proof.reason


def value_finding(place):
    """Return a hint that a line gave the first value that is not finite."""
    return dataclasses.replace(cut_finding(place), slug="not-finite", mechanism="value")


@pytest.mark.parametrize(
    ("text", "answer"),
    [("log of 0", "proved"), ("root of 0", "proved"), ("finite here", "not cured")],
)
def test_the_line_that_makes_finite_values_infinite_is_proved(text, answer):
    model = net()

    def step():
        hidden = model[0](X)
        scaled = hidden.exp()  # finite here
        if text == "root of 0":
            loss = (scaled - scaled).sqrt().sum() + hidden.sum()  # root of 0
        else:
            loss = (scaled - scaled).log().sum() + hidden.sum()  # log of 0
        (loss + model[2](hidden.tanh()).sum()).backward()

    proof = autogradviz.prove(step, model, value_finding(line_with(f"  # {text}")))
    assert proof.answer == answer, proof.reason


def test_write_through_a_detached_name_is_proved():
    model = net()

    def step():
        scores = model[0](X) + 0
        weights = scores.detach()  # shares memory
        weights[:, 0] = 9.0
        (scores.square() * weights.softmax(-1)).sum().backward()

    hint = dataclasses.replace(
        cut_finding(line_with("# shares memory")), slug="written-in-place", mechanism="write"
    )
    proof = autogradviz.prove(step, model, hint)
    assert proof.answer == "proved", proof.reason


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.online, self.target = net(), net()


def test_module_with_a_trained_twin_may_be_a_target():
    model = Pair()

    def step():
        target = model.target(X).detach()  # no gradient
        (model.online(X) * (1 + target)).sum().backward()

    place = line_with("detach()  # no gradient")
    proof = autogradviz.prove(step, model, cut_finding(place))
    assert (proof.answer, "may be meant" in proof.reason) == ("cannot tell", True)


def test_factor_without_which_gradients_are_finite_is_proved_as_a_hint():
    model = net()

    def step():
        hidden = model[0](X).sum()
        slope = torch.zeros_like(hidden, requires_grad=True)
        slope.sqrt().backward()
        factor = slope.grad.detach()  # infinite
        hidden.register_hook(lambda grad: grad * factor)  # the hook
        (hidden + model[2].weight.sum()).backward()

    place = line_with("hidden.register_hook(lambda grad: grad * factor)  # the hook")
    hint = dataclasses.replace(cut_finding(place), slug="gradient-changed", mechanism="change")
    proof = autogradviz.prove(step, model, hint)
    assert proof.answer == "proved", proof.reason


def test_parameter_that_the_step_freezes_is_proved_and_stays_trained():
    model = net()

    def step():
        model[0].weight.requires_grad_(False)  # the freeze
        model(X).sum().backward()

    place = line_with("model[0].weight.requires_grad_(False)  # the freeze")
    proof = autogradviz.prove(step, model, cut_finding(place))
    assert proof.answer == "proved", proof.reason
    assert "the gradient of 0.weight" in proof.reason
    assert all(p.requires_grad for p in model.parameters())


def test_lost_graph_is_proved():
    model = net()

    def step():
        out = model(X).detach()
        out.sum().backward()

    proof = proof_of(step, model)
    assert (proof.answer, proof.finding.slug) == ("proved", "graph-lost")


def test_missing_clear_is_proved_in_a_loop():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step():
        for _ in range(3):
            model(X).square().mean().backward()
            optimizer.step()

    proof = proof_of(step, model)
    assert (proof.answer, proof.finding.slug) == ("proved", "gradients-not-cleared")
    assert "if gradients are cleared after" in proof.reason


def test_freed_graph_is_proved_by_keeping_it():
    model = net()

    def step():
        hidden = model[0](X)
        first, second = hidden.exp().sum(), hidden.tanh().sum()
        first.backward()
        second.backward()

    proof = proof_of(step, model)
    assert (proof.answer, proof.finding.slug) == ("proved", "graph-freed")
    assert proof.reason.count("keeps its graph") == 1


def test_state_that_is_not_detached_is_proved_with_two_runs_of_the_step():
    cell = nn.RNNCell(3, 4)
    carried = {"h": torch.zeros(5, 4)}

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = cell
            self.last = 0.0

    model = Model()

    def step():
        carried["h"] = torch.zeros(5, 4)
        for _ in range(2):
            carried["h"] = cell(X, carried["h"])
            carried["h"].sum().backward()

    proof = proof_of(step, model)
    assert proof.finding.slug == "graph-freed"
    assert proof.answer == "proved", proof.reason


class Counted(nn.Module):
    """A region whose forward depends on the number of its calls."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.calls = nn.Linear(3, 3), 0

    def block(self, x):
        self.calls += 1  # the counter
        scale = 1.0 / self.calls
        return torch.tanh(self.fc(x)) * scale * self.fc(x)

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)


def test_counter_of_a_region_is_proved_and_its_reader_only_in_its_own_words():
    model = Counted()

    def step():
        model(X).sum().backward()

    proof = proof_of(step, model)
    assert proof.answer == "proved", proof.reason
    assert proof.finding.confidence == "certain"
    assert proof.finding.culprit.text == "self.calls += 1  # the counter"
    assert "a recomputation finds what" in proof.reason
    assert "recomputing changes no gradient; with it, that of fc" in proof.reason
    assert model.calls == 2  # of the recording: forward and recomputation


def test_reentrant_region_is_followed_too():
    model = Counted()
    model.forward = lambda x: checkpoint(model.block, x, use_reentrant=True)
    given = X.clone().requires_grad_()

    def step():
        model(given).sum().backward()

    trace = recorded(step, model)
    [finding, *_] = recorded(lambda: X.sum().backward()).diagnose()
    finding = dataclasses.replace(
        finding, slug="checkpoint-different-values", mechanism="diverge", confidence="likely",
        culprit=line_with("self.calls += 1  # the counter"),
    )  # fmt: skip
    proof = trace.prove(finding, step=step, model=model)
    assert (proof.answer, proof.finding.confidence) == ("proved", "certain"), proof.reason


def test_input_without_gradient_of_a_reentrant_region_is_proved():
    model = net()

    def step():
        hidden = checkpoint(model[0], X, use_reentrant=True)
        model[2](model[1](hidden)).sum().backward()

    with pytest.warns(UserWarning, match="None of the inputs have requires_grad"):
        proof = proof_of(step, model)
    assert proof.answer == "proved", proof.reason
    assert proof.finding.slug == "reentrant-no-grad-input"
    assert "are not checkpointed, the gradient of 0." in proof.reason
    assert "where there was none" in proof.reason


def test_hook_that_changes_a_gradient_is_undone():
    model = net()

    def halve(gradient):
        return gradient * 0.5

    def step():
        hidden = model[0](X)
        hidden.register_hook(halve)
        model[2](model[1](hidden)).sum().backward()

    [finding, *_] = recorded(lambda: X.sum().backward()).diagnose()
    for text in ("return gradient * 0.5", "hidden.register_hook(halve)"):
        finding = dataclasses.replace(
            finding, slug="gradient-changed", mechanism="change", confidence="hint",
            culprit=line_with(text),
        )  # fmt: skip
        proof = autogradviz.prove(step, model, finding)
        assert proof.answer == "cannot tell"  # it may be meant
        norm = float(proof.reason.partition("has norm ")[2].partition(",")[0])
        was = float(proof.reason.partition("where it was ")[2].partition(";")[0])
        assert norm == pytest.approx(2 * was, rel=1e-2)
        assert proof.finding.confidence == "hint"


def test_factor_is_left_out():
    model = net()

    def step():
        loss = model(X).sum()
        loss = loss / 4
        loss.backward()

    [finding, *_] = recorded(lambda: X.sum().backward()).diagnose()
    finding = dataclasses.replace(
        finding, slug="accumulation-uneven", mechanism="change", confidence="hint",
        culprit=line_with("loss = loss / 4"),
    )  # fmt: skip
    proof = autogradviz.prove(step, model, finding)
    norm = float(proof.reason.partition("has norm ")[2].partition(",")[0])
    was = float(proof.reason.partition("where it was ")[2].partition(";")[0])
    assert norm == pytest.approx(4 * was, rel=1e-2)


# --- answers that are no proof --------------------------------------------------------------


def test_leaving_out_the_backward_proves_nothing():
    model = net()

    def step():
        hidden = model[1](model[0](X))
        out = model[2](hidden).sum()
        hidden.mul_(0.5)
        out.backward()  # that needs it

    trace = recorded(step, model)
    [finding, *_] = trace.diagnose()
    other = dataclasses.replace(finding, culprit=line_with("out.backward()  # that needs it"))
    proof = trace.prove(other, step=step, model=model)
    assert proof.answer == "not cured"
    assert proof.reason.endswith("writes no tensor that is saved for backward")
    assert (other.confidence, proof.finding.confidence) == ("certain", "likely")
    lost = dataclasses.replace(other, mechanism="drop")
    proof = trace.prove(lost, step=step, model=model)
    assert (proof.answer, proof.finding) == ("cannot tell", lost)
    assert proof.reason.endswith("the step runs fewer backwards")


def test_freed_memory_of_a_parameter_is_restored():
    model = net()
    before = model[2].weight.detach().clone()

    def step():
        out = model(X).sum()
        storage = model[2].weight.untyped_storage()
        storage.resize_(0)  # frees it
        out.backward()

    [finding, *_] = recorded(lambda: X.sum().backward()).diagnose()
    finding = dataclasses.replace(
        finding, slug="saved-memory-freed", mechanism="write", culprit=line_with("# frees it")
    )
    assert autogradviz.prove(step, model, finding).answer == "proved"
    assert torch.equal(model[2].weight, before)


def test_line_that_decides_the_loss_is_not_proved_by_another_gradient():
    model = net()

    def step():
        hidden = model[0](X)
        hidden = hidden + 1  # a part of the loss
        model[2](model[1](hidden)).sum().backward()

    [finding, *_] = recorded(lambda: X.sum().backward()).diagnose()
    finding = dataclasses.replace(
        finding,
        slug="written-in-place",
        mechanism="write",
        culprit=line_with("hidden + 1  # a part"),
    )
    assert autogradviz.prove(step, model, finding).answer == "cannot tell"


def test_line_that_does_not_run_and_finding_without_line():
    model = net()

    def step():
        hidden = model[1](model[0](X))
        out = model[2](hidden).sum()
        hidden.mul_(0.5)
        out.backward()

    trace = recorded(step, model)
    [finding, *_] = trace.diagnose()
    assert finding.mechanism == "write"
    absent = dataclasses.replace(finding, culprit=line_with("array *= 0.5"))
    assert trace.prove(absent, step=step, model=model).answer == "cannot tell"
    nowhere = dataclasses.replace(finding, culprit=None)
    assert str(trace.prove(nowhere, step=step)) == "cannot tell: the finding has no line"
    late = trace.prove(step=step, model=model, seconds=0)
    assert (late.answer, late.reason) == ("cannot tell", "no time left; set seconds=")


def test_step_that_does_not_repeat_its_symptom_is_not_proved():
    model, calls = net(), [0]

    def step():
        calls[0] += 1
        hidden = model[1](model[0](X))
        out = model[2](hidden).sum()
        if calls[0] < 5:  # the recording, and three runs
            hidden.mul_(0.5)
        out.backward()

    trace = recorded(step, model)
    assert trace.prove(step=step, model=model).answer == "proved"
    proof = trace.prove(step=step, model=model)
    assert proof.answer != "proved"


def test_prove_needs_a_finding():
    model = net()
    with pytest.raises(ValueError, match="the step has no finding"):
        autogradviz.prove(lambda: model(X).sum(), model)
    with pytest.raises(ValueError, match="the recording has no finding"):
        recorded(lambda: model(X).sum().backward(), model).prove(step=lambda: None)
    with pytest.raises(TypeError, match="nn.Module"):
        autogradviz.prove(lambda: None, X)


# --- nothing of the user's state changes ----------------------------------------------------


class Stateful(nn.Module):
    """Buffers, plain attributes, dropout, a hook and a checkpointed region."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.fc, self.drop = nn.BatchNorm1d(3), nn.Linear(3, 3), nn.Dropout(0.5)
        self.calls, self.history = 0, [1]
        self.fc.weight.register_hook(lambda gradient: gradient * 2)

    def block(self, x):
        self.calls += 1  # counts
        return self.drop(torch.tanh(self.fc(self.norm(x)))) / self.calls

    def forward(self, x):
        scale = random.random() * float(np.random.rand())  # noqa: NPY002 - its state is global
        return checkpoint(self.block, x, use_reentrant=False) * scale


def legacy_numpy_state():
    return np.random.get_state()[1].copy()  # noqa: NPY002 - the state that must not change


def content(model, optimizer):
    """Return all that must not change, as plain values."""
    return {
        "state": {n: t.clone() for n, t in model.state_dict().items()},
        "gradients": {n: (id(p.grad), p.grad.clone()) for n, p in model.named_parameters()},
        "tensors": {n: (id(p), p.data_ptr(), p._version, p.requires_grad)
                    for n, p in model.named_parameters()},
        "optimizer": copy.deepcopy(optimizer.state_dict()),
        "plain": (model.calls, model.history, model.training, model.norm.training),
        "random": (torch.get_rng_state(), random.getstate(), legacy_numpy_state()),
        "hooks": len(model.fc.weight._backward_hooks),
        "functions": (torch.utils.checkpoint.CheckpointFunction, torch.no_grad.__enter__,
                      torch.autograd.graph._engine_run_backward,
                      torch.utils.checkpoint._checkpoint_without_reentrant_generator,
                      torch.set_grad_enabled.__init__),
        "code": (Stateful.block.__code__, Stateful.forward.__code__),
        "modes": (torch.is_grad_enabled(), torch._C._len_torch_function_stack(),
                  torch._C._autograd._top_saved_tensors_default_hooks(True)),
        "tracer": sys.gettrace(),
        "builtins": sorted(vars(builtins)),
    }  # fmt: skip


def same(one, other):
    """Return whether two values are the same, tensors and arrays bit for bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@pytest.mark.parametrize("mechanism", ["write", "cut", "drop", "mix", "keep", "free", "change",
                                       "diverge", "refuse", "order", "own"])  # fmt: skip
@pytest.mark.parametrize("raises", [False, True])
def test_nothing_of_the_state_changes_also_after_an_exception(mechanism, raises):
    model = Stateful()
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    model(X).sum().backward()
    optimizer.step()  # state of the optimizer, and gradients that must stay

    def step():
        optimizer.zero_grad()
        loss = model(X).sum()
        loss.backward()
        optimizer.step()
        model.norm.running_mean.add_(1)
        if raises:
            message = "the step fails"
            raise ArithmeticError(message)

    [finding, *_] = recorded(lambda: X.sum().backward()).diagnose()
    before = content(model, optimizer)
    for text in (
        "self.calls += 1  # counts",
        "optimizer.step()\n",
        "model.norm.running_mean.add_(1)",
    ):
        place = line_with(text.strip(), 0 if "step()" not in text else -1)
        finding = dataclasses.replace(finding, mechanism=mechanism, culprit=place)
        proof = autogradviz.prove(step, model, finding, optimizer=optimizer)
        assert proof.runs >= 1
    after = content(model, optimizer)
    assert [key for key in before if not same(before[key], after[key])] == []


def test_tracer_of_a_debugger_is_restored():
    model = net()

    def step():
        hidden = model[1](model[0](X))
        out = model[2](hidden).sum()
        hidden.detach().numpy()[:] *= 0.5  # behind PyTorch's back
        out.backward()

    [finding, *_] = recorded(step, model).diagnose()
    finding = dataclasses.replace(finding, culprit=line_with("# behind PyTorch's back"))

    def tracer(_frame, _event, _argument):
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        proof = autogradviz.prove(step, model, finding)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)
    assert proof.answer == "proved", proof.reason


# --- statements -----------------------------------------------------------------------------


def test_statement_is_replaced_in_live_closures_only_while_the_context_is_open():
    values = []

    def outer(start):
        def inner():
            value = start
            value += 10  # is left out
            values.append(value)

        return inner

    early = outer(1)
    statement = Statement(line_with("value += 10  # is left out"))
    code = early.__code__
    with statement.replaced(left_out):
        early()
        outer(2)()
    assert early.__code__ is code
    early()
    assert values == [1, 2, 11]


def test_statement_whose_source_has_changed_is_not_replaced():
    place = dataclasses.replace(line_with("value += 10  # is left out"), text="value += 11")
    with pytest.raises(NotUndoneError, match="has changed"), Statement(place).replaced(left_out):
        pass


# --- check ----------------------------------------------------------------------------------


def test_check_proves_its_findings():
    model = Counted()

    def step():
        loss = model(X).sum()
        loss.backward()
        return loss

    result = autogradviz.check(step, model, relations=["certificate", "checkpoint"])
    [proof, *_] = result.proofs
    assert proof.answer == "proved", proof.reason
    assert (proof.finding.confidence, proof.finding.culprit.text) == (
        "certain", "self.calls += 1  # the counter",
    )  # fmt: skip
    assert "proved: if a recomputation finds" in str(result)
    assert model.calls == 0
    quiet = autogradviz.check(step, model, relations=["checkpoint"], prove=False)
    assert quiet.proofs == ()


def test_check_proves_the_finding_of_a_step_that_raises():
    model = net()

    def step():
        hidden = model[1](model[0](X))
        loss = model[2](hidden).sum()
        hidden.mul_(0.5)
        loss.backward()
        return loss

    result = autogradviz.check(step, model, relations=["certificate"])
    [proof] = result.proofs
    assert (proof.answer, proof.finding.slug) == ("proved", "saved-tensor-mutated")


def test_check_of_a_correct_step_runs_no_experiment():
    model = net()
    result = autogradviz.check(lambda: model(X).sum(), model, relations=["certificate"])
    assert result.proofs == ()


# --- real bugs ------------------------------------------------------------------------------

CHILD = """
import importlib.util, json, sys, warnings
warnings.simplefilter("ignore")
import torch
torch.set_num_threads(1)
import autogradviz
spec = importlib.util.spec_from_file_location("case", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules["case"] = module
spec.loader.exec_module(module)
try:
    with autogradviz.record(fingerprints=True) as trace:
        module.run()
except Exception:
    pass
proof = trace.prove(step=module.run)
print(json.dumps([proof.answer, proof.finding.culprit.lineno, proof.reason]))
"""

ANSWERED = [
    "ck_01_kv_cache_grows", "ck_04_batchnorm_twice", "ck_06_call_counter_branch",
    "ck_10_arg_mutated_before_backward", "ck_11_python_random_layerdrop",
    "ck_13_preserve_rng_false_dropout", "ck_23_eval_before_backward",
    "ck_36_weights_stepped_before_recompute", "ip_01_exp_output_scaled",
    "ip_03_vae_step_before_discriminator", "ip_07_dp_table_row_assignment",
    "ip_10_data_mutation_silent", "ip_13_embedding_max_norm", "ip_16_vq_ema_codebook",
]  # fmt: skip


@pytest.mark.one_in(3, reason="trains each program several times", in_ci=2)
@pytest.mark.parametrize("name", ANSWERED)
def test_real_bug_is_proved_at_its_line(name):
    path = CASES / f"{name}.py"
    done = run_forked("-c", CHILD, path, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    answer, lineno, reason = json.loads(done.stdout.splitlines()[-1])
    assert (answer, reason != "") == ("proved", True)
    assert path.read_text(encoding="utf-8").splitlines()[lineno - 1].endswith("# CULPRIT")


def test_clearing_after_each_step_says_nothing_about_a_closure():
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

    def closure():
        loss = model(X).square().mean()
        loss.backward()  # <-- never cleared
        return loss

    def step():
        optimizer.step(closure)

    trace = recorded(step)
    [finding] = [each for each in trace.diagnose() if each.slug == "gradients-not-cleared"]
    assert finding.culprit.text.endswith("# <-- never cleared")
    assert autogradviz.prove(step, model, finding).answer != "not cured"
