"""Modules and tensors are named, and asked about, as in the user's program."""

import gc
import sys
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.errors import UnknownTargetError

generator_net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
judge_net = nn.Sequential(nn.Linear(3, 1))


def parameters_of(trace):
    return {name for names in trace.analysis.parameters.values() for name in names}


def test_containers_have_the_names_of_global_variables():
    with autogradviz.record() as trace:
        judge_net(generator_net(torch.rand(4, 2))).sum().backward()
    assert parameters_of(trace) == {
        *("generator_net.0.weight", "generator_net.0.bias"),
        *("judge_net.0.weight", "judge_net.0.bias"),
    }
    assert trace.why("generator_net").target == "generator_net"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code has no positions of calls")
def test_containers_have_the_names_of_the_expressions_that_are_called():
    class Trainer:
        def __init__(self):
            self.inner = nn.Linear(2, 2)

    first = nn.Sequential(nn.Linear(2, 2))
    trainer = Trainer()
    with autogradviz.record() as trace:
        trainer.inner(first(torch.rand(1, 2))).sum().backward()
    assert parameters_of(trace) == {
        *("first.0.weight", "first.0.bias", "inner.weight", "inner.bias"),
    }


def test_a_class_of_the_program_names_its_first_object():
    class Net(nn.Linear):
        pass

    one, two = Net(2, 2), Net(2, 2)
    with autogradviz.record() as trace:
        two(one(torch.rand(1, 2))).sum().backward()
    second = "two" if sys.version_info >= (3, 11) else "Net#2"
    assert {name.partition(".")[0] for name in parameters_of(trace)} == {"Net", second}


def test_a_loss_has_the_name_of_its_class():
    criterion = nn.MSELoss()
    with autogradviz.record(generator_net) as trace:
        criterion(generator_net(torch.rand(1, 2)), torch.zeros(1, 3)).backward()
    assert "MSELoss" in {module.name for module in trace.analysis.modules.values()}


def test_local_variables_that_the_program_holds_are_as_without_a_recording():
    def step():
        before = locals()
        net = nn.Sequential(nn.Linear(2, 2))
        net(torch.rand(1, 2)).sum().backward()
        return sorted(before)

    plain = step()
    with autogradviz.record():
        recorded = step()
    assert recorded == plain


@pytest.fixture
def recorded():
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    with autogradviz.record(model) as trace:
        hidden = model[1](model[0](torch.rand(4, 2)))
        loss = model[2](hidden).sum()
        loss.backward()
    return trace, model, hidden, loss


def test_why_takes_modules_parameters_and_tensors(recorded):
    trace, model, hidden, loss = recorded
    assert trace.why(model[2].weight) == trace.why("2.weight")
    assert trace.why(model[0]) == trace.why("0")
    assert trace.why(model).target == "the model"
    assert trace.why(hidden).target.startswith("TanhBackward0 #")
    assert trace.why(loss).target.startswith("SumBackward0 #")


def test_why_takes_names_with_that_of_a_variable_for_the_model(recorded):
    trace, *_ = recorded
    assert trace.why("model.2.weight") == trace.why("2.weight")
    assert trace.why("model.2").steps[1:] == trace.why("2").steps[1:]


def test_why_takes_no_other_parameter_than_the_one_named(recorded):
    trace, model, *_ = recorded
    for name in ("encoder.weight", "encoder.0.bias.weight", "model.1.weight"):
        with pytest.raises(UnknownTargetError, match="no parameter, module, variable or node"):
            trace.why(name)
    with autogradviz.record(model[0]) as one:
        model[0](torch.rand(4, 2)).sum().backward()
    with pytest.raises(UnknownTargetError, match="did you mean weight"):
        one.why("encoder.0.weight")


def test_why_takes_names_in_a_model_whatever_that_is_called():
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh())
    with autogradviz.record() as trace:
        model(torch.rand(4, 2)).sum().backward()
    assert trace.why("network.0.weight") == trace.why("model.0.weight")


def test_why_takes_variables(recorded):
    trace, *_ = recorded
    found = trace.why("hidden")
    assert found.steps[0].text == "hidden was last set here; the last op is tanh"
    assert found.steps[0].statement == "hidden = model[1](model[0](torch.rand(4, 2)))"
    assert found.steps[1].text.startswith("TanhBackward0 #")


def test_why_of_a_variable_that_has_no_graph_names_the_line_that_cuts_it():
    with autogradviz.record(generator_net) as trace:
        fake = generator_net(torch.rand(1, 2)).detach()
        judge_net(fake).sum().backward()
    found = trace.why("fake")
    assert found.steps[-1].statement == "fake = generator_net(torch.rand(1, 2)).detach()"
    assert "no autograd node was recorded for it" in found.steps[1].text


def test_a_variable_that_gets_a_part_of_a_value_is_not_known():
    with autogradviz.record(generator_net) as trace:
        _first, second = generator_net(torch.rand(2, 2))
        second.sum().backward()
    with pytest.raises(UnknownTargetError, match="no parameter, module, variable or node"):
        trace.why("second")


def test_why_refuses_what_it_has_not_seen(recorded, tmp_path):
    trace, model, *_ = recorded
    with pytest.raises(UnknownTargetError, match="has not seen this Linear"):
        trace.why(nn.Linear(1, 1))
    with pytest.raises(UnknownTargetError, match="has not seen this Tensor"):
        trace.why(torch.rand(2, requires_grad=True).exp())
    with pytest.raises(TypeError, match="not list"):
        trace.why([model])
    trace.save(tmp_path / "step.agv")
    with pytest.raises(UnknownTargetError, match="a trace from a file knows no objects"):
        autogradviz.load(tmp_path / "step.agv").why(model)


def test_a_trace_keeps_no_module_alive():
    model = nn.Linear(2, 2)
    with autogradviz.record(model) as trace:
        model(torch.rand(1, 2)).sum().backward()
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None
    assert trace.why("weight").target == "weight"


def test_a_value_that_two_losses_read_is_to_be_detached_for_one_of_them():
    judge_step, generator_step = (
        torch.optim.SGD(each.parameters(), lr=0.1) for each in (judge_net, generator_net)
    )
    with autogradviz.record(keep_steps=3) as trace:
        for _ in range(4):
            fake = generator_net(torch.rand(4, 2)).detach()
            judge_step.zero_grad()
            judge_net(fake).mean().backward()
            judge_step.step()
            generator_step.zero_grad()
            judge_net(fake).square().mean().backward()
            generator_step.step()
    (cut,) = [each for each in trace.audit() if each.mechanism == "cut"]
    assert cut.statement == "fake = generator_net(torch.rand(4, 2)).detach()"
    assert cut.fix.splitlines()[-1] == "# and write fake.detach() where the others read it"


def test_what_a_recomputation_saves_has_the_names_of_the_forward():
    def attend(q, k):
        scores = q @ k.transpose(-2, -1)
        return scores.softmax(-1)

    def block(x):
        return attend(x.relu(), x.tanh())

    x = torch.rand(2, 4, 4, requires_grad=True)
    with autogradviz.record() as trace:
        checkpoint(block, x, use_reentrant=False).sum().backward()
    names = {storage.name for storage in trace._scene.storages}
    assert {"q", "k"} <= names


class InPlainContainers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(2, 2), nn.Linear(2, 2)]
        self.heads = {"mean": [nn.Linear(2, 1)]}

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.heads["mean"][0](x)


def test_modules_in_plain_containers_have_the_names_of_their_places():
    with autogradviz.record() as trace:
        InPlainContainers()(torch.rand(3, 2)).sum().backward()
    assert {name.rpartition(".")[0] for name in parameters_of(trace)} == {
        *("InPlainContainers.layers[0]", "InPlainContainers.layers[1]"),
        "InPlainContainers.heads['mean'][0]",
    }


nets_of_ensemble = [nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2))]


def test_containers_in_a_global_list_have_the_names_of_their_places():
    with autogradviz.record() as trace:
        sum(net(torch.rand(3, 2)).sum() for net in nets_of_ensemble).backward()
    assert {name.partition(".")[0] for name in parameters_of(trace)} == {
        "nets_of_ensemble[0]",
        "nets_of_ensemble[1]",
    }
