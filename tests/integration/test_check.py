"""``autogradviz.check``: relations that must hold for a step, each on correct and wrong steps."""

import copy
import ctypes

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.checking.first_value_missing_from_other_run import (
    OpValues,
    first_missing_value,
    sketch,
)
from autogradviz.checking.relations.gradient_against_differences import float64
from autogradviz.cli.entry_point import main
from autogradviz.diagnose.finding_text import place_text
from autogradviz.recorder.verify.relative_error_of_gradients import TOLERANCES

pytestmark = pytest.mark.one_in(2, reason="runs each step several times", in_ci=1)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad * ctx.saved_tensors[0]


class WrongSquare(Square):
    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, grad):
        return grad


class Net(nn.Module):
    """A small network; ``middle`` is what the tests replace."""

    def __init__(self, middle=torch.tanh):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.middle = middle
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.last(self.middle(self.first(x)))


X = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))
Y = torch.randint(0, 3, (8,), generator=torch.Generator().manual_seed(0))


def loss_of(model, x=X, y=Y):
    return nn.functional.cross_entropy(model(x), y)


def outcome(relation, model, step=None, **options):
    """Return the entry of one relation."""
    found = autogradviz.check(
        step or (lambda: loss_of(model)), model, relations=[relation], **options
    )
    return found[relation]


def test_correct_step_fails_nowhere_and_is_restored():
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    model.first.weight.grad = torch.ones_like(model.first.weight)
    before, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()

    def step(x, y):
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        optimizer.step()
        return loss

    found = autogradviz.check(step, model, batch=(X, Y))
    assert found.ok
    assert {e.relation for e in found if e.outcome == "holds"} == {
        "repeatable", "certificate", "derivative", "precision", "samples", "micro-batches",
        "parameters",
    }  # fmt: skip
    assert {e.relation: e.statement for e in found if e.outcome == "not applied"} == {
        "functions": "the step calls no custom Function and no custom operator with a gradient",
        "checkpoint": "the step has no checkpointed region",
        "hooks": "the step has no hooks",
    }
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert torch.equal(torch.get_rng_state(), random)
    assert (model.calls, dict(optimizer.state), model.first.weight.grad.sum()) == (0, {}, 48)
    assert found.not_restored[0].startswith("data loaders")


def test_state_outside_of_the_model_is_not_repeatable():
    model, scale = Net(), [1.0]

    def step():
        scale[0] += 1
        return loss_of(model) * scale[0]

    entry = outcome("repeatable", model, step)
    assert (entry.outcome, entry.location.text) == ("fails", "return loss_of(model) * scale[0]")
    found = autogradviz.check(step, model, relations=["repeatable", "derivative"])
    assert found["derivative"].statement == "two runs of the step differ"


@pytest.mark.parametrize("filled", [16, 64])
def test_memory_without_values_is_not_why_a_step_is_not_repeatable(filled):
    model, runs = Net(), [0.0]

    def step():
        runs[0] += 1
        left = torch.empty(64)  # what the next allocation may find in its memory
        ctypes.memset(left.data_ptr(), int(runs[0]), 256)
        del left
        buffer = torch.empty(64)
        buffer[:filled] = 1.0
        loss = loss_of(model) * buffer[:filled].mean()
        return loss * runs[0]

    entry = outcome("repeatable", model, step)
    assert (entry.outcome, entry.location.text) == ("fails", "return loss * runs[0]")


def test_wrong_backward_fails_in_three_relations():
    model = Net(WrongSquare.apply)
    names = ["certificate", "derivative", "functions"]
    found = autogradviz.check(lambda: loss_of(model), model, relations=names)
    assert [e.outcome for e in found] == ["fails"] * 3
    assert "WrongSquare" in found["certificate"].statement
    assert "WrongSquare" in found["functions"].statement
    assert found.trace.certificate().first.node == "WrongSquareBackward"


def test_right_custom_function_agrees_with_differences_of_its_forward():
    model = Net(Square.apply)
    entry = outcome("functions", model)
    assert (entry.outcome, entry.answer) == ("holds", "right")
    assert [item.reason for item in entry.items] == ["Square: 6 slopes agree in float64"]


def test_one_bug_that_three_relations_find_is_one_error():
    model = Net(WrongSquare.apply)
    names = ["repeatable", "certificate", "derivative", "functions"]
    found = autogradviz.check(lambda: loss_of(model), model, relations=names)
    (item,) = found.wrong
    assert item.subject == "the backward of WrongSquare"
    assert item.relations == ("certificate", "derivative", "functions")
    assert item.location.text == "return grad * ctx.saved_tensors[0]"
    assert item.called_at.text == "return self.last(self.middle(self.first(x)))"
    assert found.counts == {"right": 1, "wrong": 1, "cannot tell": 0}
    assert "1 right, 1 wrong (3 relations found it), 0 cannot tell" in str(found)
    (verdict,) = found.verdict
    assert str(found).splitlines()[0] == verdict
    assert verdict.startswith(f"A gradient is wrong: {place_text(item.location)}: the backward of ")
    assert verdict.endswith("; it reaches first.bias, first.weight")
    others = [line for line in str(found).splitlines()[1:] if line.startswith("FAIL")]
    assert [line.split()[1] for line in others] == ["certificate", "derivative", "functions"]
    assert all(line[19:].startswith("the error above") for line in others)
    assert "1 right, 1 wrong (3 relations found it), 0 cannot tell" in found._repr_html_()


def test_verdict_does_not_deny_what_needs_a_look():
    model = Net(lambda h: h.detach())
    found = autogradviz.check(lambda: loss_of(model), model, relations=["repeatable", "derivative"])
    assert (found["repeatable"].outcome, found["derivative"].outcome) == ("holds", "differs")
    assert found.verdict == (
        "1 result needs a look: of 2 things checked, 1 is right; check cannot tell about 1.",
    )
    assert str(found).splitlines()[0] == found.verdict[0]
    assert "same gradients, tolerance: relative L2 2e-04 (float32)" in str(found)


class InFloat32(torch.autograd.Function):
    """Computes in float32, whatever its input is; its backward does not."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.float().square()

    @staticmethod
    def backward(ctx, grad):
        return grad * 2 * ctx.saved_tensors[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_inside_a_forward_is_no_error(dtype):
    weight = torch.randn(4, 5, dtype=dtype, requires_grad=True)
    names = ["certificate", "functions"]
    found = autogradviz.check(lambda: InFloat32.apply(weight).sum(), relations=names)
    assert found.counts == {"right": 2, "wrong": 0, "cannot tell": 0}
    assert "it computes in float32" in found["functions"].items[0].reason


@torch.library.custom_op("test_check::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def backward_of_twice(ctx, grad):
    return grad * 2


twice.register_autograd(backward_of_twice)


@torch.library.custom_op("test_check::twice_wrong", mutates_args=())
def twice_wrong(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def backward_of_twice_wrong(ctx, grad):
    return grad * 3


twice_wrong.register_autograd(backward_of_twice_wrong)


def test_derivative_of_a_custom_operator_is_tested():
    names = ["certificate", "derivative", "functions"]
    model = Net(twice_wrong)
    found = autogradviz.check(lambda: loss_of(model), model, relations=names)
    (item,) = found.wrong
    assert item.subject == "the backward of test_check::twice_wrong"
    assert item.location.text == "return grad * 3"
    assert item.relations == ("certificate", "derivative", "functions")
    assert [entry.relation for entry in found.failed] == ["functions"]
    model = Net(twice)
    found = autogradviz.check(lambda: loss_of(model), model, relations=names)
    assert found.counts == {"right": 3, "wrong": 0, "cannot tell": 0}
    found = autogradviz.check(lambda: loss_of(model), model, relations=["certificate"])
    assert found.counts == {"right": 1, "wrong": 0, "cannot tell": 1}
    (item,) = found.unknown
    assert item.reason == "not verified: the derivative of test_check::twice is the program's own"


class AssumesUniform(torch.autograd.Function):
    """Reads one entry of its incoming gradient, as if all were equal."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad.flatten()[0].expand(grad.shape)


class AssumesContiguous(torch.autograd.Function):
    """Reads its incoming gradient in the order of its memory."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        shape = grad.shape
        flat = grad if not grad.stride(-1) else grad.as_strided((grad.numel(),), (1,))
        return 2 * flat.reshape(shape)


def test_other_incoming_gradients_than_that_of_the_step_are_tried():
    weight = torch.randn(4, 5, requires_grad=True)

    def reason(function):
        found = autogradviz.check(lambda: function.apply(weight).sum(), relations=["functions"])
        return found["functions"].items[0].answer, found["functions"].items[0].reason

    answer, text = reason(AssumesUniform)
    assert answer == "wrong"
    assert "with a random incoming gradient" in text
    answer, text = reason(AssumesContiguous)
    assert answer == "wrong"
    assert "if the incoming gradient has gaps in memory, its gradients are off by" in text


class Refuses(torch.autograd.Function):
    """Draws from a generator that no seed resets."""

    generator = torch.Generator().manual_seed(0)

    @staticmethod
    def forward(ctx, x):
        return x * torch.rand(x.shape, generator=Refuses.generator)

    @staticmethod
    def backward(ctx, grad):
        return grad


def test_function_that_cannot_be_tested_is_counted():
    weight = torch.randn(4, requires_grad=True)
    found = autogradviz.check(lambda: Refuses.apply(weight).sum(), relations=["functions"])
    assert found.ok
    assert found.counts == {"right": 0, "wrong": 0, "cannot tell": 1}
    assert "it computes something else each time" in found.unknown[0].reason
    assert "0 right, 0 wrong, 1 cannot tell" in str(found)


def test_straight_through_and_cuts_are_differences_and_no_failures():
    for middle in (Sign.apply, lambda h: h.detach() * h):
        model = Net(middle)
        names = ["certificate", "derivative", "functions"]
        found = autogradviz.check(lambda m=model: loss_of(m), model, relations=names)
        assert found.ok
        assert found["derivative"].outcome == "differs"


def test_silent_write_fails_with_the_line_that_wrote():
    model = Net()

    def step():
        h = model(X).exp()
        loss = h.sum()
        h.data.mul_(2)
        return loss

    entry = outcome("certificate", model, step)
    assert (entry.outcome, entry.location.text) == ("fails", "h.data.mul_(2)")


def test_impure_checkpointed_region_fails():
    scale = [1.0]

    def region(h):
        scale[0] *= 2
        return torch.tanh(h * scale[0])

    model = Net(lambda h: checkpoint(region, h, use_reentrant=False))

    def step():
        scale[0] = 1.0
        return loss_of(model)

    assert outcome("checkpoint", model, step).outcome == "fails"
    model.middle = lambda h: checkpoint(torch.tanh, h, use_reentrant=False)
    assert outcome("checkpoint", model).outcome == "holds"


def test_wrong_and_rounding_saved_tensor_hooks():
    def packed(pack, unpack):
        def middle(h):
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                return torch.tanh(h)

        return Net(middle)

    same = packed(lambda t: t.clone(), lambda t: t)
    rounded = packed(lambda t: t.bfloat16(), lambda t: t.float())
    wrong = packed(lambda t: t.clone(), lambda t: t * 0.5)
    assert [outcome("hooks", m).outcome for m in (same, rounded, wrong)] == [
        "holds", "differs", "fails"
    ]  # fmt: skip


def test_gradient_hooks_are_differences():
    def halved(h):
        h.register_hook(lambda grad: grad * 0.5)
        return torch.tanh(h)

    entry = outcome("hooks", Net(halved))
    assert (entry.outcome, entry.location.text) == (
        "differs", "h.register_hook(lambda grad: grad * 0.5)",
    )  # fmt: skip


def test_overflow_has_its_line():
    model = Net(lambda h: torch.exp(h.half() * 100).float().clamp(max=1))
    entry = outcome("precision", model)
    assert (entry.outcome, "overflows in float16" in entry.statement) == ("differs", True)
    assert "torch.exp" in entry.location.text


def test_mixed_samples_name_the_module():
    model = Net(nn.BatchNorm1d(8))
    entry = outcome("samples", model)
    text = "middle (BatchNorm1d) mixes the samples of a batch (it normalizes over the batch)"
    assert (entry.outcome, entry.statement) == ("differs", text)
    assert outcome("samples", Net()).outcome == "holds"


def test_samples_are_checked_without_a_model():
    layer = nn.Linear(3, 2)
    entry = outcome("samples", None, lambda: layer(torch.ones(2, 3)).sum())
    assert entry.outcome == "holds"


def test_parts_of_a_batch():
    model = Net()
    entry = outcome("micro-batches", model, lambda x, y: loss_of(model, x, y), batch=(X, Y))
    assert entry.statement == "the gradient of the batch is the mean of those of its halves"
    other = outcome("micro-batches", model, lambda x: model(x).std(), batch=(X,))
    assert other.outcome == "differs"
    assert "batch=(x, y)" in outcome("micro-batches", model).statement


def test_parameters_that_were_left_out():
    model = Net()
    model.extra = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD(model.last.parameters(), lr=0.1)

    def step():
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        return loss

    entry = outcome("parameters", model, step)
    assert entry.statement == "no gradient: extra"
    assert entry.details[0] == "in no optimizer: extra, first.weight, first.bias"


@pytest.mark.ci(reason="compiles a model")
def test_compiled_model_has_the_same_gradients():
    assert outcome("compiled", Net()).outcome == "holds"


def change(target, changed):
    """Return a backend that replaces the uses of an operator's result."""

    def compiler(graph, inputs):
        for node in list(graph.graph.nodes):
            if node.target is target:
                node.replace_all_uses_with(changed(graph.graph, node))
        graph.recompile()
        return make_boxed_func(graph.forward)

    return aot_autograd(fw_compiler=compiler, bw_compiler=compiler)


def compiled_outcome(model, backend, loss=loss_of):
    step = torch.compile(lambda: loss(model), backend=backend)
    (entry,) = autogradviz.check(step, model, relations=["compiled"]).entries
    return entry


@pytest.mark.ci(reason="compiles a model")
def test_operator_and_line_of_a_wrong_backend_are_named():
    wrong = change(torch.ops.aten.tanh_backward.default, lambda graph, node: node.args[0])
    model = Net()
    before = copy.deepcopy(model.state_dict())
    entry = compiled_outcome(model, wrong)
    assert entry.outcome == "fails"
    assert entry.statement.endswith("its own backend changes them")
    assert entry.location.text == "return self.last(self.middle(self.first(x)))"
    assert entry.details[0].startswith("first operator: aten.tanh_backward.default (backward); ")
    assert entry.details[1] == "cured by backend='aot_eager_decomp_partition'"
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.ci(reason="compiles a model")
def test_compiled_step_with_a_right_backend_holds():
    assert compiled_outcome(Net(), "aot_eager").outcome == "holds"


def test_values_are_compared_by_content():
    """Sketches of equal values in another order of operators and another dtype are near."""
    x = torch.randn(40, 500)
    assert sketch(x).distance(sketch(x.clone())) == 0
    assert sketch(x).distance(sketch(x.bfloat16())) < TOLERANCES[torch.bfloat16]
    off = sketch(x).distance(sketch(x + 0.1 * torch.randn_like(x)))
    assert 0.03 < off < 0.3


def test_first_difference_skips_what_a_compiler_removes():
    """An operator that the other run lacks is no difference if what follows is there."""

    def run(scale, *, extra):
        values = OpValues()
        weight = torch.ones(4, requires_grad=True)
        with values:
            y = weight + 1 + 1 if extra else weight + 2
            z = (y * scale).exp()
            loss = z.sum()
            loss.backward()
        return values.ops, weight.grad

    right, gradient = run(0.5, extra=True)
    same, _ = run(0.5, extra=False)
    other, _ = run(0.7, extra=False)
    assert first_missing_value(right, same, [sketch(gradient)]) is None
    found = first_missing_value(right, other, [sketch(gradient)])
    assert found.op.name == "aten.mul.Tensor"
    assert found.op.location.text == "z = (y * scale).exp()"
    assert not found.op.backward


@pytest.mark.slow(reason="inductor generates code")
def test_node_that_inductor_compiles_wrongly_is_named():
    """A custom pass of inductor is found, and the operator that it changes."""

    class Wrong(CustomGraphPass):
        def __call__(self, graph):
            for node in list(graph.nodes):
                if node.target is torch.ops.aten.tanh.default:
                    with graph.inserting_before(node):
                        node.replace_all_uses_with(
                            graph.call_function(torch.ops.aten.sigmoid.default, node.args)
                        )

        def uuid(self):
            return "wrong"

    model = Net()
    step = torch.compile(lambda: loss_of(model), options={"post_grad_custom_pre_pass": Wrong()})
    (entry,) = autogradviz.check(step, model, relations=["compiled"], seconds=600).entries
    assert entry.statement.endswith("inductor changes them")
    assert entry.location.text == "return self.last(self.middle(self.first(x)))"
    assert entry.details[0].startswith("first operator: aten.tanh.default (forward); off by")
    assert entry.details[1] == "cured by torch._inductor.config.post_grad_custom_pre_pass=None"


def test_time_limit_is_reported():
    found = autogradviz.check(lambda: loss_of(model), (model := Net()), seconds=0)
    assert "no time left" in found["derivative"].statement


def train(middle=torch.tanh):
    """Make a model and train it, as the main function of a script does."""
    model = Net(middle)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        scale = torch.rand(1)
        optimizer.zero_grad()
        loss = loss_of(model) * scale + (model(X) - average(X)).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()


def test_step_that_makes_its_model_is_checked():
    torch.manual_seed(0)
    found = autogradviz.check(train)
    assert found.ok
    holding = {e.relation for e in found if e.outcome == "holds"}
    assert holding == {"repeatable", "certificate", "derivative", "precision", "parameters"}
    assert found["parameters"].statement == "8 parameters, 4 frozen, 2 optimizer steps"
    broken = autogradviz.check(lambda: train(WrongSquare.apply))
    assert [e.relation for e in broken.failed] == ["certificate", "derivative", "functions"]
    assert broken["derivative"].details[0].startswith("Net.first: off by")


def test_model_of_the_caller_is_restored_if_it_is_not_given():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = copy.deepcopy(model.state_dict())

    def step():
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()

    assert autogradviz.check(step, relations=["repeatable", "derivative"]).ok
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_gradient_that_is_nan_fails_with_its_line():
    model = Net(lambda h: (h * 0).sqrt() + h)
    entry = outcome("derivative", model)
    assert entry.outcome == "fails"
    assert entry.statement == "the gradient of first.weight is NaN or infinite, in float64 too"
    assert entry.location.text == "model = Net(lambda h: (h * 0).sqrt() + h)"


def test_operator_with_a_zero_derivative_is_a_difference():
    model = Net(lambda h: torch.round(h * 10) + h)
    entry = outcome("derivative", model)
    assert (entry.outcome, entry.location.text) == (
        "differs", "model = Net(lambda h: torch.round(h * 10) + h)"
    )  # fmt: skip
    assert entry.statement.startswith("an operator passes zeros on")


def test_float64_draws_the_numbers_of_float32():
    torch.manual_seed(0)
    with float64():
        again = [torch.rand(3), nn.init.normal_(torch.empty(3)), nn.Linear(3, 2).weight]
    torch.manual_seed(0)
    narrow = [torch.rand(3), nn.init.normal_(torch.empty(3)), nn.Linear(3, 2).weight]
    assert {each.dtype for each in again} == {torch.float64}
    assert all(torch.equal(a.float(), b) for a, b in zip(again, narrow, strict=True))


def test_unknown_relation_raises():
    model = Net()
    with pytest.raises(ValueError, match="unknown relations: speed"):
        autogradviz.check(lambda: loss_of(model), model, relations=["speed"])


def test_result_is_text_and_a_table():
    model = Net(WrongSquare.apply)
    found = autogradviz.check(lambda: loss_of(model), model, relations=["certificate"])
    first, second, *_ = str(found).splitlines()
    assert (first,) == found.verdict
    assert first.startswith("A gradient is wrong: ")
    assert second.startswith("FAIL certificate")
    assert found._repr_html_().startswith("<p><b>A gradient is wrong: ")
    assert "<table><tr><th>relation" in found._repr_html_()
    assert not found


SCRIPT = """
import torch

model = torch.nn.Linear(3, 1)


def step():
    return model(torch.ones(2, 3)).sum()


def broken():
    y = model(torch.ones(2, 3)).exp()
    loss = y.sum()
    y.data.zero_()
    return loss
"""


def test_command_has_an_exit_code(tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    assert main(["check", f"{script}:step", "--relations", "certificate"]) == 0
    with pytest.raises(SystemExit) as left:
        main(["check", f"{script}:broken", "--relations", "certificate"])
    assert left.value.code == 1
    printed = capsys.readouterr()
    assert "y.data.zero_()" not in printed.err
    assert "1 right, 0 wrong, 0 cannot tell" in printed.out
    assert "0 right, 1 wrong, 0 cannot tell" in printed.out
    assert main(["check", f"{script}:nothing"]) == 2
    assert main(["check", f"{script}:step", "--relations", "speed"]) == 2
    assert main(["check", "missing.py:step"]) == 2


@pytest.mark.parametrize(
    ("result", "words"),
    [(None, "None"), (3, "3"), ("text", "a str"), (torch.ones(2), "a tensor of 2 elements")],
)
def test_step_without_a_loss_is_refused(result, words):
    model = nn.Linear(2, 1)

    def step():
        model(torch.ones(1, 2)).sum()
        return result

    for relations in (["repeatable"], ["certificate"]):
        with pytest.raises(autogradviz.StepWithoutLossError, match=f"it returned {words}"):
            autogradviz.check(step, model, relations=relations)


def test_step_that_runs_backward_need_not_return_its_loss():
    model = nn.Linear(2, 1)

    def step():
        model(torch.ones(1, 2)).sum().backward()

    assert autogradviz.check(step, model, relations=["repeatable"]).ok


def test_a_step_that_raises_is_reported_once():
    model = nn.Linear(2, 1)
    result = autogradviz.check(lambda: model(torch.ones(3, 5)).sum(), model)
    (verdict,) = result.verdict
    assert "nothing was checked: the step raised RuntimeError: mat1 and mat2" in verdict
    reasons = [line for line in str(result).splitlines() if line.startswith("cannot tell")]
    assert len(reasons) == len({item.reason for item in result.unknown}) < len(result.unknown)


@pytest.mark.parametrize("run", [autogradviz.check, autogradviz.plan])
def test_what_is_no_step_is_refused(run):
    with pytest.raises(TypeError, match="takes a function that runs a step, not int"):
        run(3)


def test_step_whose_loss_has_no_graph_is_not_called_right(tmp_path, capsys):
    constant = torch.ones(3)
    found = autogradviz.check(constant.sum, torch.nn.Linear(2, 2))
    assert found.verdict == (
        "Nothing could be checked: the loss has no graph (it depends on no parameter)",
    )
    assert found.counts["right"] == 0
    assert "\nok " not in str(found)
    script = tmp_path / "step.py"
    script.write_text(
        "import torch\nmodel = torch.nn.Linear(2, 2)\n\ndef step():\n"
        "    return model(torch.ones(3, 2)).detach().sum()\n"
    )
    with pytest.raises(SystemExit) as stopped:
        main(["check", f"{script}:step"])
    assert stopped.value.code == 1
    assert capsys.readouterr().out.startswith("Nothing could be checked: the loss has no graph")


def test_hints_about_the_step_are_listed():
    model = torch.nn.Linear(3, 1)
    x, target = torch.rand(5, 3), torch.rand(5)

    def step():
        return ((model(x) - target) ** 2).mean()

    found = autogradviz.check(step, model)
    line = step.__code__.co_firstlineno + 1
    assert f"1 hint: loss-broadcast, test_check.py:{line}" in found.verdict
    assert found.verdict[0].startswith("No gradient is wrong by itself")
    assert "loss-broadcast" in found._repr_html_()
