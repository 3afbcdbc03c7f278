"""The audit and its answers, on recordings of programs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn

import autogradviz
from tests.planted_bugs.run_program import run, warm_up

PROGRAMS = sorted((Path(__file__).parents[1] / "planted_bugs").glob("*/*.py"))
CORRECT = [path for path in PROGRAMS if path.parent.name in {"programs", "kept_back"}]


@pytest.fixture(scope="module", autouse=True)
def warm():
    warm_up()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 3)
        self.head = nn.Linear(3, 1)

    def forward(self, x, change=lambda h: h):
        h = torch.tanh(self.body(x))
        h = change(h)
        return self.head(h).square().mean()


def train(change=lambda h: h, *, steps=3, after_backward=lambda model: None, kept=None):
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autogradviz.record(model) as trace:
        for _ in range(steps):
            loss = model(torch.rand(4, 3), change)
            if kept is not None:
                kept.append(loss)
            optimizer.zero_grad()
            loss.backward()
            after_backward(model)
            optimizer.step()
    return trace


def listed(trace):
    return [(entry.mechanism, entry.statement) for entry in trace.audit()]


@pytest.mark.one_in(4, reason="trains each program", in_ci=1)
@pytest.mark.parametrize("path", CORRECT, ids=lambda path: path.stem)
def test_correct_programs_have_few_entries_and_no_sure_ones(path):
    answer = run(path, recorded=True)
    assert answer["error"] is None
    assert len(answer["audit"]) <= 8
    assert [slug for slug, confidence, _ in answer["findings"] if confidence != "hint"] == []


def test_a_correct_training_has_no_entry():
    assert listed(train()) == []


@pytest.mark.parametrize("engine", ["python", "native"])
def test_entries_claim_nothing_about_ops_that_were_not_recorded(native, engine):
    used, unused = nn.Linear(4, 4), nn.Linear(4, 4)
    both = nn.ModuleList([used, unused])
    optimizer = torch.optim.SGD(both.parameters(), lr=0.1)
    with autogradviz.record(both, ops=False, engine=engine) as trace:
        for _ in range(3):
            optimizer.zero_grad()
            for _ in range(2):  # the second backward adds to the gradients of the first
                unused(torch.rand(2, 4))
                used(torch.rand(2, 4)).sum().backward()
            optimizer.step()
    (entry,) = trace.audit()
    assert entry.effect == "2 parameters got no gradient: operators were not recorded"
    assert entry.confidence == "hint"
    assert "No operator takes them" not in entry.explanation


def test_values_that_pass_through_numpy_are_a_cut():
    def change(h):
        return torch.from_numpy(h.detach().numpy() * 2)

    trace = train(change)
    assert [mechanism for mechanism, _ in listed(trace)][:1] == ["cut"]
    explanation = trace.why("body.weight")
    assert explanation.question == "no gradient"
    assert "numpy" in explanation.steps[-1].statement


def test_values_that_pass_through_a_list_are_a_cut():
    def change(h):
        double = 2 * h
        return torch.tensor(double.tolist())

    [entry, *_] = train(change).audit()
    assert (entry.mechanism, entry.statement) == ("cut", "return torch.tensor(double.tolist())")
    assert set(entry.parameters) == {"body.weight", "body.bias"}


def test_a_new_parameter_made_from_a_result_is_a_cut():
    def change(h):
        return nn.Parameter(h.clone())

    assert ("cut", "return nn.Parameter(h.clone())") in listed(train(change))


def test_a_hook_that_changes_a_gradient_is_an_entry_with_its_effect():
    def change(h):
        h.register_hook(lambda g: g * 0.5)
        return h

    [entry] = train(change).audit()
    assert (entry.mechanism, entry.statement) == ("change", "h.register_hook(lambda g: g * 0.5)")
    assert "3 of 3 runs" in entry.effect


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


def in_new_thread(function):
    """Return the result of a function; the first node that it creates has the number 0."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(function).result()


def test_a_formula_is_an_entry_whatever_another_thread_computes():
    def step():
        model = nn.Linear(3, 1, bias=False)
        with autogradviz.record(model) as trace:
            unused = model.weight * 2  # another node of the number 0
            in_new_thread(lambda: Tripled.apply(model.weight)).sum().backward()
        assert unused.requires_grad
        return trace

    trace = in_new_thread(step)
    assert not trace.diagnose()  # that nothing checked it is no finding
    [entry] = trace.audit().of("change")
    assert entry.location.text == "return gradient * 3"
    assert "hand-written backward of Tripled" in entry.effect


def test_a_gradient_that_is_cleared_before_the_step_is_an_entry():
    trace = train(after_backward=lambda model: model.zero_grad())
    assert "drop" in [mechanism for mechanism, _ in listed(trace)]


def test_a_list_that_keeps_results_is_an_entry():
    kept = []
    trace = train(kept=kept, steps=4)
    assert ("keep", "kept.append(loss)") in listed(trace)
    assert len(kept) == 4


@pytest.mark.parametrize("kept_as", ["with its graph", "as a number", "as one"])
def test_results_of_evaluations_before_the_recorded_steps_are_found(kept_as):
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    results = {}
    with autogradviz.record(model, keep_steps=3) as trace:
        for epoch in range(5):
            for _ in range(4):
                optimizer.zero_grad()
                model(torch.rand(4, 3)).backward()
                optimizer.step()
            loss = model(torch.rand(5, 3)) + 1
            if kept_as == "with its graph":
                results[epoch] = loss / 2
            elif kept_as == "as one":
                results["last"] = loss / 2
            else:
                results[epoch] = loss.item()
    found = [finding for finding in trace.diagnose() if finding.slug == "tensors-kept"]
    assert len(found) == (kept_as == "with its graph")
    if found:
        assert found[0].culprit.text == "results[epoch] = loss / 2"
        assert found[0].fix.startswith("results[epoch] = (loss / 2).detach()")
        assert "at least 2 earlier runs" in found[0].title


@pytest.mark.parametrize("engine", ["python", "native"])
@pytest.mark.parametrize("keep_steps", [None, 3])
def test_a_list_of_a_function_that_has_returned_is_found(native, engine, keep_steps):
    def main():
        torch.manual_seed(0)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        kept = []
        for _ in range(6):
            loss = model(torch.rand(4, 3))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if keeps:
                kept.append((4, loss))

    options = {} if keep_steps is None else {"keep_steps": keep_steps}
    for keeps in (False, True):
        with autogradviz.record(engine=engine, **options) as trace:
            main()
        found = trace.diagnose()
        assert [finding.slug for finding in found] == ["tensors-kept"] * keeps
    assert found[0].culprit.text == "kept.append((4, loss))"
    assert found[0].fix.startswith("kept.append((4, loss.detach()))")
    assert "alive at the end of the last step" in found[0].title
    answer = trace.why("memory")
    assert "alive when the last step ended, and freed before the recording ended" in str(answer)
    assert "no step of an optimizer" not in str(answer)


def test_an_operand_of_another_dtype_is_named_with_the_line_that_made_it():
    model = Net()
    with pytest.raises(RuntimeError, match="dtype"), autogradviz.record(model) as trace:
        wide = model.body(torch.rand(4, 3)).double()
        model.head(wide)
    assert trace.diagnose()[0].culprit.text == "wide = model.body(torch.rand(4, 3)).double()"
    assert trace.why("error").steps[-1].statement == trace.diagnose()[0].culprit.text


def test_audit_is_the_same_after_saving_and_loading(tmp_path):
    trace = train(lambda h: h.detach())
    trace.save(tmp_path / "step.agv")
    loaded = autogradviz.load(tmp_path / "step.agv")
    assert loaded.audit() == trace.audit()
    assert loaded.why("body.weight") == trace.why("body.weight")


def test_an_entry_with_an_effect_is_a_hint_and_one_without_is_none():
    (finding,) = train(lambda h: h * torch.sigmoid(h).detach()).diagnose()
    assert (finding.slug, finding.confidence) == ("gradient-cut", "hint")
    assert "detach" in finding.culprit.text
    assert train(lambda h: h * h.argmax()).diagnose() == []


def test_a_detach_of_a_value_that_the_loss_reads_with_its_gradient_is_in_the_audit_only():
    def advantage(h):
        return (torch.rand(4, 3) - h.detach()) * h

    trace = train(advantage)
    assert trace.diagnose() == []
    assert [mechanism for mechanism, _ in listed(trace)] == ["cut"]
    (finding,) = train(lambda h: (torch.rand(4, 3) - h.exp().detach()) * h).diagnose()
    assert finding.slug == "gradient-cut"


def test_a_detached_value_that_later_steps_read_is_in_the_audit_only():
    class Averaged(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, h, detached):
            added = h.exp().mean(0)
            self.mean = 0.9 * self.mean + 0.1 * (added.detach() if detached else added)
            return h - self.mean

    averaged = Averaged()
    trace = train(lambda h: averaged(h, detached=True))
    assert trace.diagnose() == []
    assert [mechanism for mechanism, _ in listed(trace)] == ["cut"]
    with pytest.raises(RuntimeError, match="second time"):
        train(lambda h: averaged(h, detached=False))


def test_graphs_that_no_backward_reached_and_that_are_gone_are_a_notice():
    model, kept = Net(), []
    notice = "no backward reached the graphs of"
    with autogradviz.record(model) as trace:
        for _ in range(4):
            kept.append(model(torch.rand(4, 3)))
            model(torch.rand(4, 3)).backward()
        kept.clear()
    (found,) = [each for each in trace.analysis.notices if notice in each.message]
    assert "of 28 of 56 ops" in found.message
    assert notice in repr(trace)
    assert not any(notice in each.message for each in train().analysis.notices)


def test_why_memory_ends_at_the_line_that_keeps_it():
    explanation = train(steps=4, kept=[]).why("memory")
    assert explanation.question == "still alive"
    assert train().why("loss").question == "its value"


def test_a_gradient_passed_straight_through_gives_no_finding():
    trace = train(lambda h: h + ((h * 4).round() / 4 - h).detach())
    assert trace.diagnose() == []
    assert [mechanism for mechanism, _ in listed(trace)] == ["cut"]
    (finding,) = train(lambda h: h + (2 * h).detach()).diagnose()
    assert finding.slug == "gradient-cut"


def test_a_bias_that_a_penalty_does_not_depend_on_is_not_missing():
    model = Net()
    x = torch.rand(4, 3, requires_grad=True)
    with autogradviz.record(model) as trace:
        score = model.head(torch.tanh(model.body(x))).sum()
        (slope,) = torch.autograd.grad(score, x, create_graph=True)
        slope.square().sum().backward()
    assert model.head.bias.grad is None
    assert trace.diagnose() == []


class Scaled(nn.Module):
    """Reads a tensor that is no parameter, and parameters whose memory was replaced."""

    def __init__(self, *, declared):
        super().__init__()
        self.inner = nn.Linear(3, 3)
        if declared:
            self.scale = nn.Parameter(torch.rand(3), requires_grad=False)
        else:
            self.scale = torch.rand(3)


@pytest.mark.parametrize("declared", [True, False])
def test_memory_made_for_a_parameter_is_not_called_unregistered(declared):
    with autogradviz.record() as trace:
        module = Scaled(declared=declared)
        memory = module.inner.weight.detach(), module.scale.detach()
        module.inner.weight.data = torch.rand(3, 3)
        module.scale.data = torch.rand(3)
        weight = torch.rand(3, requires_grad=True)
        (weight * memory[1] @ memory[0]).sum().backward()
    slugs = [finding.slug for finding in trace.diagnose()]
    assert slugs == ([] if declared else ["tensor-not-registered"])


def test_a_tensor_of_an_object_that_is_no_module_is_not_called_unregistered():
    class Schedule:
        def __init__(self):
            self.keep = torch.rand(3)

    weight = torch.rand(3, requires_grad=True)
    with autogradviz.record() as trace:
        schedule = Schedule()
        (weight * schedule.keep).sum().backward()
    assert trace.diagnose() == []
    assert [entry.mechanism for entry in trace.audit()] == []


class Gated(nn.Module):
    """Scales its input by what a decorated method computes."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(3, 3)
        self.body = nn.Linear(3, 3)

    @torch.no_grad()
    def scale(self, x):
        return self.gate(x).sigmoid()

    def forward(self, x):
        return self.body(x) * self.scale(x)


def test_a_line_that_cuts_in_several_modules_counts_the_parameters_of_all():
    model = nn.Sequential(Gated(), Gated(), Gated())
    with autogradviz.record(model) as trace:
        for _ in range(2):
            model(torch.rand(4, 3)).sum().backward()
    (entry,) = [entry for entry in trace.audit() if entry.mechanism == "cut"]
    (finding,) = trace.diagnose()
    assert finding.title.startswith("6 parameters got no gradient")
    assert entry.effect.startswith("6 parameters ")
    assert len(entry.parameters) == 6
    assert entry.fix == finding.fix == (
        "# delete the decorator @torch.no_grad(), if the gradients are wanted here"
    )  # fmt: skip


def test_a_failed_backward_has_no_advice_on_operands():
    with pytest.raises(RuntimeError, match="a second time"), autogradviz.record() as trace:
        loss = torch.rand(3, requires_grad=True).square().sum()
        loss.backward()
        loss.backward()
    assert not any("give the operands" in entry.fix for entry in trace.audit())


def raised_in(tmp_path, body):
    """Return the statements and effects of a program that raises, without the exception's own."""
    path = tmp_path / "raises.py"
    path.write_text(f"import torch\n\n\ndef main():\n{body}", encoding="utf-8")
    answer = run(path, recorded=True)
    assert answer["error"] is not None
    lines = path.read_text(encoding="utf-8").splitlines()
    return [
        (lines[line - 1].strip(), effect)
        for mechanism, line, effect in answer["audit"]
        if mechanism == "refuse" and line and "Error" not in effect
    ]


def test_an_exception_names_the_variables_that_its_statement_reads(tmp_path):
    entries = raised_in(
        tmp_path,
        "    model = torch.nn.Linear(3, 3)\n"
        "    a, b = torch.rand(3), torch.rand(4)\n"
        "    scale = a.sum()\n"
        "    model(a).double().sum().backward(scale.numpy(), b)\n",
    )
    assert [statement for statement, _ in entries] == [
        "scale = a.sum()", "a, b = torch.rand(3), torch.rand(4)",
    ]  # fmt: skip
    assert "computes scale (float32 scalar)" in entries[0][1]
    assert "computes a, b, which" in entries[1][1]


def test_variables_are_not_listed_if_the_cause_of_an_exception_is_known(tmp_path):
    entries = raised_in(
        tmp_path,
        "    a = torch.rand(3, requires_grad=True)\n"
        "    b = a.exp()\n"
        "    loss = b.sum()\n"
        "    b.add_(1)\n"
        "    loss.backward()\n",
    )
    assert entries == []


def test_the_node_of_a_parameter_says_whose_it_is():
    net = Net()
    with autogradviz.record(net) as trace:
        net(torch.ones(2, 3)).sum().backward()
    texts = [str(trace.why(node_id)) for node_id in trace.analysis.graph.nodes]
    assert any(" of head.bias ran 1 time" in text for text in texts)


class RunAgain(torch.autograd.Function):
    """A checkpoint written by hand, which returns the gradient of the leaf that it made."""

    @staticmethod
    def forward(ctx, function, x):
        ctx.function = function
        ctx.save_for_backward(x)
        with torch.no_grad():
            return function(x)

    @staticmethod
    def backward(ctx, grad):
        leaf = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            again = ctx.function(leaf)
        torch.autograd.backward([again], [grad])
        return None, leaf.grad


@pytest.mark.parametrize("wanted", ["backward", "grad"])
def test_leaves_of_a_hand_written_checkpoint_cut_nothing(wanted):
    before, block = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    with autogradviz.record(nn.ModuleList([before, block])) as trace:
        loss = RunAgain.apply(block, before(torch.rand(3, 4))).square().sum()
        if wanted == "backward":
            loss.backward()
        else:
            torch.autograd.grad(loss, list(before.parameters()))
    assert before.weight.grad is not None or wanted == "grad"
    assert "gradient-cut" not in [finding.slug for finding in trace.diagnose()]
    assert "cut" not in [entry.mechanism for entry in trace.audit()]
