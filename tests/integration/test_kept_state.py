"""States that are kept from one step to the next with their graph, and similar programs."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections import deque

import pytest
import torch
from torch import nn

import autogradviz

STEPS = 4


class Model(nn.Module):
    """A recurrent model that takes its state and returns it."""

    def __init__(self, kind="LSTM"):
        super().__init__()
        self.emb = nn.Embedding(9, 4)
        self.rnn = getattr(nn, kind)(4, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, tokens, state=None):
        out, state = self.rnn(self.emb(tokens), state)
        return self.head(out), state


class CellModel(nn.Module):
    """The same with a cell of its own, which is called for each token."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(9, 4)
        self.mix = nn.Linear(8, 4)

    def forward(self, tokens, state):
        for token in tokens:
            state = torch.tanh(self.mix(torch.cat([self.emb(token), state], 1)))
        return state.sum(1), state


def tokens():
    return torch.randint(0, 9, (3, 2))


def setup(kind="LSTM"):
    torch.manual_seed(0)
    model = CellModel() if kind == "own" else Model(kind)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def update(loss, optimizer, **options):
    optimizer.zero_grad()
    loss.backward(**options)
    optimizer.step()


# --- the state is kept ------------------------------------------------------------------------


def lstm_in_a_variable():
    model, optimizer = setup()
    state = None
    for _ in range(STEPS):
        out, state = model(tokens(), state)  # <-- carries
        update(out.mean(), optimizer)


def gru_in_a_variable():
    model, optimizer = setup("GRU")
    hidden = torch.zeros(1, 2, 4)
    for _ in range(STEPS):
        out, hidden = model(tokens(), hidden)  # <-- carries
        update(out.mean(), optimizer)


def own_cell_in_a_variable():
    model, optimizer = setup("own")
    state = torch.zeros(2, 4)
    for _ in range(STEPS):
        out, state = model(tokens(), state)  # <-- carries
        update(out.mean(), optimizer)


def state_in_another_variable():
    model, optimizer = setup("RNN")
    previous = None
    for _ in range(STEPS):
        out, new = model(tokens(), previous)
        update(out.mean(), optimizer)
        previous = new  # <-- carries


def state_in_a_list():
    model, optimizer = setup("GRU")
    states = [torch.zeros(1, 2, 4)]
    for _ in range(STEPS):
        out, state = model(tokens(), states[-1])
        states.append(state)  # <-- carries
        update(out.mean(), optimizer)


def state_in_a_dict():
    model, optimizer = setup()
    kept = {"state": None}
    for _ in range(STEPS):
        out, kept["state"] = model(tokens(), kept["state"])  # <-- carries
        update(out.mean(), optimizer)


def states_of_two_streams():
    model, optimizer = setup("GRU")
    kept = {}
    for number in range(2 * STEPS):
        out, state = model(tokens(), kept.get(number % 2))
        kept[number % 2] = state  # <-- carries
        update(out.mean(), optimizer)


def lstm_states_of_two_streams():
    model, optimizer = setup()
    kept = {}
    for number in range(2 * STEPS):
        out, state = model(tokens(), kept.get(number % 2))
        kept[number % 2] = state  # <-- carries
        update(out.mean(), optimizer)


@dataclasses.dataclass
class Progress:
    """The progress of a training."""

    step: int = 0
    state: torch.Tensor | None = None


def state_in_a_dataclass():
    model, optimizer = setup("GRU")
    progress = Progress()
    for _ in range(STEPS):
        out, state = model(tokens(), progress.state)
        progress.state = state  # <-- carries
        update(out.mean(), optimizer)


STATE = None


def state_in_a_global():
    global STATE  # noqa: PLW0603
    STATE = None
    model, optimizer = setup()
    for _ in range(STEPS):
        out, STATE = model(tokens(), STATE)  # <-- carries
        update(out.mean(), optimizer)


class Stateful(nn.Module):
    """Keeps its state itself."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(9, 4)
        self.rnn = nn.LSTM(4, 4)
        self.state = None

    def forward(self, batch):
        out, self.state = self.rnn(self.emb(batch), self.state)  # <-- carries
        return out


def state_in_an_attribute():
    model = Stateful()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        update(model(tokens()).mean(), optimizer)


class Trainer:
    """Has a step that keeps the state."""

    def __init__(self):
        self.model, self.optimizer = setup("GRU")
        self.hidden = None

    def step(self, batch):
        out, hidden = self.model(batch, self.hidden)
        update(out.mean(), self.optimizer)
        self.remember(hidden)

    def remember(self, hidden):
        self.hidden = hidden  # <-- carries


def state_stored_by_a_method():
    trainer = Trainer()
    for _ in range(STEPS):
        trainer.step(tokens())


def step_returns_the_state():
    model, optimizer = setup()

    def step(batch, state):
        out, state = model(batch, state)
        update(out.mean(), optimizer)
        return state

    state = None
    for _ in range(STEPS):
        state = step(tokens(), state)  # <-- carries


def state_of_a_closure():
    model, optimizer = setup("GRU")
    hidden = None

    def step(batch):
        nonlocal hidden
        out, hidden = model(batch, hidden)  # <-- carries
        update(out.mean(), optimizer)

    for _ in range(STEPS):
        step(tokens())


def state_in_a_generator():
    model, optimizer = setup("GRU")

    def losses():
        hidden = None
        for _ in range(STEPS):
            out, hidden = model(tokens(), hidden)  # <-- carries
            yield out.mean()

    for loss in losses():
        update(loss, optimizer)


def cells_in_a_loop():
    torch.manual_seed(0)
    cell = nn.LSTMCell(3, 4)
    optimizer = torch.optim.SGD(cell.parameters(), lr=0.1)
    hx, cx = torch.zeros(2, 4), torch.zeros(2, 4)
    for _ in range(STEPS):
        for _ in range(3):
            hx, cx = cell(torch.rand(2, 3), (hx, cx))  # <-- carries
        update(hx.mean(), optimizer)


def state_in_a_queue():
    model, optimizer = setup("GRU")
    recent = deque([torch.zeros(1, 2, 4)], maxlen=2)
    for _ in range(STEPS):
        out, state = model(tokens(), recent[-1])
        update(out.mean(), optimizer)
        recent.append(state)  # <-- carries


def running_loss():
    model, optimizer = setup()
    total = 0.0
    for _ in range(STEPS):
        out, _ = model(tokens())
        total = total + out.mean()  # <-- carries
        update(total, optimizer)


def state_unpacked_before_use():
    torch.manual_seed(0)
    cell = nn.LSTMCell(3, 4)
    optimizer = torch.optim.SGD(cell.parameters(), lr=0.1)
    state = torch.zeros(2, 4), torch.zeros(2, 4)
    for _ in range(STEPS):
        hx, cx = state
        before = hx
        state = cell(torch.rand(2, 3), (before, cx))  # <-- carries
        update(state[0].mean(), optimizer)


def retained_lstm():
    model, optimizer = setup()
    state = None
    for _ in range(STEPS):
        out, state = model(tokens(), state)  # <-- carries
        update(out.mean(), optimizer, retain_graph=True)


def retained_in_an_attribute():
    trainer = Trainer()
    for _ in range(STEPS):
        out, hidden = trainer.model(tokens(), trainer.hidden)
        update(out.mean(), trainer.optimizer, retain_graph=True)
        trainer.hidden = hidden  # <-- carries


KEPT = [
    lstm_in_a_variable, gru_in_a_variable, own_cell_in_a_variable, state_in_another_variable,
    state_in_a_list, state_in_a_dict, states_of_two_streams, state_in_a_dataclass,
    lstm_states_of_two_streams,
    state_in_a_global, state_in_an_attribute, state_stored_by_a_method, step_returns_the_state,
    state_of_a_closure, state_in_a_generator, cells_in_a_loop, state_in_a_queue, running_loss,
    state_unpacked_before_use, retained_lstm, retained_in_an_attribute,
]  # fmt: skip
OWNERS = {state_in_an_attribute: Stateful, state_stored_by_a_method: Trainer}


def line_that_carries(program):
    lines, first = inspect.getsourcelines(OWNERS.get(program, program))
    return next(first + i for i, line in enumerate(lines) if line.endswith("# <-- carries\n"))


def recorded(program):
    raised = None
    with contextlib.suppress(RuntimeError), autogradviz.record() as trace:
        try:
            program()
        except RuntimeError as error:
            raised = error
            raise
    return trace, raised


@pytest.mark.one_in(3, reason="trains each model", in_ci=1)
@pytest.mark.parametrize("program", KEPT)
def test_line_that_carried_the_state_is_named(program):
    trace, raised = recorded(program)
    assert raised is not None
    first = trace.diagnose()[0]
    assert first.slug == "saved-tensor-mutated" if "retained" in program.__name__ else "graph-freed"
    assert (first.culprit.filename, first.culprit.lineno) == (__file__, line_that_carries(program))
    assert first.confidence == "certain"
    assert "detach" in first.fix


@pytest.mark.parametrize(
    ("program", "fix"),
    [
        (lstm_in_a_variable, "state = tuple(part.detach() for part in state)"),
        (gru_in_a_variable, "hidden = hidden.detach()"),
        (state_in_an_attribute, "self.state = tuple(part.detach() for part in self.state)"),
        (state_in_a_dict, "kept['state'] = tuple(part.detach() for part in kept['state'])"),
        (state_in_a_dataclass, "progress.state = progress.state.detach()"),
        (cells_in_a_loop, "hx = hx.detach()"),
        (states_of_two_streams, "kept[number % 2] = kept[number % 2].detach()"),
        (lstm_states_of_two_streams, "# detach the tensor, or each tensor of the tuple, in kept["),
    ],
)
def test_fix_detaches_a_tensor_or_the_parts_of_a_tuple(program, fix):
    trace, _ = recorded(program)
    assert trace.diagnose()[0].fix.startswith(fix)


class RunningNorm(nn.Module):
    """Keeps running statistics in buffers, with their graph."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(4, 4)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4))

    def forward(self, x):
        x = self.scale(x)
        mean, var = x.mean(0), x.var(0)
        self.mean = 0.9 * self.mean + 0.1 * mean
        self.var = 0.9 * self.var + 0.1 * var
        return (x - self.mean) / (self.var + 1e-5).sqrt()


class ReadBefore(RunningNorm):
    """Reads the old statistics too, before it updates them."""

    def forward(self, x):
        old = x / self.var
        return old + super().forward(x)


def running_statistics(kind):
    model = kind()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        update(model(torch.rand(8, 4)).pow(2).sum(), optimizer)


def test_two_buffers_of_one_tensor_each_are_no_tuple():
    trace, raised = recorded(lambda: running_statistics(RunningNorm))
    assert raised is not None
    first = trace.diagnose()[0]
    name = "var" if "self.var" in first.culprit.text else "mean"
    assert first.fix == f"self.{name} = 0.9 * self.{name}.detach() + 0.1 * {name}"


def test_buffer_that_other_lines_read_is_detached_after_backward():
    trace, raised = recorded(lambda: running_statistics(ReadBefore))
    assert raised is not None
    first = next(each for each in trace.diagnose() if "self.var =" in each.culprit.text)
    assert first.fix.startswith("self.var = self.var.detach()  # after backward()")


class KeptHidden:
    """A state that makes a new one of the tensors that it is given."""

    def __init__(self, hidden):
        self.hidden = hidden

    def updated(self, hidden):
        return type(self)(hidden)


class IdleState(KeptHidden):
    """A state whose method to detach it was never written."""

    def detach(self):
        pass  # <-- should detach


def idle_detach():
    model, optimizer = setup("own")
    state = IdleState(torch.zeros(2, 4))
    for _ in range(STEPS):
        loss, hidden = model(tokens(), state.hidden)
        state = state.updated(hidden)
        update(loss.sum(), optimizer)
        state.detach()


def kept_by_a_call():
    model, optimizer = setup("own")
    state = KeptHidden(torch.zeros(2, 4))
    for _ in range(STEPS):
        loss, hidden = model(tokens(), state.hidden)
        state = state.updated(hidden)
        update(loss.sum(), optimizer)


def test_method_that_should_detach_and_ran_no_op_is_named():
    trace, raised = recorded(idle_detach)
    (first, *_) = trace.diagnose()
    assert raised is not None
    assert (first.slug, first.confidence) == ("graph-freed", "likely")
    lines, start = inspect.getsourcelines(IdleState)
    expected = next(n for n, line in enumerate(lines, start) if "should detach" in line)
    assert (first.culprit.filename, first.culprit.lineno) == (__file__, expected)


def test_statement_that_stores_what_a_call_returned_is_not_certain():
    trace, _ = recorded(kept_by_a_call)
    (first, *_) = trace.diagnose()
    assert (first.slug, first.confidence) == ("graph-freed", "likely")
    assert "state.updated(hidden)" in first.culprit.text


# --- it is not --------------------------------------------------------------------------------


def detached_lstm():
    model, optimizer = setup()
    state = None
    for _ in range(STEPS):
        out, state = model(tokens(), state)
        update(out.mean(), optimizer)
        state = tuple(part.detach() for part in state)


def detached_attribute():
    model = Stateful()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        update(model(tokens()).mean(), optimizer)
        model.state = tuple(part.detach() for part in model.state)


def one_backward_over_all_steps():
    model, optimizer = setup("GRU")
    hidden, total = None, 0.0
    for _ in range(STEPS):
        out, hidden = model(tokens(), hidden)
        total = total + out.mean()
    update(total, optimizer)


def retained_without_a_step():
    model, _ = setup("GRU")
    hidden = None
    for _ in range(STEPS):
        out, hidden = model(tokens(), hidden)
        out.mean().backward(retain_graph=True)


@pytest.mark.parametrize(
    "program",
    [detached_lstm, detached_attribute, one_backward_over_all_steps, retained_without_a_step],
)
def test_programs_that_keep_no_used_graph_are_not_accused(program):
    trace, raised = recorded(program)
    assert raised is None
    assert [each for each in trace.diagnose() if each.confidence != "hint"] == []


def two_losses():
    body, first, second = nn.Linear(3, 3), nn.Linear(3, 1), nn.Linear(3, 1)
    for _ in range(STEPS):
        shared = torch.tanh(body(torch.rand(2, 3)))
        first(shared).mean().backward()  # <-- named
        second(shared).mean().backward()


def features_computed_once():
    body, head = nn.Linear(3, 3), nn.Linear(3, 1)
    features = torch.tanh(body(torch.rand(2, 3)))  # <-- named
    for _ in range(STEPS):
        head(features).mean().backward()


def targets_computed_once():
    body = nn.Linear(3, 3)
    targets = torch.tanh(body(torch.rand(2, 3)))  # <-- named
    for _ in range(STEPS):
        out = torch.tanh(body(torch.rand(2, 3)))
        loss = (out - targets).square().mean()
        loss.backward()


def gan(*, retain):
    torch.manual_seed(0)
    generator, critic = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (generator, critic)]
    for _ in range(STEPS):
        fake = torch.tanh(generator(torch.rand(2, 3)))
        loss = critic(fake).mean() - critic(torch.rand(2, 3)).mean()  # <-- named
        update(loss, optimizers[1], retain_graph=retain)
        update(-critic(fake).mean(), optimizers[0])


def gan_without_detach():
    gan(retain=False)


@pytest.mark.parametrize(
    ("program", "owner", "fix"),
    [
        (two_losses, two_losses, "loss.backward(retain_graph=True)"),
        (features_computed_once, features_computed_once, "# compute features again"),
        (targets_computed_once, targets_computed_once, "# compute targets again"),
        (gan_without_detach, gan, "fake.detach()"),
    ],
)
def test_a_graph_that_two_losses_share_is_no_state(program, owner, fix):
    trace, raised = recorded(program)
    assert "second time" in str(raised)
    (finding,) = trace.diagnose()
    lines, first = inspect.getsourcelines(owner)
    named = next(first + i for i, line in enumerate(lines) if line.endswith("# <-- named\n"))
    assert finding.culprit.lineno == named
    assert fix in finding.fix.splitlines()[0]


def test_a_gan_that_retains_the_shared_graph_is_not_accused():
    trace, raised = recorded(lambda: gan(retain=True))
    assert raised is None
    assert [each for each in trace.diagnose() if each.confidence != "hint"] == []


class WithBuffer(nn.Module):
    """Allocates a buffer in its second call, as DistributedDataParallel does."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.calls, self.buffer = 0, None

    def forward(self, x):
        self.calls += 1
        if self.calls == 2:
            self.buffer = torch.empty(64)
        return self.inner(x)


def test_a_buffer_of_each_of_several_modules_is_not_kept_by_steps():
    nets = [WithBuffer() for _ in range(3)]
    with autogradviz.record() as trace:
        for net in nets:
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                net(torch.rand(2, 4)).mean().backward()
                optimizer.step()
    assert [each.slug for each in trace.diagnose()] == []
    assert trace.audit().of("keep") == ()
