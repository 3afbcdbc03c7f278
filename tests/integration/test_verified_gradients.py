"""``record(verify=True)``: each gradient by itself, and the first wrong one."""

import weakref

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.events import OpCalled, RecorderFailed, RequiresGradChanged


def verify(step, *, module=True):
    """Return the certificate of a step."""
    with autogradviz.record(verify=module) as trace:
        step()
    assert [event.message for event in trace.log.of(RecorderFailed)] == []
    return trace.certificate()


def text_of(location):
    return None if location is None else location.text


class Cube(torch.autograd.Function):
    factor = 3.0

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * Cube.factor * x**2


class Binarize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, grad):
        return grad


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -grad


class InNumpy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.from_numpy(x.detach().numpy() ** 2)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * grad * x


class OwnCheckpoint(torch.autograd.Function):
    """Recomputes its region in a backward inside the backward."""

    @staticmethod
    def forward(ctx, x, layer, scale):
        ctx.layer, ctx.scale = layer, scale
        ctx.save_for_backward(x)
        return layer(x) * scale[0]

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = ctx.layer(x) * ctx.scale[0]
        y.backward(grad)
        return x.grad, None, None


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Linear(8, 1)
    )


def test_every_fact_of_a_network_holds():
    model, x = network(), torch.randn(4, 6)
    found = verify(lambda: model(x).square().sum().backward())
    assert (found.ok, found.failed, found.changed, found.not_checked) == (True, (), (), ())
    assert found.checked["leaf"] == 6
    assert found.checked["node"] > 5


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointed_regions_are_verified(use_reentrant):
    model, x = network(), torch.randn(4, 6, requires_grad=True)
    found = verify(
        lambda: checkpoint(model, x * 1, use_reentrant=use_reentrant).square().sum().backward()
    )
    assert (found.ok, found.changed, found.not_checked) == (True, (), ())


def test_views_writes_into_views_and_shared_gradients_are_verified():
    x = torch.randn(4, 3, requires_grad=True)

    def step():
        y = x * 2
        y[0] = x[1] * y[2].clone()
        y[:, 1].mul_(3)
        y.t()[0].add_(x[0, 0])
        z = torch.zeros(4, 3)
        z[1:3] = y[1:3].exp()
        (y.unbind(0)[0].sum() + z.sum() + y.expand(2, 4, 3).sum()).backward()

    found = verify(step)
    assert (found.failed, found.changed) == ((), ())


def test_double_backward_and_kept_graphs_are_verified():
    w = torch.randn(3, requires_grad=True)

    def step():
        loss = (w.exp() * w).sum()
        (g,) = torch.autograd.grad(loss, w, create_graph=True)
        g.square().sum().backward(retain_graph=True)
        loss.backward(inputs=[w])

    found = verify(step)
    assert (found.failed, found.not_checked) == ((), ())


def test_own_checkpoints_and_custom_functions_are_verified():
    layer, x = nn.Linear(3, 3), torch.randn(2, 3, requires_grad=True)
    found = verify(lambda: Cube.apply(OwnCheckpoint.apply(x, layer, [2.0])).sum().backward())
    assert (found.failed, found.changed, found.not_checked) == ((), (), ())


@pytest.mark.parametrize("write", ["data", "numpy"])
def test_silent_write_is_the_first_failing_fact(write):
    model, x = nn.Linear(3, 3), torch.randn(2, 3)

    def step():
        y = model(x).exp()
        loss = (y * 2).sum()
        if write == "data":
            y.data.mul_(2)
        else:
            y.detach().numpy()[:] *= 2
        loss.backward()

    with autogradviz.record(model, verify=True) as trace:
        step()
    first = trace.certificate().first
    assert (first.fact, first.node, first.saved_tensor) == ("node", "ExpBackward0", "result")
    assert first.relative_error == pytest.approx(0.5)
    assert first.location.text == "y = model(x).exp()"
    assert text_of(first.writer) == ("y.data.mul_(2)" if write == "data" else None)
    assert first.parameters == ("bias", "weight")
    assert "ExpBackward0 returned a gradient that is off by 50.0%" in str(trace.certificate())
    slugs = [finding.slug for finding in trace.diagnose()]
    assert ("silent-write" if write == "data" else "gradient-not-derivative") in slugs


def test_wrong_backward_is_the_first_failing_fact(monkeypatch):
    x = torch.randn(3, requires_grad=True)
    monkeypatch.setattr(Cube, "factor", 2.0)
    found = verify(lambda: Cube.apply(x * 2).sum().backward())
    assert (found.first.fact, found.first.node) == ("node", "CubeBackward")
    assert found.first.relative_error == pytest.approx(1 / 3, rel=1e-4)
    assert len(found.failed) == 1


def test_gradient_written_in_place_fails_at_the_other_receiver():
    x = torch.randn(3, requires_grad=True)

    def step():
        a, b = x * 2, x * 3
        b.register_hook(lambda grad: grad.mul_(0.5))
        (a + b).square().sum().backward()

    found = verify(step)
    assert [(f.fact, text_of(f.location)) for f in found.failed] == [
        ("edge", "a, b = x * 2, x * 3")
    ]
    assert [f.changed_by for f in found.changed] == ["hook"]


def test_different_recomputation_fails(monkeypatch):
    layer, scale = nn.Linear(3, 3), [1.0]
    x = torch.randn(2, 3, requires_grad=True)

    def region(h):
        return (layer(h) * scale[0]).exp()

    def step():
        loss = checkpoint(region, x, use_reentrant=False).sum()
        scale[0] = 2.0
        loss.backward()

    found = verify(step)
    assert found.first.node == "ExpBackward0"
    assert text_of(found.first.location) == "return (layer(h) * scale[0]).exp()"


def test_parameter_gradients_of_a_different_reentrant_recomputation_fail():
    layer, scale = nn.Linear(3, 3), [1.0]
    x = torch.randn(2, 3, requires_grad=True)

    def step():
        loss = OwnCheckpoint.apply(x, layer, scale).sum()
        scale[0] = 2.0
        loss.backward()

    found = verify(step)
    assert [f.node for f in found.failed] == ["OwnCheckpointBackward"]


def test_gradients_that_are_changed_on_purpose_are_no_errors():
    x = torch.randn(3, requires_grad=True)

    def step():
        y = Binarize.apply(x * 2)
        y.register_hook(lambda grad: grad * 0.5)
        (y * Reverse.apply(x)).sum().backward()

    found = verify(step)
    assert found.failed == ()
    assert {f.changed_by for f in found.changed} == {
        "hook", "straight-through", "gradient function"
    }  # fmt: skip
    assert found.ok


def test_ops_that_verify_gradients_are_not_in_the_recording():
    def ops(**options):
        x = torch.ones(3, requires_grad=True)
        with autogradviz.record(engine="python", **options) as trace:
            Cube.apply(x).sum().backward()
        return [event.op for event in trace.log.of(OpCalled)]

    assert ops(verify=True) == ops()


def test_function_computed_outside_of_pytorch_is_named_as_not_verified():
    x = torch.randn(3, requires_grad=True)
    found = verify(lambda: InNumpy.apply(x * 2).sum().backward())
    reason = "its forward computes outside PyTorch's operators"
    assert found.not_checked == (("InNumpyBackward", reason, 1),)
    assert (found.failed, found.changed) == ((), ())


class CubeOfSetup(Cube):
    """Has a forward without ``ctx``, and a default argument."""

    @staticmethod
    def forward(x, power=3):
        return x**power

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, grad):
        return Cube.backward(ctx, grad), None


class Inherits(Cube):
    """Has the forward of its base class."""


@pytest.mark.parametrize("function", [Cube, CubeOfSetup, Inherits])
def test_function_whose_apply_the_program_holds_is_verified(function, monkeypatch):
    apply, x = function.apply, torch.randn(3, requires_grad=True)
    before = dict(vars(function))
    found = verify(lambda: apply(x * 2).sum().backward())
    assert (found.failed, found.changed, found.not_checked) == ((), (), ())
    monkeypatch.setattr(Cube, "factor", 2.0)
    found = verify(lambda: apply(x * 2).sum().backward())
    assert [f.node for f in found.failed] == [f"{function.__name__}Backward"]
    assert dict(vars(function)) == {**before, **({"factor": 2.0} if function is Cube else {})}


def test_function_whose_call_fails_before_its_forward_keeps_its_forward():
    before, x = vars(Cube)["forward"], torch.randn(3, requires_grad=True)
    seen = []

    class Nested(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y, depth):
            seen.append((vars(Nested)["forward"] is own, vars(Cube)["forward"] is before))
            ctx.depth = depth
            return Cube.apply(y) if depth == 0 else Nested.apply(y, depth - 1) * 2

        @staticmethod
        def backward(ctx, grad):
            return grad, None

    own = vars(Nested)["forward"]
    with autogradviz.record(verify=True):
        with pytest.raises(TypeError):
            Cube.apply(x, 1, 2)
        Nested.apply(x, 2)
        type(Cube.apply(x).grad_fn)()  # a ctx without a call
    assert seen == [(True, True)] * 3
    assert (vars(Cube)["forward"], vars(Nested)["forward"]) == (before, own)


class Weighted(torch.autograd.Function):
    """Its arguments are a number, tensors with and without gradients, and None."""

    factor = 1.0

    @staticmethod
    def forward(ctx, power, x, weight, nothing, y):
        ctx.power, ctx.nothing = power, nothing
        ctx.save_for_backward(x, weight, y)
        return weight * x**power * y

    @staticmethod
    def backward(ctx, grad):
        x, weight, y = ctx.saved_tensors
        to_x = grad * weight * y * ctx.power * x ** (ctx.power - 1)
        return None, to_x, None, None, Weighted.factor * grad * weight * x**ctx.power


def test_gradients_of_a_function_are_compared_with_those_of_its_tensor_arguments(monkeypatch):
    x, y = (torch.rand(3, requires_grad=True) for _ in range(2))
    weight = torch.rand(3)

    def step():
        Weighted.apply(3, x * 2, weight, None, y * 3).sum().backward()

    found = verify(step)
    assert (found.failed, found.changed, found.not_checked) == ((), (), ())
    monkeypatch.setattr(Weighted, "factor", 2.0)
    (wrong,) = verify(step).failed
    assert (wrong.fact, wrong.node) == ("node", "WeightedBackward")
    assert wrong.relative_error == pytest.approx(0.5)


def test_hook_after_a_custom_function_is_what_changed_its_gradient():
    x = torch.randn(3, requires_grad=True)

    def step():
        y = Cube.apply(x * 2)
        y.grad_fn.register_hook(lambda given, _: (given[0] * 2,))
        y.sum().backward()

    found = verify(step)
    assert found.failed == ()
    assert [(fact.fact, fact.node, fact.changed_by) for fact in found.changed] == [
        ("edge", "MulBackward0", "hook")
    ]


def test_random_operators_run_again_with_the_same_numbers():
    x, generator = torch.randn(50, requires_grad=True), torch.Generator().manual_seed(3)
    before = generator.get_state()

    def step():
        torch.manual_seed(1)
        y = torch.dropout(x * 2, 0.5, True)
        z = torch.nn.functional.rrelu(y - 1, training=True)
        (z * torch.bernoulli(x.detach().sigmoid(), generator=generator)).sum().backward()
        return torch.rand(1)

    plain = step()
    generator.set_state(before)
    results = []
    found = verify(lambda: results.append(step()))
    assert (found.failed, results) == ((), [plain])


def test_only_one_module_is_verified():
    model = network()
    with autogradviz.record(model, verify="4") as trace:
        model(torch.randn(4, 6)).sum().backward()
    found = trace.certificate()
    assert (found.checked["node"], found.not_checked) == (2, ())  # addmm, and t


def test_rounding_saved_tensor_hooks_are_reported_as_such():
    x = torch.randn(30, requires_grad=True)

    def step():
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: t.to(torch.bfloat16), lambda t: t.float()
        ):
            y = (x * 2).exp()
        y.sum().backward()

    found = verify(step)
    assert found.failed == ()
    assert {f.changed_by for f in found.changed} == {"rounding hooks"}


def test_verification_changes_neither_gradients_nor_random_numbers():
    def run(**options):
        model, x = network(), torch.randn(4, 6)
        optimizer = torch.optim.Adam(model.parameters())
        with autogradviz.record(model, **options):
            for _ in range(2):
                loss = checkpoint(model, x, use_reentrant=False).square().sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return [*model.state_dict().values(), torch.rand(2)]

    for plain, verified in zip(run(), run(verify=True), strict=True):
        assert torch.equal(plain, verified)


def test_kept_inputs_are_freed_when_backward_has_used_them():
    x = torch.randn(2000, requires_grad=True)
    with autogradviz.record(verify=True):
        y = x * 2
        alive = weakref.ref(y)
        y.exp().sum().backward()
        del y
        assert alive() is None
    assert x.grad is not None


def test_recording_without_verification_has_no_certificate():
    with autogradviz.record() as trace:
        torch.ones(2, requires_grad=True).sum().backward()
    found = trace.certificate()
    assert (found.is_recorded, found.ok, found.first) == (False, False, None)
    assert repr(found) == "<Certificate: record(verify=True) verifies gradients>"


def test_verification_needs_operators():
    with pytest.raises(ValueError, match="verify needs ops"):
        autogradviz.record(verify=True, ops=False)


@torch.library.custom_op("test_verified::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


scaled.register_autograd(lambda ctx, grad: grad * 3)


class CallsOperator(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return scaled(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


@pytest.mark.parametrize("function", [scaled, CallsOperator.apply])
def test_derivatives_of_custom_operators_are_not_verified(function):
    torch.manual_seed(0)
    first, last = nn.Linear(3, 3), nn.Linear(3, 1)
    model = nn.Sequential(first, last)
    x = torch.randn(4, 3)
    with autogradviz.record(model, verify=True) as trace:
        last(function(first(x))).sum().backward()
    found = trace.certificate()
    (missing,) = found.unverified
    assert missing.reason == "the derivative of test_verified::scaled is the program's own"
    lines = {"last(function(first(x))).sum().backward()", "return scaled(x)"}
    assert missing.location.text in lines
    assert (missing.runs, missing.parameters) == (1, ("0.bias", "0.weight"))
    assert found.parameters == {
        "0.bias": False, "0.weight": False, "1.bias": True, "1.weight": True
    }  # fmt: skip
    assert "the gradients of 2 of 4 parameters are verified whole" in str(found)
    assert found.failed == ()


class Narrow(torch.autograd.Function):
    """A loss that cancels in bfloat16; its backward computes in float32."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        h = x.bfloat16()
        return (h.log_softmax(-1)[:, 0] - h.mean(-1)).sum()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        right = -x.softmax(-1) - 1 / x.shape[1]
        right[:, 0] += 1
        return grad * right * ctx.factor, None


def test_rounding_inside_a_custom_forward_is_no_error():
    torch.manual_seed(0)
    x = torch.randn(8, 50, requires_grad=True)
    found = verify(lambda: Narrow.apply(x * 3, 1.0).backward())
    assert (found.failed, found.not_checked) == ((), ())
    assert verify(lambda: Narrow.apply(x * 3, 1.2).backward()).first.node == "NarrowBackward"


class Normalize(torch.autograd.Function):
    """Saves its rounded result. The gradient of the norm of what it returns is zero."""

    @staticmethod
    def forward(ctx, x):
        norm = x.float().norm(dim=1, keepdim=True)
        y = (x.float() / norm).to(x.dtype)
        ctx.save_for_backward(y, norm)
        return y

    @staticmethod
    def backward(ctx, grad):
        y, norm = (each.float() for each in ctx.saved_tensors)
        grad = grad.float()
        return ((grad - y * (grad * y).sum(1, keepdim=True)) / norm).half()


def test_gradient_that_is_no_larger_than_rounding_is_not_verified():
    torch.manual_seed(0)
    x = torch.randn(4, 6).half().requires_grad_()
    found = verify(lambda: Normalize.apply(x).double().square().sum().backward())
    assert found.failed == ()
    (missing,) = found.unverified
    assert missing.reason == "rounding inside its forward is as large as its gradient"
    weight = torch.randn(4, 6).half()
    found = verify(lambda: (Normalize.apply(x) * weight).sum().backward())
    assert (found.failed, found.unverified) == ((), ())


def test_operators_that_verify_runs_again_are_not_recorded_as_leaves_of_the_program():
    w = torch.ones(3, requires_grad=True)
    with autogradviz.record(verify=True) as trace:
        for _ in range(5):
            (w * 2).sum().backward()
    assert not trace.log.of(RequiresGradChanged)
    assert str(trace.certificate()).startswith("Certificate: 25 of 25 facts hold")


class Clamp(torch.autograd.Function):
    """Passes gradients between the bounds only, where PyTorch's passes them at the bounds too."""

    factor = 1.0

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(-0.5, 0.5)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return Clamp.factor * grad * (x.abs() < 0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_input_on_a_kink_has_several_gradients(dtype, monkeypatch):
    def step():
        x = torch.tensor([-1.0, -0.5, 0.25, 0.5], dtype=dtype, requires_grad=True)
        Clamp.apply(x).sum().backward()

    result = verify(step)
    assert not result.failed
    assert "kink" in str(result)
    monkeypatch.setattr(Clamp, "factor", 2.0)
    [fact] = verify(step).failed
    assert "ClampBackward" in str(fact)


def test_gradient_that_is_not_verified_is_still_moved_into_its_leaf():
    """PyTorch copies a gradient that something else keeps while its leaf receives it."""

    def shares_memory(**options):
        arrived = []
        leaf = TwoTensor(torch.rand(3), torch.rand(3)).requires_grad_()
        leaf.register_hook(lambda grad: arrived.append(grad.a.data_ptr()))
        with autogradviz.record(**options):
            (leaf.sin() * 2).sum().backward()
        return leaf.grad.a.data_ptr() == arrived[0]

    assert shares_memory(engine="python")
    assert shares_memory(verify=True)
