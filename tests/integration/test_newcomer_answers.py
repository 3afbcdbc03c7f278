"""Answers to questions of people who record their first programs."""

from __future__ import annotations

import copy
import sys
from functools import partial

import numpy as np
import pytest
import torch
from interpreters import run_forked

import autogradviz
from autogradviz.events import ParameterNormRead, ParameterSeen


def normalized(z):
    array = z.detach().numpy()
    return torch.from_numpy(array / np.linalg.norm(array))


def doubled(z):
    array = np.asarray(z.detach())
    return torch.as_tensor(array * 2)


def detached(z):
    return z.detach() * 2


STAY = "# stay in torch: numpy has no gradient"


@pytest.mark.parametrize(
    ("function", "stays"), [(normalized, True), (doubled, True), (detached, False)]
)
def test_detached_value_that_goes_to_numpy_is_not_fixed_by_leaving_out_detach(function, stays):
    layer, scale = torch.nn.Linear(3, 3), torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([*layer.parameters(), scale], lr=0.1)
    with autogradviz.record() as trace:
        for _ in range(2):
            optimizer.zero_grad()
            (function(layer(torch.rand(2, 3))) * scale).sum().backward()
            optimizer.step()
    [finding] = trace.diagnose()
    assert finding.slug == "gradient-missing"
    assert (finding.fix == STAY) == stays
    assert ("the conversion raises" in " ".join(finding.explanation.split())) == stays
    assert (trace.audit()[0].fix == STAY) == stays


@pytest.mark.parametrize("epochs", [1, 2, 4])
def test_gradients_that_are_cleared_once_per_epoch_are_found_however_much_is_recorded(epochs):
    layer = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    with autogradviz.record() as trace:
        for _ in range(epochs):
            optimizer.zero_grad()
            for _ in range(4):
                layer(torch.rand(2, 3)).sum().backward()
                optimizer.step()
    [finding] = trace.diagnose()
    assert finding.slug == "gradients-not-cleared"
    assert finding.culprit.text == "optimizer.step()"


def test_why_of_a_loss_that_is_not_finite_does_not_repeat_the_question():
    layer = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    x = torch.rand(4, 3)
    x[0] = 0
    torch.nn.init.zeros_(layer.bias)
    with autogradviz.record() as trace:
        for _ in range(3):
            optimizer.zero_grad()
            distance = torch.sqrt(layer(x).pow(2).sum(1))
            same = distance * distance.detach()
            (same * 0.5).mean().backward()
            optimizer.step()
    answer = trace.why("loss")
    assert answer.question == "the value is NaN or infinite"
    assert answer.steps[-1].statement.startswith("distance = torch.sqrt")
    assert answer.alternatives == ()
    assert "fingerprints=True" in answer.to_record


class Adapter(torch.nn.Module):
    """A layer with a product of two small matrices, of which one starts with zeros."""

    def __init__(self, size, *, zeros=True):
        super().__init__()
        self.base = torch.nn.Linear(size, size)
        self.lora_A = torch.nn.Parameter(torch.randn(2, size))
        self.lora_B = torch.nn.Parameter((torch.zeros if zeros else torch.randn)(size, 2))

    def forward(self, x):
        return self.base(x) + x @ self.lora_A.T @ self.lora_B.T


def findings_of_training(model, trained, frozen=None):
    for name, parameter in model.named_parameters():
        if frozen is not None:
            parameter.requires_grad = not frozen(name)
    optimizer = torch.optim.SGD(trained, lr=0.1)
    with autogradviz.record() as trace:
        for _ in range(3):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(torch.rand(4, 6)), torch.arange(4)).backward()
            optimizer.step()
    return trace.diagnose()


def adapted(*, zeros=True):
    return torch.nn.Sequential(
        Adapter(6, zeros=zeros), torch.nn.ReLU(), Adapter(6, zeros=zeros), torch.nn.Linear(6, 4)
    )


@pytest.mark.parametrize("head_only", [True, False])
def test_adapters_that_are_frozen_and_zero_are_named(head_only):
    model = adapted()
    trained = model[3].parameters() if head_only else model.parameters()
    [finding] = findings_of_training(model, trained, lambda name: not name.startswith("3."))
    assert finding.slug == "leaf-never-thawed"
    assert finding.culprit.text == "parameter.requires_grad = not frozen(name)"
    assert "[0].lora_B.requires_grad_(True)" in finding.fix
    assert ("SGD has it" in " ".join(finding.explanation.split())) == (not head_only)


def test_the_first_entries_of_a_frozen_parameter_are_read_without_a_copy():
    model = torch.nn.Linear(2, 2)
    # A view of which a copy would have 2**44 entries.
    sliding = torch.ones(2**22).as_strided((2**22, 2**22), (1, 0))
    model.sliding = torch.nn.Parameter(sliding, requires_grad=False)
    model.zeros = torch.nn.Parameter(torch.zeros(4, 3).t(), requires_grad=False)
    with autogradviz.record(model) as trace:  # a failure to read would be a warning
        (model(torch.ones(1, 2)) * model.sliding[0, 0] + model.zeros[0, 0]).sum().backward()
    read = {each.tensor_id: each.norm for each in trace.analysis.log.of(ParameterNormRead)}
    names = {leaf.tensor_id: leaf.parameter_name for leaf in trace.analysis.log.of(ParameterSeen)}
    assert {names[tensor_id]: norm for tensor_id, norm in read.items()} == {"zeros": 0.0}


def frozen_before_the_adapters():
    model = adapted()
    for name, parameter in model.named_parameters():
        parameter.requires_grad = "lora_" in name or name.startswith("3.")
    return model, [each for each in model.parameters() if each.requires_grad]


def frozen_backbone():
    model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4))
    model[0].requires_grad_(False)
    return model, model.parameters()


def frozen_adapters_of_an_earlier_training():
    model = adapted(zeros=False)
    model[:3].requires_grad_(False)
    return model, model[3].parameters()


def frozen_biases_of_zeros():
    model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4))
    model[0].requires_grad_(False)
    torch.nn.init.zeros_(model[0].bias)
    return model, model[2].parameters()


class WithReference(torch.nn.Module):
    """A model and a frozen copy of its start, as for a distance to it."""

    def __init__(self):
        super().__init__()
        self.policy = torch.nn.Linear(6, 4)
        torch.nn.init.zeros_(self.policy.weight)
        self.reference = torch.nn.Linear(6, 4)
        self.reference.load_state_dict(self.policy.state_dict())
        self.reference.requires_grad_(False)

    def forward(self, x):
        return self.policy(x) - 0.5 * self.reference(x)


def reference_of_zeros():
    model = WithReference()
    return model, model.policy.parameters()


class WithTable(torch.nn.Module):
    """A layer after a frozen table of positions, which starts with zeros and is added."""

    def __init__(self):
        super().__init__()
        self.positions = torch.nn.Parameter(torch.zeros(1, 6), requires_grad=False)
        self.layer = torch.nn.Linear(6, 4)

    def forward(self, x):
        return self.layer(x + self.positions)


def table_of_zeros():
    model = WithTable()
    return model, model.parameters()


@pytest.mark.parametrize(
    "make",
    [
        frozen_before_the_adapters, frozen_backbone, frozen_adapters_of_an_earlier_training,
        frozen_biases_of_zeros, reference_of_zeros, table_of_zeros,
    ],
)  # fmt: skip
def test_parameters_that_are_frozen_on_purpose_are_no_finding(make):
    assert not findings_of_training(*make())


def with_softmax(layers):
    return torch.nn.Sequential(torch.nn.Linear(6, 4), *layers)


@pytest.mark.parametrize(
    ("layers", "fix"),
    [
        ([torch.nn.Softmax(dim=1)], "[1] = torch.nn.Identity()  # in place of Softmax"),
        ([torch.nn.Sigmoid()], "[1] = torch.nn.Identity()  # in place of Sigmoid"),
        ([torch.nn.Softmax(dim=1), torch.nn.Flatten()], "[1] = torch.nn.Identity()"),
    ],
)
def test_probabilities_of_the_line_of_the_loss_are_found(layers, fix):
    model = with_softmax(layers)
    [finding] = findings_of_training(model, model.parameters())
    assert finding.slug == "loss-of-probabilities"
    assert fix in finding.fix


class Logarithm(torch.nn.Module):
    def forward(self, x):
        return x.log()


class Sharper(torch.nn.Module):
    def forward(self, x):
        return x / 0.05


@pytest.mark.parametrize(
    "layers",
    [
        [],
        [torch.nn.LogSoftmax(dim=1)],
        [torch.nn.Softmax(dim=1), Logarithm()],
        [torch.nn.Softmax(dim=1), torch.nn.Linear(4, 4)],
        [torch.nn.Sigmoid(), Sharper()],
    ],
)
def test_values_that_a_cross_entropy_can_take_are_no_finding(layers):
    model = with_softmax(layers)
    assert not findings_of_training(model, model.parameters())


def clears_before_the_step(layer, optimizer):
    for _ in range(3):
        layer(torch.rand(2, 3)).square().sum().backward()
        optimizer.zero_grad()
        optimizer.step()


def zeroes_before_the_step(layer, optimizer):
    for _ in range(3):
        layer(torch.rand(2, 3)).square().sum().backward()
        optimizer.zero_grad(set_to_none=False)
        optimizer.step()


def clears_the_layer_before_the_step(layer, optimizer):
    for _ in range(3):
        layer(torch.rand(2, 3)).square().sum().backward()
        layer.zero_grad()
        optimizer.step()


def clears_after_the_step(layer, optimizer):
    for _ in range(3):
        layer(torch.rand(2, 3)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def zeroes_after_the_step(layer, optimizer):
    for _ in range(3):
        layer(torch.rand(2, 3)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def why_of_a_weight(work):
    layer = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    with autogradviz.record(layer) as trace:
        work(layer, optimizer)
    return trace.why("weight")


@pytest.mark.parametrize(
    "work", [clears_before_the_step, zeroes_before_the_step, clears_the_layer_before_the_step]
)
def test_why_of_a_cleared_parameter_says_so_and_ends_at_the_line_that_clears(work):
    answer = why_of_a_weight(work)
    assert answer.question == "its gradients never reach a step"
    first, last = answer.steps
    assert first.text == "weight got a gradient, 3 times, and no step used one"
    assert "zero_grad(" in last.statement


@pytest.mark.parametrize("work", [clears_after_the_step, zeroes_after_the_step])
def test_why_of_a_parameter_that_is_cleared_after_the_step_is_how_it_got_its_gradient(work):
    assert why_of_a_weight(work).question == "how it got its gradient"


def test_diagnose_of_something_else_than_a_recording_says_what_has_findings():
    loss = torch.nn.Linear(3, 1)(torch.rand(2, 3)).sum()
    with autogradviz.record() as trace:
        loss.backward()
    package = sys.modules["autogradviz.diagnose"]
    with pytest.raises(TypeError, match="not of Tensor: with autogradviz.record"):
        package(loss)
    with pytest.raises(TypeError, match=r"trace\.diagnose\(\) returns the findings of a recording"):
        package(trace)


def test_names_that_views_and_recordings_have_are_named_in_the_error():
    with autogradviz.record() as trace:
        pass
    with pytest.raises(AttributeError, match=r"has: trace\.graph\(\)\.svg\(path\)"):
        trace.svg()
    with pytest.raises(AttributeError, match=r"^'Trace' object has no attribute 'nothing'$"):
        _ = trace.nothing
    with pytest.raises(AttributeError, match=r"a recording has it: trace\.why"):
        _ = autogradviz.why
    assert not hasattr(autogradviz, "nothing")


def trained_for(kind, count):
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 3)
    optimizer = kind(layer.parameters(), lr=0.1)
    with autogradviz.record(layer) as trace:
        for _ in range(count):
            optimizer.zero_grad()
            layer(torch.ones(2, 3)).sum().backward()
            optimizer.step()
    return trace


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.RMSprop])
def test_ranges_of_the_profiler_are_no_first_difference(kind):
    plain = trained_for(torch.optim.SGD, 2)
    assert any(op.overload.startswith("profiler.") for op in plain.analysis.ops)
    for other in (trained_for(kind, 2), trained_for(torch.optim.SGD, 3)):
        assert "record_function" not in str(autogradviz.compare(plain, other))


EMBEDDING = torch.nn.Embedding(10, 4)


def integers_made_with_a_gradient():
    return torch.tensor(1, requires_grad=True)


def integers_as_a_parameter():
    return torch.nn.Parameter(torch.arange(3))


def integers_that_get_a_gradient():
    x = torch.arange(3)
    x.requires_grad_()
    return x


def integers_that_are_set_to_have_a_gradient():
    x = torch.arange(3)
    x.requires_grad = True
    return x


def index_of_floats():
    index = torch.tensor([0.0, 1.0])
    return torch.rand(3, 2)[index]


def words_of_floats():
    out = EMBEDDING(torch.rand(3, 4))
    return out.sum()


def frozen_layer():
    layer = torch.nn.Linear(3, 1)
    for p in layer.parameters():
        p.requires_grad = False
    layer(torch.rand(2, 3)).sum().backward()


def nothing_that_is_trained():
    w = torch.randn(3)
    (torch.rand(4, 3) @ w).sum().backward()


@pytest.mark.parametrize(
    ("work", "fix"),
    [
        (integers_made_with_a_gradient,
         "return torch.tensor(1, dtype=torch.float32, requires_grad=True)"),
        (integers_as_a_parameter, "return torch.nn.Parameter(torch.arange(3).float())"),
        (integers_that_get_a_gradient, "x = x.float().requires_grad_()"),
        (integers_that_are_set_to_have_a_gradient, "x = x.float().requires_grad_()"),
        (index_of_floats, "return torch.rand(3, 2)[index.long()]"),
        (words_of_floats, "out = EMBEDDING(torch.rand(3, 4).long())"),
        (frozen_layer, "p.requires_grad = True  # for what is to be trained"),
        (nothing_that_is_trained, "\nw = torch.randn(3).requires_grad_()"),
    ],
)  # fmt: skip
def test_fix_of_what_is_refused_is_the_statement_of_the_program(work, fix):
    with pytest.raises((RuntimeError, IndexError)), autogradviz.record() as trace:
        work()
    [finding] = trace.diagnose()
    assert fix in finding.fix


def episode_without_gradients(policy, value):
    logs, rewards = [], []
    with torch.no_grad():
        for _ in range(3):
            choice = torch.distributions.Categorical(logits=policy(torch.rand(3)))
            action = choice.sample()
            logs.append(choice.log_prob(action))
            rewards.append(float(action))
    return -(torch.stack(logs) * torch.tensor(rewards)).sum()


def episode_in_a_decorated_function(policy, value):
    logs = [log_of_an_action(policy) for _ in range(3)]
    return -torch.stack(logs).sum()


@torch.no_grad()
def log_of_an_action(policy):
    choice = torch.distributions.Categorical(logits=policy(torch.rand(3)))
    return choice.log_prob(choice.sample())


def episode_with_logs_of_numbers(policy, value):
    logs, values = [], []
    for _ in range(3):
        state = torch.rand(3)
        choice = torch.distributions.Categorical(logits=policy(state))
        logs.append(choice.log_prob(choice.sample()).item())
        values.append(value(state))
    advantage = torch.ones(3) - torch.cat(values)
    return -(torch.tensor(logs) * advantage.detach()).sum()


@pytest.mark.parametrize(
    ("episode", "line"),
    [
        (episode_without_gradients, "with torch.no_grad():"),
        (episode_in_a_decorated_function, "@torch.no_grad()"),
        (episode_with_logs_of_numbers,
         "logs.append(choice.log_prob(choice.sample()).item())"),
    ],
)  # fmt: skip
def test_loss_of_a_policy_without_a_graph_is_explained_by_the_line_that_cuts_it(episode, line):
    policy, value = torch.nn.Linear(3, 2), torch.nn.Linear(3, 1)
    with pytest.raises(RuntimeError), autogradviz.record() as trace:
        episode(policy, value).backward()
    [finding] = trace.diagnose()
    assert (finding.slug, finding.culprit.text) == ("graph-lost", line)


def test_block_that_enables_gradients_inside_of_another_restores_the_mode_of_that():
    layer = torch.nn.Linear(3, 1)
    with pytest.raises(RuntimeError), autogradviz.record() as trace:
        torch.set_grad_enabled(False)
        try:
            with torch.enable_grad():
                torch.ones(3)
            loss = layer(torch.rand(2, 3)).sum()
            loss.backward()
        finally:
            torch.set_grad_enabled(True)
    [finding] = trace.diagnose()
    assert finding.culprit.text == "torch.set_grad_enabled(False)"


class Words(torch.nn.Module):
    """A model whose first and last layer have one weight."""

    def __init__(self, *, tied=True):
        super().__init__()
        self.embedding = torch.nn.Embedding(4, 6)
        self.head = torch.nn.Linear(6, 4, bias=False)
        self.head.weight = self.embedding.weight
        self.tied = tied

    def forward(self, x):
        return self.head(self.embedding(x.argmax(1) % 4))


class WordsThatMayBeTied(Words):
    def __init__(self, *, tied):
        super().__init__()
        self.head = torch.nn.Linear(6, 4, bias=False)
        if tied:
            self.head.weight = self.embedding.weight


def copied_head():
    model = Words()
    model.head = copy.deepcopy(model.head)
    return model


def other_head():
    model = Words()
    model.head.weight = torch.nn.Parameter(torch.randn(4, 6))
    return model


@pytest.mark.parametrize("make", [copied_head, other_head])
def test_weights_that_were_tied_and_are_two_are_found(make):
    model = make()
    [finding] = findings_of_training(model, model.parameters())
    assert finding.slug == "weights-untied"
    tie = "self.head.weight = self.embedding.weight"
    assert tie in {finding.culprit.text, finding.victim and finding.victim.text}
    assert finding.fix.partition("  #")[0].endswith(".embedding.weight")


def loaded():
    model = Words()
    model.load_state_dict(Words().state_dict())
    return model


@pytest.mark.parametrize(
    "make",
    [
        Words,
        lambda: Words().to(torch.float64).to(torch.float32),
        lambda: copy.deepcopy(Words()),
        loaded,
        partial(WordsThatMayBeTied, tied=True),
        partial(WordsThatMayBeTied, tied=False),
    ],
)
def test_weights_that_are_tied_or_never_were_are_no_finding(make):
    model = make()
    assert not findings_of_training(model, model.parameters())


class WordsOfTwoWeights(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(4, 6)
        self.head = torch.nn.Linear(6, 4, bias=False)

    def forward(self, x):
        return self.head(self.embedding(x))


@pytest.mark.parametrize("first", ["", "model.head.weight = model.embedding.weight"])
def test_weights_that_a_script_ties_before_or_after_training_are_no_finding(tmp_path, first):
    script = tmp_path / "script.py"
    text = (
        f"{first}\nmodel(x).square().sum().backward()\nmodel.head.weight = model.embedding.weight\n"
    )
    script.write_text(text, encoding="utf-8")
    model = WordsOfTwoWeights()
    with autogradviz.record(model) as trace:
        exec(compile(text, str(script), "exec"), {"model": model, "x": torch.arange(4)})
    assert "weights-untied" not in {finding.slug for finding in trace.diagnose()}


def test_values_of_a_loss_are_not_called_the_loss():
    layer = torch.nn.Linear(6, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    with autogradviz.record(layer) as trace:
        for _ in range(2):
            optimizer.zero_grad()
            scores = layer(torch.rand(4, 6)).softmax(1)
            torch.nn.functional.nll_loss(scores, torch.arange(4)).backward()
            optimizer.step()
    [finding] = trace.diagnose()
    after = " ".join(finding.explanation.split()).partition("The values are made here:")[2]
    assert "softmax(1)" in after.partition("By the op")[0]
    assert "The loss:" not in finding.explanation


TRAIN = """
import torch
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(5):
    net(torch.ones(2, 3)).square().sum().backward()
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.one_in(2, reason="runs scripts", in_ci=1)
def test_a_trace_of_another_script_of_the_same_name_is_kept(tmp_path):
    (tmp_path / "other").mkdir()
    for folder in (tmp_path, tmp_path / "other"):
        (folder / "train.py").write_text(TRAIN)
    run_forked("-m", "autogradviz", "run", "train.py", cwd=tmp_path)
    first = (tmp_path / "train.agv").read_bytes()
    done = run_forked("-m", "autogradviz", "run", "other/train.py", cwd=tmp_path)
    assert "train.agv is the trace of another script, and is kept" in done.stderr
    assert (tmp_path / "train.agv").read_bytes() == first
    run_forked("-m", "autogradviz", "run", "train.py", cwd=tmp_path)
    assert sorted(each.name for each in tmp_path.glob("*.agv")) == ["train-2.agv", "train.agv"]
    shown = run_forked("-m", "autogradviz", "show", "train.agv", cwd=tmp_path).stdout
    assert "of the recorder in the whole run" in " ".join(shown.split())
    error = run_forked("-m", "autogradviz", "diagnose", "train", cwd=tmp_path).stderr
    assert "did you mean train.agv?" in error


WITHOUT_A_FACTOR = """
import torch
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        return gradient * 1
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    Double.apply(net(torch.ones(2, 3))).square().sum().backward()
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.one_in(2, reason="runs a script", in_ci=1)
def test_the_last_line_of_run_names_a_backward_that_is_not_checked(tmp_path):
    (tmp_path / "doubled.py").write_text(WITHOUT_A_FACTOR)
    done = run_forked("-m", "autogradviz", "run", "doubled.py", cwd=tmp_path).stderr
    assert "the hand-written backward at doubled.py:9 is not checked" in done
    assert "autogradviz check doubled.py:FUNCTION" in done


def test_a_weight_that_an_optimizer_wrote_is_named_in_the_title():
    net, x = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)), torch.ones(1, 2)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(RuntimeError), autogradviz.record(net) as trace:
        loss = net(x).sum()
        loss.backward(retain_graph=True)
        opt.step()
        loss.backward()
    assert (
        trace.diagnose()[0].title == "1.weight was written by opt.step() before backward needed it"
    )


def test_all_parameters_behind_a_line_that_runs_for_several_values_are_counted():
    layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))
    x = torch.randn(2, 3, 8)
    with autogradviz.record(layers) as trace:
        parts = [layer(x).view(2, 2, 3, 4) for layer in layers]
        sum((part.square() * torch.rand(4)).sum() for part in parts).backward()
    fact = next(each for each in trace.audit() if "has the sizes in another order" in each.effect)
    assert "6 parameters (100 % of the elements) are behind it" in fact.effect


def test_a_step_that_prints_is_printed_once_by_check(capsys):
    net = torch.nn.Linear(3, 1)

    def step():
        sys.stdout.write("printed\n")
        return net(torch.ones(2, 3)).square().sum()

    assert autogradviz.check(step, net, prove=False).ok
    assert capsys.readouterr().out == "printed\n"


class Narrow(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.last = torch.nn.Linear(size, 2)

    def forward(self, x):
        return self.last(x.flatten(1))


def test_why_of_a_refused_shape_lists_the_constructor_and_its_caller():
    with pytest.raises(RuntimeError), autogradviz.record() as trace:
        net = Narrow(size=4)
        net(torch.rand(2, 3)).sum().backward()
    texts = [step.statement for step in trace.why("error").steps]
    texts += [each.statement for each in trace.why("error").alternatives]
    assert "self.last = torch.nn.Linear(size, 2)" in texts
    assert "net = Narrow(size=4)" in texts
    [name] = [each for each in trace.analysis.module_by_name if each.endswith("last")]
    text = str(trace.why(f"{name}.weight"))
    assert "no backward ran: RuntimeError was raised before it" in text
    assert "with block" not in text
