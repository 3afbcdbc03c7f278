"""The op that gave NaN is named from the operands that its node had saved."""

import linecache

import pytest
import torch
from interpreters import run_forked
from torch.nn import functional

import autogradviz
from autogradviz.events import SingularOperandRead
from autogradviz.recorder.backward import singular_operands
from autogradviz.recorder.torch_internals.nodes import _SINGULAR
from autogradviz.scene import build_scene


@pytest.fixture(autouse=True)
def _all_are_read(monkeypatch):
    monkeypatch.setattr(singular_operands, "ALLOWANCE_S", 60.0)


def steps(loss_of, count=2, size=3):
    """Return the trace of some steps of a small model."""
    torch.manual_seed(0)
    net = torch.nn.Linear(size, size)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with autogradviz.record(net) as trace:
        for _ in range(count):
            loss = loss_of(net(torch.ones(4, size)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace


def divided_by_no_positives(y):
    total = y.exp().sum(1, keepdim=True)
    scores = y - torch.log(total)
    mask = torch.tensor([[1.0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1]])
    return -((mask * scores).sum(1) / mask.sum(1)).mean()  # NAMED


def divided_in_a_masked_term(y):
    weight = (y.detach() > -9).float()
    loss = (y.abs() * weight).sum() / weight.sum()
    ratio = y / torch.tensor([1.0, 0.0, 2.0])  # NAMED
    return loss + torch.where(torch.tensor([True, False, True]), ratio, 0.0).sum()


def divided_by_whole_zeros(y):
    scale = y.square().mean().sqrt()
    count = torch.tensor([2, 0, 1])
    ratio = y / count  # NAMED
    return scale + torch.where(count > 0, ratio, 0.0).sum()


def log_of_a_scaled_action(y):
    spread = torch.log(functional.softplus(y))
    action = 2 * torch.tanh(y + torch.tensor([0.0, 9.0, 0.0]))
    return (spread - torch.log(1 - action.pow(2) + 1e-6)).mean()  # NAMED


def exponential_overflows(y):
    table = (torch.rand(4, 3).exp() * 9000).round()
    return (y.exp() + table * torch.exp(y + 100)).mean()  # NAMED


def root_with_a_relu_of_clamped(y):
    return (y.square() + 1).sqrt().sum() + (0 * y).clamp(min=0).sqrt().max()  # NAMED


def equal_eigenvalues(y):
    scale = (y.square().sum() + 1).log()
    _, vectors = torch.linalg.eigh(torch.eye(3) + 0 * (y.t() @ y))  # NAMED
    return vectors.sum() + scale


def overflow_in_half(y):
    row = (y * 0).half()
    variance = row.square().mean(-1, keepdim=True)
    scale = torch.rsqrt(variance + 1e-6)  # NAMED
    return (row * scale).float().sum() + y.sum()


PROGRAMS = [
    divided_by_no_positives, divided_in_a_masked_term, divided_by_whole_zeros,
    log_of_a_scaled_action, exponential_overflows, root_with_a_relu_of_clamped,
    equal_eigenvalues, overflow_in_half,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_first_finding_is_the_op_with_a_singular_operand(program):
    finding = steps(program, count=1).diagnose()[0]
    line = linecache.getline(__file__, finding.culprit.lineno)
    assert (finding.slug, line.rstrip().endswith("# NAMED")) == ("not-finite", True)


def test_a_place_that_finite_losses_survived_is_not_accused():
    state = {"calls": 0}

    def loss_of(y):
        state["calls"] += 1
        threshold = torch.relu(0 * y).sqrt().sum()  # the gradient of relu at 0 is 0
        if state["calls"] < 3:
            return y.square().mean() + threshold
        return y.square().mean() + threshold + torch.where(y > 9, 0 / (0 * y), 0.0).sum()

    trace = steps(loss_of, count=4)
    lines = [linecache.getline(__file__, f.culprit.lineno) for f in trace.diagnose() if f.culprit]
    assert ["0 / (0 * y)" in line for line in lines[:1]] == [True]
    assert not any("threshold =" in line for line in lines)


def test_losses_that_grow_name_the_optimizer():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 9), torch.nn.ReLU(), torch.nn.Linear(9, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=30.0)  # NAMED
    x, y = torch.randn(16, 3), torch.randn(16, 1)
    with autogradviz.record(net) as trace:
        for _ in range(7):
            loss = functional.mse_loss(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    finding = trace.diagnose()[0]
    assert "lr=30.0" in linecache.getline(__file__, finding.culprit.lineno)
    assert "diverge" in finding.title


def test_nothing_is_accused_of_nan_in_the_data():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.LayerNorm(3))
    table = torch.rand(8, 3)
    table[:, 1] = 4.0
    with autogradviz.record(net) as trace:
        x = (table - table.mean(0)) / table.std(0)  # NAMED
        net(x).square().mean().backward()
    line = linecache.getline(__file__, trace.diagnose()[0].culprit.lineno)
    assert line.rstrip().endswith("# NAMED")


def test_finite_steps_without_singular_operands_record_nothing():
    trace = steps(lambda y: (y.square() + 1).log().mean())
    assert trace.analysis.log.of(SingularOperandRead) == ()


def test_reading_ends_while_losses_are_finite(monkeypatch):
    monkeypatch.setattr(singular_operands, "ALLOWANCE_S", -1e9)
    trace = steps(lambda y: y.square().mean() + torch.relu((0 * y).sqrt().sum() - 1), count=1)
    assert trace.analysis.log.of(SingularOperandRead) == ()


def test_a_loss_that_is_nan_is_read_whatever_it_costs(monkeypatch):
    monkeypatch.setattr(singular_operands, "ALLOWANCE_S", -1e9)
    trace = steps(divided_by_no_positives, count=6)
    read = trace.analysis.log.of(SingularOperandRead)
    assert read[0].slot == "other"
    assert (read[0].entries, read[0].not_finite) == (1, False)
    assert len({event.backward_id for event in read}) == singular_operands.MAX_BAD


def test_an_unused_input_names_the_line_that_left_its_graph():
    weight = torch.rand(3, requires_grad=True)
    position = torch.rand(3, requires_grad=True)
    trace = None
    with pytest.raises(RuntimeError, match="not have been used"):
        with autogradviz.record() as trace:
            nearest = torch.cdist(position[:, None], position[:, None]).argmin()
            distance = torch.from_numpy(position.detach().numpy() * 2)  # NAMED
            energy = (weight * distance).sum() + nearest
            torch.autograd.grad(energy, position, create_graph=True)
    line = linecache.getline(__file__, trace.diagnose()[0].culprit.lineno)
    assert line.rstrip().endswith("# NAMED")


def test_nan_of_an_earlier_step_comes_before_the_exception_that_it_caused():
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    trace = None
    with pytest.raises(RuntimeError, match="linalg.eigh"):
        with autogradviz.record(net) as trace:
            for _ in range(2):
                y = net(torch.ones(4, 3))
                covariance = torch.eye(3) + 0 * (y.t() @ y)
                _, vectors = torch.linalg.eigh(covariance)  # NAMED
                optimizer.zero_grad()
                vectors.sum().backward()
                optimizer.step()
    finding = trace.diagnose()[0]
    line = linecache.getline(__file__, finding.culprit.lineno)
    assert (finding.slug, line.rstrip().endswith("# NAMED")) == ("not-finite", True)


def test_the_graph_shows_the_step_whose_backward_gave_nan(monkeypatch):
    monkeypatch.setattr(singular_operands, "ALLOWANCE_S", -1e9)  # no operands are read
    monkeypatch.setattr(singular_operands, "MAX_BAD", 0)
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with autogradviz.record(net) as trace:
        for step in range(4):
            x = torch.rand(4, 3)
            if step == 2:
                x[1] = x[0]
            y = net(x)
            distance = torch.sqrt((y[1:] - y[:-1]).square().sum(-1))
            optimizer.zero_grad()
            (y.mean() + distance.mean()).backward()
            optimizer.step()
    finding = trace.diagnose()[0]
    scene = build_scene(trace.analysis, trace.diagnose())
    roots = [node.index for node in scene.nodes if node.name == "SqrtBackward0"]
    assert (finding.slug, len(roots)) == ("not-finite", 4)
    assert scene.findings[0].nodes == (roots[2],)


def test_nodes_have_the_slots_that_are_read():
    for name, slots in _SINGULAR.items():
        node = getattr(torch._C._functions, name)
        assert [slot for slot, _ in slots if not hasattr(node, f"_raw_saved_{slot}")] == [], name


GROWING = """
import torch, autogradviz
from autogradviz.recorder.backward import singular_operands
singular_operands.ALLOWANCE_S = 60.0
x = torch.ones(2, requires_grad=True)
with autogradviz.record(engine={engine!r}):
    y = x
    for _ in range({steps}):
        for _ in range({ops}):
            y = y + 1
        y.sum().backward(retain_graph=True)
    del y
print("freed")
"""


@pytest.mark.parametrize("engine", ["python", "native"])
@pytest.mark.parametrize(("steps", "ops"), [(8, 15_000), (40, 3_000)])
def test_a_graph_that_grows_over_steps_can_be_freed(request, engine, steps, ops):
    if engine == "native":
        request.getfixturevalue("native")
    program = GROWING.format(engine=engine, steps=steps, ops=ops)
    done = run_forked("-c", program)
    assert (done.returncode, done.stdout) == (0, "freed\n"), done.stderr
