"""Findings about a loss without a graph, a missing gradient, and a non-finite gradient."""

from threading import Event, Thread

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.analysis import Analysis
from autogradviz.events import (
    ModeChanged,
    NormRead,
    NotFiniteSeen,
    RecorderLimited,
    RequiresGradChanged,
)
from autogradviz.scene.build_scene import build_scene


def recorded(work, model=None, **options):
    """Return the trace of a program, which may raise RuntimeError."""
    torch.manual_seed(0)
    try:
        with autogradviz.record(model, **options) as trace:
            work()
    except RuntimeError:
        pass
    return trace


def first(work, model=None, **options):
    finding = recorded(work, model, **options).diagnose()[0]
    return finding.slug, finding.culprit and finding.culprit.text, finding.confidence


NET = nn.Linear(3, 3)
X = torch.rand(2, 3)


@torch.no_grad()
def decorated(x):
    return NET(x)


def lost_in_a_block():
    with torch.inference_mode():
        h = NET(X)
    h.sum().backward()


def lost_in_the_last_statement_of_a_block():
    with torch.no_grad():
        weight = torch.rand(2, 3)
        weight[0] = 0
        h = weight * NET(X)
    h.sum().backward()


def lost_in_a_decorator():
    decorated(X).sum().backward()


def lost_by_a_call():
    torch.set_grad_enabled(False)
    h = NET(X)
    torch.set_grad_enabled(True)
    h.sum().backward()


def lost_by_detach():
    h = NET(X).detach()
    h.sum().backward()


def lost_by_data():
    h = NET(X).data
    h.sum().backward()


def lost_by_argmax():
    best = NET(X).argmax(1)
    best.float().mean().backward()


def lost_by_item():
    total = NET(X).sum().item()
    torch.tensor(total).backward()


def lost_by_comparing():
    hits = NET(X) > 0
    hits.float().mean().backward()


LOST = {
    lost_in_a_block: "with torch.inference_mode():",
    lost_in_the_last_statement_of_a_block: "h = weight * NET(X)",
    lost_in_a_decorator: "@torch.no_grad()",
    lost_by_a_call: "torch.set_grad_enabled(False)",
    lost_by_detach: "h = NET(X).detach()",
    lost_by_data: "h = NET(X).data",
    lost_by_argmax: "best = NET(X).argmax(1)",
    lost_by_item: "total = NET(X).sum().item()",
    lost_by_comparing: "hits = NET(X) > 0",
}


@pytest.mark.parametrize("work", LOST)
def test_line_that_lost_the_graph_is_reported(work):
    # The block, or the statement in it, can be moved.
    off = {
        lost_in_a_block, lost_in_the_last_statement_of_a_block, lost_by_a_call,
        lost_in_a_decorator,
    }  # fmt: skip
    assert first(work, NET) == ("graph-lost", LOST[work], "likely" if work in off else "certain")


def test_block_around_the_request_of_a_gradient_is_likely():
    def work():
        with torch.no_grad():
            torch.autograd.grad(NET(X).sum(), NET.weight)

    assert first(work, NET) == ("graph-lost", "with torch.no_grad():", "likely")


def test_recreated_tensor_is_reported_as_likely():
    def work():
        parts = [NET(X).sum(), NET(X).mean()]
        torch.tensor(parts).sum().backward()

    assert first(work, NET) == ("graph-lost", "torch.tensor(parts).sum().backward()", "likely")


def test_two_interrupted_gradient_paths_are_both_reported():
    def work():
        a = NET(X).detach()
        with torch.no_grad():
            b = NET(X)
        (a * b).sum().backward()

    (finding,) = recorded(work, NET).diagnose()
    assert finding.confidence == "likely"
    assert "a = NET(X).detach()" in finding.explanation
    assert "with torch.no_grad():" in finding.explanation


def test_freezing_all_parameters_is_reported():
    net = nn.Linear(3, 3)

    def work():
        net.requires_grad_(False)
        net(X).sum().backward()

    assert first(work, net) == ("graph-lost", "net.requires_grad_(False)", "likely")


class Shifted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + 1

    @staticmethod
    def backward(ctx, grad):
        return grad


def test_detach_of_the_result_of_a_custom_function_is_the_end():
    below, above = nn.Linear(3, 3), nn.Linear(3, 3)

    def work():
        h = Shifted.apply(below(X)).data
        above(h).sum().backward()

    line = "h = Shifted.apply(below(X)).data"
    assert first(work, nn.Sequential(below, above)) == ("gradient-missing", line, "hint")


class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.cut = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        return self.used(x) + self.end(x)


class Detached(Halves):
    def end(self, x):
        return self.cut(x).detach()


class Switched(Halves):
    def end(self, x):
        with torch.no_grad():
            return self.cut(x)


class SideChannel(Halves):
    def end(self, x):
        self.kept = self.cut(x)
        return 0


class Unused(Halves):
    def end(self, x):
        return 0


class NoGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return None


class NoneGiven(Halves):
    def end(self, x):
        return NoGradient.apply(self.cut.weight).sum() + NoGradient.apply(self.cut.bias).sum()


MISSING = {
    Detached: "return self.cut(x).detach()",
    Switched: "with torch.no_grad():",
    SideChannel: "self.kept = self.cut(x)",
    Unused: None,
    NoneGiven: "return None",
}


@pytest.mark.parametrize("kind", MISSING)
def test_missing_gradient_is_reported_with_the_end_of_its_path(kind):
    net = kind()
    (finding,) = recorded(lambda: net(X).sum().backward(), net).diagnose()
    assert (finding.slug, finding.confidence) == ("gradient-missing", "hint")
    assert finding.title.startswith("2 parameters got no gradient: ")
    assert (finding.culprit and finding.culprit.text) == MISSING[kind]
    assert "cut.weight, cut.bias" in finding.explanation
    assert "Optimizers skip them: 2 of 4 parameters do not train." in finding.explanation


def test_the_way_past_a_detach_has_who_reads_on_both_sides():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.router, self.expert = nn.Linear(3, 4), nn.Linear(3, 4)

        def forward(self, x):
            weights = self.router(x).detach().softmax(-1)
            return weights[:, :2] * self.expert(x)[:, :2]

    net = Mixed()
    trace = recorded(lambda: net(X).sum().backward(), net)
    (finding,) = trace.diagnose()
    assert [step.text for step in trace.why(finding).steps] == [
        "addmm reads the parameters",
        "no gradient goes from softmax past this line",
        "softmax reads its values, without a graph",
        "mul reads its values, into the loss's graph",
    ]


def test_frozen_parameters_and_parameters_outside_inputs_are_not_missing():
    net = Unused()
    net.cut.requires_grad_(False)
    assert recorded(lambda: net(X).sum().backward(), net).diagnose() == []
    net = Unused()
    chosen = list(net.used.parameters())
    assert recorded(lambda: net(X).sum().backward(inputs=chosen), net).diagnose() == []


def evaluate(model):
    with torch.no_grad():
        model(X)


def evaluated_after_training(other):
    NET(X).sum().backward()
    evaluate(other)


def evaluated_between_backwards(other):
    for _ in range(2):
        NET(X).sum().backward()
        evaluate(other)
    NET(X).sum().backward()


def called_after_the_last_backward(other):
    NET(X).sum().backward()
    other(X)


@pytest.mark.parametrize(
    "work",
    [evaluated_after_training, evaluated_between_backwards, called_after_the_last_backward],
)
def test_model_that_is_only_evaluated_misses_no_gradient(work):
    other = nn.Sequential(nn.GRU(3, 3))
    assert recorded(lambda: work(other), nn.ModuleList([NET, other])).diagnose() == []


@pytest.mark.parametrize(
    ("work", "title"),
    [
        (evaluated_after_training, "no operator used them before the last backward"),
        (
            evaluated_between_backwards,
            "their results are computed with gradients disabled, by no_grad, and not in the loss",
        ),
    ],
)
def test_what_an_optimizer_trains_and_only_evaluations_use_is_missing_its_gradient(work, title):
    other = nn.Sequential(nn.Linear(3, 3))
    both = nn.ModuleList([NET, other])
    optimizer = torch.optim.SGD(both.parameters(), lr=0.1)

    def train():
        work(other)
        optimizer.step()

    (finding,) = recorded(train, both).diagnose()
    assert finding.title == f"2 parameters got no gradient: {title}"
    assert "did not use" not in finding.explanation


@pytest.mark.python_engine(reason="there is no depth limit")
def test_parameters_beyond_the_depth_limit_are_not_missing(monkeypatch):
    monkeypatch.setattr("autogradviz.recorder.python_engine.graph_walk.SAFE_DEPTH", 20)
    net = nn.Sequential(nn.Linear(3, 3), *[nn.Tanh() for _ in range(30)])
    trace = recorded(lambda: net(X).sum().backward(), net)
    assert "the graph is deeper than 20 nodes" in trace.analysis.notices[0].message
    assert "gradient-missing" not in {finding.slug for finding in trace.diagnose()}


def test_detached_value_that_is_only_logged_is_not_reported():
    def work():
        h = NET(X)
        str(h.detach().mean())
        h.sum().backward()

    assert recorded(work, NET).diagnose() == []


# --- NaN and infinity ---------------------------------------------------------------------------


def log_of_zero(x):
    h = torch.log(x - x)
    return h.sum()


def slope_of_sqrt(x):
    h = torch.sqrt(x - x)
    return (h * 0).sum()


def masked_whole(x):
    masked = x.masked_fill(torch.ones(2, 3, dtype=torch.bool), float("-inf"))
    h = masked.softmax(-1)
    return h.sum()


NOT_FINITE = {
    log_of_zero: ("h = torch.log(x - x)", "certain"),
    slope_of_sqrt: ("h = torch.sqrt(x - x)", "likely"),
    masked_whole: ("h = masked.softmax(-1)", "certain"),
}


@pytest.mark.parametrize("work", NOT_FINITE)
def test_first_operator_with_a_non_finite_result_is_reported(work):
    leaf = torch.rand(2, 3, requires_grad=True)
    found = first(lambda: work(leaf).backward(), fingerprints=True)
    assert found == ("not-finite", *NOT_FINITE[work])


@pytest.mark.parametrize("work", NOT_FINITE)
def test_non_finite_gradient_is_only_a_hint_without_fingerprints(work):
    leaf = torch.rand(2, 3, requires_grad=True)
    assert first(lambda: work(leaf).backward()) == ("not-finite", NOT_FINITE[work][0], "hint")


def test_node_of_anomaly_detection_has_a_line():
    leaf = torch.rand(2, 3, requires_grad=True)

    def work():
        with torch.autograd.set_detect_anomaly(True):
            slope_of_sqrt(leaf).backward()

    assert first(work) == ("not-finite", "h = torch.sqrt(x - x)", "certain")


def test_bounds_at_which_a_derivative_is_infinite_are_named():
    leaf = torch.tensor([0.5, 1.0], requires_grad=True)

    def work():
        inside = (leaf * 1.0).clamp(-1, 1)
        torch.acos(inside).sum().backward()

    slug, line, _ = first(work, fingerprints=True)
    assert (slug, line) == ("not-finite", "inside = (leaf * 1.0).clamp(-1, 1)")


def test_infinities_of_a_mask_give_no_finding():
    mask = torch.tensor([[True, False, False], [False, False, True]])
    leaf = torch.rand(2, 3, requires_grad=True)

    def work():
        leaf.masked_fill(mask, float("-inf")).softmax(-1).square().sum().backward()

    trace = recorded(work, fingerprints=True)
    assert trace.diagnose() == []
    assert [event.infinity_count for event in trace.log.of(NotFiniteSeen)] == [2]


def exp_of_too_much(x):
    h = (100 + x).exp()
    return torch.where(x > 2, h, x).sum()


def log_of_zero(x):
    h = (x - x).log()
    return torch.where(x > 2, h, x).sum()


@pytest.mark.parametrize(
    ("work", "line", "ledger"),
    [
        (
            exp_of_too_much, "h = (100 + x).exp()",
            [("born", "exp", ""), ("healed", "where", ""), ("born", "mul", "ExpBackward0")],
        ),
        (
            log_of_zero, "h = (x - x).log()",
            [("born", "log", ""), ("healed", "where", ""), ("born", "div", "LogBackward0")],
        ),
    ],
)  # fmt: skip
def test_value_that_where_left_out_is_the_cause_of_a_nan_gradient(work, line, ledger):
    leaf = torch.rand(2, 3, requires_grad=True)
    trace = recorded(lambda: work(leaf).backward(), fingerprints=True)
    assert bool(leaf.grad.isnan().all())
    entries = [entry for entry in trace.not_finite() if entry.kind != "passed on"]
    assert [(each.kind, each.op, each.node) for each in entries] == ledger
    assert entries[2].values == "6 NaN entries"
    finding = trace.diagnose()[0]
    assert (finding.slug, finding.culprit.text, finding.confidence) == (
        "not-finite",
        line,
        "likely",
    )
    assert "left these out" in finding.explanation
    assert "passed it on" in str(trace.not_finite())


def test_saved_infinity_names_the_line_that_gave_it():
    leaf = torch.rand(2, 3, requires_grad=True)
    trace = recorded(lambda: exp_of_too_much(leaf).backward(), fingerprints=True)
    born = trace.not_finite().born
    assert [entry.saved_at for entry in born] == [None, born[0].location]
    title = "exp gave infinity; where keeps it out of the loss, not out of the gradient"
    assert trace.diagnose()[0].title == title


def test_finite_values_have_an_empty_ledger():
    leaf = torch.rand(2, 3, requires_grad=True)
    trace = recorded(lambda: leaf.exp().sum().backward(), fingerprints=True)
    assert (tuple(trace.not_finite()), str(trace.not_finite())) == ((), "")


def test_overflow_of_a_scaled_loss_is_a_hint():
    net = nn.Linear(3, 1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126)
    optimizer = torch.optim.SGD(net.parameters())

    def work():
        scaler.scale(net(X * 100).sum() * 1e-3).backward()
        net.weight.grad.mul_(1e30)
        scaler.step(optimizer)
        scaler.update()

    assert {f.confidence for f in recorded(work, net, fingerprints=True).diagnose()} <= {"hint"}


# --- recorded events ----------------------------------------------------------------------------


def test_mode_changes_are_recorded_with_their_lines():
    def work():
        with torch.no_grad():
            pass
        with torch.autocast("cpu"):
            pass

    trace = recorded(work)
    changes = [(e.mode, e.device_type, e.before, e.after) for e in trace.log.of(ModeChanged)]
    assert changes == [
        ("grad", None, "on", "off"),
        ("grad", None, "off", "on"),
        ("autocast", "cpu", "off", "bfloat16"),
        ("autocast", "cpu", "bfloat16", "off"),
    ]
    lines = {trace.analysis.location(e.stack_id).text for e in trace.log.of(ModeChanged)}
    assert lines == {"with torch.no_grad():", 'with torch.autocast("cpu"):'}


def test_modes_set_before_the_recording_have_no_line():
    with torch.no_grad():
        trace = recorded(lambda: None)
    (event,) = trace.log.of(ModeChanged)
    assert (event.mode, event.after, event.stack_id) == ("grad", "off", None)


def test_requires_grad_is_recorded_when_called_and_when_assigned():
    net = nn.Linear(3, 3)

    def work():
        net.weight.requires_grad_(False)
        net.bias.requires_grad = False
        net.weight.requires_grad_(True)
        net(X).sum().backward()

    trace = recorded(work, net)
    names = trace.analysis.parameters
    changes = [(names[e.tensor_id][0], e.requires_grad, e.stack_id is not None)
            for e in trace.log.of(RequiresGradChanged)]  # fmt: skip
    assert changes == [("weight", False, True), ("weight", True, True), ("bias", False, False)]


def test_norms_of_the_loss_and_of_final_gradients_are_recorded():
    net = nn.Linear(3, 1).double()
    loss = None

    def work():
        nonlocal loss
        loss = net(X.double()).sum()
        loss.backward()

    trace = recorded(work, net)
    norms = {(e.place, trace.analysis.parameters.get(e.tensor_id)): e.norm
             for e in trace.log.of(NormRead)}  # fmt: skip
    assert norms == {
        ("root", None): pytest.approx(abs(loss.item())),
        ("gradient", ("weight",)): pytest.approx(net.weight.grad.norm().item()),
        ("gradient", ("bias",)): pytest.approx(net.bias.grad.norm().item()),
    }


@pytest.mark.parametrize("ends", [True, False])
def test_gradients_of_another_thread_are_read_whether_or_not_it_has_ended(ends):
    net, written, may_end = nn.Linear(3, 3), Event(), Event()

    def train():
        for _ in range(2):
            net(X).sum().backward()
        written.set()
        may_end.wait(30)
        net.zero_grad()

    thread = Thread(target=train)

    def work():
        thread.start()
        assert written.wait(30)
        if ends:
            may_end.set()
            thread.join()

    # Reading ``weight.grad`` while its thread writes it without the GIL crashes the process.
    trace = recorded(work, net)
    norms = [(e.place, e.backward_id, e.norm) for e in trace.log.of(NormRead)]
    gradients = [(each.grad.norm().item()) for each in net.parameters() if each.grad is not None]
    may_end.set()
    thread.join()
    roots = [("root", 0), ("root", 1)]
    if ends:  # and has cleared its gradients
        assert [norm[:2] for norm in norms] == roots
    else:
        assert [norm[:2] for norm in norms] == [*roots, ("gradient", 1), ("gradient", 1)]
        assert sorted(norm[2] for norm in norms[2:]) == pytest.approx(sorted(gradients))
    assert trace.log.of(RecorderLimited) == ()


@pytest.mark.parametrize("fingerprints", [True, False])
@pytest.mark.parametrize("ends", [True, False])
def test_gradients_of_several_threads_are_read_once_all_but_one_have_ended(ends, fingerprints):
    net, other = nn.Linear(3, 3), nn.Linear(3, 3)
    written, may_end = Event(), Event()

    def train():
        other(X).sum().backward()
        written.set()
        may_end.wait(30)

    thread = Thread(target=train)

    def work():
        thread.start()
        assert written.wait(30)
        net(X).sum().backward()
        if ends:
            may_end.set()
            thread.join()

    trace = recorded(work, net, fingerprints=fingerprints)
    places = [each.place for each in trace.log.of(NormRead)]
    limits = [each.hook_point for each in trace.log.of(RecorderLimited)]
    may_end.set()
    thread.join()
    assert places.count("root") == 2
    read = places.count("gradient"), limits
    assert read == ((4, []) if ends else (2, ["gradients"]))  # those that the thread has read


def test_only_small_gradients_are_read_without_fingerprints(monkeypatch):
    monkeypatch.setattr(
        "autogradviz.recorder.backward.loss_and_gradient_norms.MAX_BYTES", 12
    )  # a bias of three floats

    def read(**options):
        trace = recorded(lambda: NET(X).sum().backward(), NET, **options)
        return {trace.analysis.parameters.get(e.tensor_id) for e in trace.log.of(NormRead)}

    assert read() == {None, ("bias",)}
    assert read(fingerprints=True) == {None, ("bias",), ("weight",)}


class _Gives(torch.autograd.Function):
    """Returns the gradient transformed by a function."""

    @staticmethod
    def forward(ctx, x, make):
        ctx.make = make
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.make(gradient), None


@pytest.mark.parametrize(
    ("make", "dtype", "norms"),
    [
        pytest.param(lambda g: g * 2, torch.bfloat16, [4.0], id="half the bytes"),
        pytest.param(lambda g: (g * 2).t(), torch.float32, [4.0], id="transposed"),
        pytest.param(lambda g: torch.complex(g, g).conj().imag, torch.float32, [2.0], id="negated"),
        pytest.param(lambda g: (g * 2).to_sparse(), torch.float32, [], id="sparse"),
        pytest.param(lambda g: torch._efficientzerotensor(2, 2), torch.float32, [], id="no memory"),
    ],
)
def test_norms_of_unusual_gradients_are_read_or_skipped(make, dtype, norms):
    leaf = torch.ones(2, 2, dtype=dtype, requires_grad=True)
    trace = recorded(lambda: _Gives.apply(leaf, make).sum().backward())
    assert [e.norm for e in trace.log.of(NormRead) if e.place == "gradient"] == norms


def test_gradient_with_resized_memory_is_skipped():
    leaf = torch.ones(3, requires_grad=True)

    def work():
        leaf.sum().backward()
        leaf.grad.untyped_storage().resize_(4)

    assert [e.place for e in recorded(work).log.of(NormRead)] == ["root"]


def test_cleared_gradients_have_no_norm():
    def work():
        NET(X).sum().backward()
        NET.zero_grad()

    places = [event.place for event in recorded(work, NET).log.of(NormRead)]
    assert places == ["root"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_large_numbers_are_not_infinite(dtype):
    leaf = torch.ones(4, dtype=dtype, requires_grad=True)

    def work():
        (leaf.abs() * 1e30).sum().backward()

    trace = recorded(work, fingerprints=True)
    assert trace.diagnose() == []
    norms = [event.norm for event in trace.log.of(NormRead)]
    assert norms == pytest.approx([4e30, 2e30])


def test_detached_values_stored_by_a_region_give_no_gradient_finding():
    kept = []

    def block(x):
        y = NET(x)
        kept.append(y.detach().mean())
        kept.append(torch.rand_like(y))
        return y.exp()

    def work():
        x = X.clone().requires_grad_()
        y = checkpoint(block, x, use_reentrant=True)
        (y * kept[1] + kept[0]).sum().backward()

    slugs = {finding.slug for finding in recorded(work, NET).diagnose()}
    assert slugs == {"checkpoint-effect-repeated"}  # the list itself grows twice


def test_weights_computed_by_an_inner_loop_give_no_finding():
    net = nn.Linear(3, 1)
    weight = net.weight
    with autogradviz.record() as trace:
        net._parameters["weight"] = weight * 0.5
        (gradient,) = torch.autograd.grad(
            net(torch.rand(2, 3)).sum(), net._parameters["weight"], create_graph=True
        )
        net._parameters["weight"] = net._parameters["weight"] - 0.1 * gradient
        net(torch.rand(2, 3)).sum().backward()
    assert weight.grad is not None
    assert trace.diagnose() == []


def test_numbers_of_losses_in_a_new_leaf_are_reported():
    def work():
        losses = [NET(X).sum(), NET(X).mean()]
        values = torch.tensor(losses, requires_grad=True)
        (values * 2).sum().backward()

    line = "values = torch.tensor(losses, requires_grad=True)"
    assert first(work, NET) == ("gradient-missing", line, "hint")


def test_parameters_whose_data_was_set_before_backward_have_their_gradient():
    net = nn.Linear(3, 3)

    def work():
        loss = net(X).square().sum()
        for parameter in net.parameters():
            parameter.data = torch.zeros_like(parameter)
        with torch.no_grad():
            net(X)
        loss.backward()

    assert "gradient-missing" not in {f.slug for f in recorded(work, net).diagnose()}
    assert net.weight.grad is not None


def slope_added(change, *, create_graph=False):
    """Return a step whose loss contains the changed gradient of the input."""

    def work():
        x = X.clone().requires_grad_()
        score = NET(x).square().sum()
        (slope,) = torch.autograd.grad(score, x, retain_graph=True, create_graph=create_graph)
        change(score, slope).backward()

    return work


def test_penalty_of_gradients_without_a_graph_is_a_hint():
    work = slope_added(lambda score, slope: score + 10 * (slope.norm(dim=1) - 1).square().mean())
    line = "(slope,) = torch.autograd.grad(score, x, retain_graph=True, create_graph=create_graph)"
    assert first(work, NET) == ("loss-term-constant", line, "hint")


@pytest.mark.parametrize(
    "work",
    [
        slope_added(lambda score, slope: score + slope.norm(), create_graph=True),
        slope_added(lambda score, slope: score + slope.norm().detach()),
        slope_added(lambda score, slope: score * slope.norm()),  # an adaptive weight
        slope_added(lambda score, slope: (score + slope).sum()),  # a first-order update
        slope_added(lambda score, slope: score + 0 * slope.norm().item()),
    ],
)
def test_gradients_used_as_weights_or_constants_are_not_reported(work):
    assert recorded(work, NET).diagnose() == []


def test_backward_whose_error_is_caught_leaves_no_gradient_missing():
    model = nn.Sequential(nn.Linear(3, 3), nn.Sigmoid(), nn.Linear(3, 3))

    def work():
        gate = model[1](model[0](X))
        gate.mul_(2)
        with pytest.raises(RuntimeError, match="inplace operation"):
            model[2](gate).sum().backward()

    assert "gradient-missing" not in {each.slug for each in recorded(work, model).diagnose()}


def test_a_detached_value_that_is_printed_is_detached_at_its_line():
    net = torch.nn.Linear(3, 3)
    with autogradviz.record(net) as trace:
        factor = net(torch.rand(2, 3)).exp().detach()  # <-- named
        str(factor)
        loss = -factor * torch.rand(2, 3)
        (loss.sum() + torch.ones(1, requires_grad=True).sum()).backward()
    (first, *_) = trace.diagnose()
    assert first.slug in {"gradient-missing", "gradient-cut"}
    assert first.culprit.text.endswith("# <-- named")


def number_of_numpy(net, x):
    kept = net(x).square().mean().detach().numpy()
    return net(x).mean() + 0.1 * torch.tensor(kept)  # <-- named


def number_of_a_function_of_numpy(net, x):
    term = net(x).square().mean()
    kept = float(term.detach().numpy().clip(1e-4, 50.0))  # <-- named
    return net(x).mean() + 0.1 * kept


def array_of_numpy(net, x):
    hidden = net(x)
    kept = hidden.detach().numpy()  # <-- named
    penalty = torch.as_tensor((kept**2).mean())
    return hidden.mean() + 0.1 * penalty


@pytest.mark.parametrize(
    "loss_of", [number_of_numpy, number_of_a_function_of_numpy, array_of_numpy]
)
def test_a_term_of_the_loss_that_left_torch_is_a_cut(loss_of):
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 3)
    with autogradviz.record(net) as trace:
        loss_of(net, torch.rand(4, 3)).backward()
    [finding] = [each for each in trace.diagnose() if each.slug == "gradient-cut"]
    assert finding.culprit.text.endswith("# <-- named")


def weighted_by_a_number(net, x):
    hidden = net(x)
    share = min(1.0, hidden.square().mean().item())
    return hidden.mean() + 0.1 * share * hidden.square().mean()


def weighted_by_a_mask_of_numpy(net, x):
    hidden = net(x)
    mask = torch.from_numpy((hidden.detach().numpy() > 0).astype("float32"))
    return (mask * hidden).mean() + hidden.square().mean()


def logged_numbers(net, x):
    hidden = net(x)
    loss = hidden.mean() + 0.1 * hidden.square().mean()
    str([float(hidden.square().mean().detach().numpy()), loss.item()])
    return loss


@pytest.mark.parametrize(
    "loss_of", [weighted_by_a_number, weighted_by_a_mask_of_numpy, logged_numbers]
)
def test_a_number_that_weighs_a_term_is_no_cut(loss_of):
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 3)
    with autogradviz.record(net) as trace:
        loss_of(net, torch.rand(4, 3)).backward()
    assert list(trace.diagnose()) == []


class Sums:
    """Divide by the sum of weights, which another method has read."""

    def read(self, weights):
        total = weights.sum()
        self.total = total.item()  # <-- named

    def mean(self, values):
        return values.sum() / self.total


def divided_by_a_number_of_another_method(net):
    weights, sums = net(torch.rand(4, 3)).exp(), Sums()
    sums.read(weights)
    return sums.mean(weights * torch.rand(4, 3))


def number_that_is_written(net):
    weights = net(torch.rand(4, 3)).exp()
    weights.sum().item()
    return (weights * torch.rand(4, 3)).sum() / 1.375


def number_of_another_line(net):
    """Read two numbers, of which one has no graph."""
    weights, scale = net(torch.rand(4, 3)).exp(), torch.rand(1).item()
    weights.sum().item()
    return (weights * scale).sum()


@pytest.mark.parametrize(
    ("loss_of", "count"),
    [
        (divided_by_a_number_of_another_method, 1), (number_that_is_written, 0),
        (number_of_another_line, 0),
    ],
)  # fmt: skip
def test_a_number_that_only_one_line_can_have_read_cuts_the_gradient(loss_of, count):
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 3)
    with autogradviz.record(net) as trace:
        loss_of(net).backward()
    found = [each for each in trace.diagnose() if each.slug == "gradient-cut"]
    assert len(found) == count
    assert all(each.culprit.text.endswith("# <-- named") for each in found)


def masked_before_the_step(state, mask):
    return (state * mask).detach()


def masked_twice(state, mask):
    state = torch.where(mask > 0, state, torch.zeros_like(state)) * mask
    return state.detach()


def train_with_a_carried_state(carry, *, cut=lambda state, mask: state, **options):
    torch.manual_seed(0)
    cell, head = nn.GRUCell(3, 4), nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)
    mask = torch.tensor([[1.0], [0.0]])
    state = torch.zeros(2, 4)
    with autogradviz.record(nn.ModuleList([cell, head]), **options) as trace:
        for _ in range(5):
            state = carry(state, mask)
            loss = torch.zeros(())
            for _ in range(2):
                state = cut(cell(torch.rand(2, 3), state), mask)
                loss = loss + head(state).square().mean()
                state = cell(torch.rand(2, 3), state)
            optimizer.zero_grad()
            (loss + state.square().mean()).backward()
            optimizer.step()
    return trace


@pytest.mark.parametrize("keep_steps", [None, 2])
@pytest.mark.parametrize("carry", [masked_before_the_step, masked_twice])
def test_the_detached_mask_of_a_state_of_an_earlier_step_cuts_nothing(carry, keep_steps):
    trace = train_with_a_carried_state(carry, keep_steps=keep_steps)
    assert trace.diagnose() == []
    cuts = [entry for entry in trace.audit() if entry.mechanism == "cut"]
    assert all("detach" not in entry.statement for entry in cuts if entry.fix)


@pytest.mark.parametrize("keep_steps", [None, 2])
def test_the_detached_mask_of_a_state_of_the_same_step_cuts_its_gradient(keep_steps):
    def cut(state, mask):
        return (state * mask).detach()  # <-- named

    trace = train_with_a_carried_state(masked_twice, cut=cut, keep_steps=keep_steps)
    (found,) = trace.diagnose()
    assert found.slug == "gradient-cut"
    assert found.culprit.text.endswith("# <-- named")


def test_a_parameter_that_scales_a_state_of_an_earlier_step_loses_its_gradient():
    scale = nn.Parameter(torch.ones(4))

    def carry(state, mask):
        return (state * mask * scale).detach()  # <-- named

    torch.manual_seed(0)
    cell = nn.GRUCell(3, 4)
    optimizer = torch.optim.SGD([*cell.parameters(), scale], lr=0.1)
    state, mask = torch.zeros(2, 4), torch.tensor([[1.0], [0.0]])
    with autogradviz.record(cell) as trace:
        for _ in range(3):
            state = cell(torch.rand(2, 3), carry(state, mask))
            optimizer.zero_grad()
            state.square().sum().backward()
            optimizer.step()
    (found,) = trace.diagnose()
    assert found.culprit.text.endswith("# <-- named")


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
def test_a_copy_by_the_constructor_cuts_a_way_although_another_one_has_a_gradient():
    net = torch.nn.Linear(3, 1)
    with autogradviz.record(net) as trace:
        scale = net(X).exp().mean()
        (X.sum() / scale + torch.tensor(scale).log()).backward()  # <-- named
    (first, *_) = trace.diagnose()
    assert (first.slug, first.confidence) == ("gradient-cut", "hint")
    assert first.culprit.text.endswith("# <-- named")


def a_mask_times_infinity(net):
    scores = net(X)
    mask = (scores < scores.mean()).float()
    return (scores - float("inf") * mask).argmax(-1)  # <-- named


def a_mask_times_a_large_number(net):
    scores = net(X)
    mask = (scores < scores.mean()).float()
    return (scores - 1e30 * mask).argmax(-1)


def a_mask_that_is_filled(net):
    scores = net(X)
    return scores.masked_fill(scores < scores.mean(), float("-inf")).argmax(-1)


@pytest.mark.parametrize(
    ("choose", "count"),
    [(a_mask_times_infinity, 1), (a_mask_times_a_large_number, 0), (a_mask_that_is_filled, 0)],
)
def test_a_mask_that_is_multiplied_by_infinity_is_named_although_the_loss_is_finite(choose, count):
    torch.manual_seed(0)
    with autogradviz.record(NET) as trace:
        torch.nn.functional.cross_entropy(NET(X), choose(NET)).backward()
    NET.zero_grad()
    found = [each for each in trace.diagnose() if each.slug == "not-finite"]
    assert len(found) == count
    assert all(each.culprit.text.endswith("# <-- named") for each in found)


def test_a_value_that_only_a_comparison_reads_gave_no_infinity_of_the_loss():
    torch.manual_seed(0)
    edges = torch.tensor([0.2, 0.2, 0.5])
    with autogradviz.record(NET) as trace:
        sizes = edges / torch.tensor([0.0, 1.0, 1.0])
        taken = (sizes > 0.1).long()
        target = torch.log(edges - edges[0])  # <-- named
        (NET(X) - target).square().sum().mul(taken.sum()).backward()
    NET.zero_grad()
    (first, *_) = trace.diagnose()
    assert first.culprit.text.endswith("# <-- named")


class Contrast(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.bias = torch.nn.Parameter(torch.zeros(1))

    def logits(self, x, scale, bias=None):
        return x * scale if bias is None else x * scale + bias

    def loss(self, x, scale, bias=None):
        return self.logits(x, scale).square().mean()  # <-- named

    def forward(self, x):
        return self.loss(x, self.scale, self.bias)


class PassingContrast(Contrast):
    def loss(self, x, scale, bias=None):
        return self.logits(x, scale, bias).square().mean()


def test_an_argument_that_a_function_does_not_pass_on_is_named_at_its_call():
    net = Contrast()
    with autogradviz.record(net) as trace:
        net(X).backward()
    (first, *_) = trace.diagnose()
    assert (first.slug, first.confidence) == ("gradient-missing", "hint")
    assert first.culprit.text.endswith("# <-- named")
    passing = PassingContrast()
    with autogradviz.record(passing) as trace:
        passing(X).backward()
    assert not trace.diagnose()


class Adapter(torch.nn.Module):
    def __init__(self, size, rank=2):
        super().__init__()
        self.base = torch.nn.Linear(size, size).requires_grad_(requires_grad=False)
        self.down = torch.nn.Linear(size, rank, bias=False)
        self.up = torch.nn.Parameter(torch.zeros(size, rank))
        torch.nn.init.zeros_(self.down.weight)

    def forward(self, x):
        return self.base(x) + self.down(x) @ self.up.t()


def test_product_of_zeros_names_the_line_that_gives_the_first_factor_zeros():
    model = torch.nn.Sequential(Adapter(4), Adapter(4))
    with autogradviz.record(model) as trace:
        model(torch.randn(3, 4)).square().sum().backward()
    first = trace.diagnose()[0]
    assert first.slug == "gradient-all-zero"
    assert first.culprit.text == "torch.nn.init.zeros_(self.down.weight)"
    assert first.victim.text == "return self.base(x) + self.down(x) @ self.up.t()"
    assert first.fix.startswith("torch.nn.init.normal_(self.down.weight)")


def test_adapter_with_one_factor_of_zeros_is_correct():
    model = torch.nn.Sequential(Adapter(4), Adapter(4))
    for each in model:
        torch.nn.init.normal_(each.down.weight)
    with autogradviz.record(model) as trace:
        model(torch.randn(3, 4)).square().sum().backward()
    assert not trace.diagnose()


def test_operands_of_all_pairs_name_the_line_that_made_the_column():
    critic = torch.nn.Linear(4, 1)
    with autogradviz.record(critic) as trace:
        value = critic(torch.randn(5, 4))
        detached = value.detach() * 1
        loss = (torch.randn(5) - value).square().mean()
        (loss + detached.sum()).backward()
    (finding,) = trace.diagnose()
    assert finding.slug == "loss-broadcast"
    assert "value = critic(torch.randn(5, 4))" in str(finding)


def masked_targets(model, replace):
    def step():
        x, y = torch.randn(8, 4), torch.randn(8, 1)
        y[3] = torch.nan
        error = (model(x) - y).square()
        loss = replace(error, y)
        return loss.mean() / torch.tensor(2.0)

    return step


def lines_of_masked(replace, steps=1):
    model = torch.nn.Linear(4, 1)
    step = masked_targets(model, replace)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with autogradviz.record(model) as trace:
        for _ in range(steps):
            optimizer.zero_grad()
            step().backward()
            optimizer.step()
    return [(each.slug, each.culprit.text) for each in trace.diagnose()]


@pytest.mark.parametrize(
    "replace",
    [
        lambda error, _: torch.nan_to_num(error),
        lambda error, y: torch.where(torch.isnan(y), 0.0, error),
        lambda error, y: torch.where(~torch.isnan(y), error, 0.0),
        lambda error, y: error.masked_fill(y.isnan(), 0.0),
    ],
    ids=["nan_to_num", "where", "where not", "masked_fill"],
)
def test_value_that_is_replaced_where_it_is_nan_is_named_and_no_divisor(replace):
    assert lines_of_masked(replace) == [("not-finite", "error = (model(x) - y).square()")]


def test_finite_loss_says_that_no_divisor_was_zero():
    model = torch.nn.Linear(4, 1)
    with autogradviz.record(model) as trace:
        distance = (model(torch.ones(3, 4)) * 0).sqrt()
        (distance.sum() / torch.tensor(2.0)).backward()
    (first,) = trace.diagnose()
    assert first.culprit.text == "distance = (model(torch.ones(3, 4)) * 0).sqrt()"


def test_targets_that_are_replaced_before_the_loss_are_correct():
    model = torch.nn.Linear(4, 1)
    with autogradviz.record(model) as trace:
        y = torch.tensor([[1.0], [torch.nan]])
        error = (model(torch.randn(2, 4)) - torch.nan_to_num(y)).square()
        torch.where(torch.isnan(y), 0.0, error).sum().backward()
    assert not trace.diagnose()


@pytest.mark.parametrize("clears_between", [False, True])
def test_clearing_between_the_backwards_of_two_losses_is_found(clears_between):
    trunk, first, second = nn.Linear(8, 16), nn.Linear(16, 3), nn.Linear(16, 1)
    parameters = [p for net in (trunk, first, second) for p in net.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    with autogradviz.record() as trace:
        for _ in range(4):
            x = torch.rand(4, 8)
            optimizer.zero_grad()
            first(trunk(x)).square().mean().backward()
            if clears_between:
                optimizer.zero_grad()  # between
            second(trunk(x)).square().mean().backward()
            optimizer.step()
    found = trace.diagnose()
    assert [each.slug for each in found] == ["gradients-discarded"] * clears_between
    if found:
        assert found[0].culprit.text.endswith("# between")


class Quantizer(nn.Module):
    """The nearest code of each value, without a way for the gradient around the choice."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(4, 3), nn.Linear(3, 4)
        self.codes = nn.Embedding(5, 3)

    def forward(self, x):
        z = self.encode(x)
        chosen = torch.cdist(z, self.codes.weight).argmin(1)
        q = self.codes(chosen)
        term = functional.mse_loss(q.detach(), z.detach()) + functional.mse_loss(q, z.detach())
        return functional.mse_loss(self.decode(q), x) + term


def test_an_integer_explains_a_missing_gradient_before_the_detached_target_of_a_term():
    model = Quantizer()
    with autogradviz.record(model) as trace:
        model(torch.rand(6, 4)).backward()
    finding = trace.diagnose()[0]
    assert finding.slug == "gradient-missing"
    assert "argmin(1)" in finding.culprit.text
    assert "straight through" in finding.fix
    target = next(entry for entry in trace.audit() if "term = " in entry.statement)
    assert (target.confidence, target.fix) == ("hint", "")
    assert [entry.statement for entry in trace.audit()].index(target.statement) > 0


class CutQuantizer(Quantizer):
    """A target of the codes, and values that go on to the decoder without their gradient."""

    def forward(self, x):
        z = self.encode(x)
        q = self.codes(torch.cdist(z, self.codes.weight).argmin(1))
        term = functional.mse_loss(q, z.detach())
        y = z.detach() + (q - q.detach())
        return functional.mse_loss(self.decode(y), x) + term


def test_a_cut_on_the_way_to_the_result_comes_before_the_detached_target_of_a_term():
    model = CutQuantizer()
    with autogradviz.record(model) as trace:
        for _ in range(3):
            model(torch.rand(6, 4)).backward()
    (finding,) = trace.diagnose()
    assert finding.slug == "gradient-missing"
    assert finding.culprit.text == "y = z.detach() + (q - q.detach())"
    assert finding.fix.startswith("y = z + (q - q.detach())\n")


class Guessing(nn.Module):
    """A head that runs without gradients only."""

    def __init__(self):
        super().__init__()
        self.body, self.head, self.guess = nn.Linear(4, 4), nn.Linear(4, 1), nn.Linear(4, 3)

    def forward(self, x):
        h = self.body(x).tanh()
        with torch.no_grad():
            self.guessed = self.guess(h)
        return self.head(h)


def test_the_block_is_named_for_results_that_have_no_gradient_in_it():
    model = Guessing()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def work():
        model(torch.rand(6, 4)).sum().backward()
        optimizer.step()

    trace = recorded(work, model)
    (finding,) = trace.diagnose()
    assert finding.culprit.text == "with torch.no_grad():"
    assert finding.victim.text == "self.guessed = self.guess(h)"
    assert "outside of no_grad, and add it to the loss" in finding.fix
    assert "addmm → float32 6×3" in finding.explanation
    scene = build_scene(Analysis(trace.log), (finding,))
    assert scene.findings[0].nodes == ()  # h has its gradient


class Experts(nn.Module):
    """Calls two experts, each of which uses its parameters on a branch that is not taken."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(Expert() for _ in range(4))
        self.last = nn.Linear(3, 1)

    def forward(self, x):
        for expert in self.experts:
            x = expert(x)
        return self.last(x)


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3))

    def forward(self, x):
        return x * self.weight if x.sum() < 0 else x


def test_parameters_without_a_gradient_for_one_reason_are_one_finding():
    model = Experts()
    (finding,) = recorded(lambda: model(torch.rand(2, 3)).sum().backward(), model).diagnose()
    assert finding.title == (
        "4 parameters got no gradient: their modules were called, and did not use them"
    )
    assert "4 of 6 parameters do not train" in finding.explanation


def test_parameters_that_are_frozen_are_not_among_those_that_could_train():
    model = nn.ModuleDict({name: nn.Linear(3, 3) for name in ("frozen", "head", "unused")})
    model["frozen"].requires_grad_(requires_grad=False)
    chain = nn.Sequential(model["frozen"], model["head"])
    step = recorded(lambda: chain(torch.rand(2, 3)).sum().backward(), model)
    (finding,) = step.diagnose()
    assert "2 of 4 parameters do not train" in finding.explanation
    scene = step._viewer_scene
    states = {each.name: each.state for each in scene.unused_parameters}
    assert states == {
        "unused.weight": "never called",
        "unused.bias": "never called",
        "frozen.weight": "frozen",
        "frozen.bias": "frozen",
    }
    ordinary = {each.subject: bool(each.ordinary) for each in scene.answers}
    assert ordinary["parameter frozen.weight"] is True
    assert ordinary["parameter unused.weight"] is False


class Switching(nn.Module):
    """Takes another branch when it is recomputed."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return (self.first if self.calls % 2 else self.second)(x)


def test_modules_that_only_a_recomputation_called_do_not_count_as_called():
    model = nn.Sequential(Switching(), nn.Linear(3, 1))

    def work():
        h = checkpoint(model[0], torch.rand(2, 3), use_reentrant=False)
        model[1](h).sum().backward()

    findings = recorded(work, model).diagnose()
    (missing,) = [each for each in findings if each.slug == "gradient-missing"]
    assert missing.title == "2 parameters got no gradient: only recomputations used them"


class _Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise ValueError("in backward")


def test_what_a_backward_that_raised_would_have_reached_lost_no_gradient():
    first, aside, last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
    with (
        pytest.raises(ValueError, match="in backward"),
        autogradviz.record(nn.ModuleList([first, aside, last])) as t,
    ):
        h = first(torch.rand(3, 4))
        chosen = h[h.argmax(1) % 3]
        weight = aside(h.detach()).argmax(1)
        last(_Raises.apply(h) + chosen + weight[:, None]).sum().backward()
    lost = {name for entry in t.audit().of("cut") if "gradient: " in entry.effect
            for name in entry.parameters}  # fmt: skip
    assert lost == {"1.weight", "1.bias"}
