"""A step that is planned, against the same step when it runs."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections import Counter
from functools import partial
from pathlib import Path

import planned_steps
import pytest
import torch
from allocated_peak import allocated_peak, allocated_peaks
from interpreters import run_new
from storage_count import live_bytes
from torch import nn
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.analysis.memory_by_kind import sums_in_place
from autogradviz.analysis.patch_that_checkpoints_modules import checkpointed
from autogradviz.cli.entry_point import main

pytestmark = pytest.mark.one_in(2, reason="plans and runs steps", in_ci=1)

HERE = Path(__file__).parent


def planned(step):
    """Return the plan of a step; PyTorch's own LSTM kernel has a buffer that is not known."""
    with torch.backends.mkldnn.flags(enabled=step is not planned_steps.lstm):
        return autogradviz.plan(step)


def saves(trace):
    return Counter(
        (each.slot, each.tensor.shape, each.tensor.dtype, each.tensor.device, each.version,
         each.packed_by, str(each.location))
        for each in trace.saved_tensors()
    )  # fmt: skip


@pytest.mark.one_in(6, reason="plans and runs each step", in_ci=6)
@pytest.mark.parametrize("step", planned_steps.STEPS, ids=lambda step: step.__name__)
def test_planned_saves_are_those_of_the_step(step):
    plan = planned(step)
    with (
        torch.backends.mkldnn.flags(enabled=step is not planned_steps.lstm),
        autogradviz.record(engine="python") as real,
    ):
        step()
    assert plan.saved_bytes() == real.saved_bytes()
    assert plan.device_bytes() == real.device_bytes()
    assert saves(plan) == saves(real)
    assert [node.name for node in plan.analysis.graph.nodes.values()] == [
        node.name for node in real.analysis.graph.nodes.values()
    ]
    assert len(plan.checkpoints()) == len(real.checkpoints())


@pytest.mark.one_in(12, reason="plans and runs each step", in_ci=6)
@pytest.mark.parametrize("step", planned_steps.STEPS, ids=lambda step: step.__name__)
def test_planned_peak_is_that_of_the_allocator(step):
    plan = planned(step).memory_by_kind().peak.total
    with torch.backends.mkldnn.flags(enabled=step is not planned_steps.lstm):
        step()  # what is allocated once in a process
        measured = allocated_peak(step)
    assert measured > 1_000_000
    assert plan == pytest.approx(measured, rel=0.03)


def test_buffer_of_a_kernel_that_is_not_known_is_noted():
    trace = autogradviz.plan(planned_steps.lstm)
    assert "buffers of aten.mkldnn_rnn_layer.default" in str(trace)


@pytest.mark.parametrize("name", ["cnn", "mlp_sgd"])
def test_plan_and_fit_say_that_convolutions_allocate_buffers_that_are_not_known(name):
    plan = autogradviz.plan(getattr(planned_steps, name))
    assert ("convolutions allocate buffers" in str(plan)) == (name == "cnn")
    assert ("convolutions allocate buffers" in str(plan.fit(1))) == (name == "cnn")


@pytest.mark.usefixtures("native")
@pytest.mark.one_in(30, reason="records each step under a second mode", in_ci=6)
@pytest.mark.parametrize("engine", ["python", "native"])
@pytest.mark.parametrize("step", planned_steps.STEPS, ids=lambda step: step.__name__)
def test_live_bytes_after_each_operator_are_those_of_weak_references(step, engine):
    ours, counted = live_bytes(step, engine)
    assert len(ours) > 30
    assert ours == counted


@pytest.mark.usefixtures("native")
@pytest.mark.one_in(24, reason="records and profiles each step", in_ci=6)
@pytest.mark.parametrize("step", planned_steps.STEPS, ids=lambda step: step.__name__)
def test_both_engines_record_the_peak_of_the_allocator_with_its_kinds(step):
    step()  # what is allocated once in a process
    peaks = []
    for engine in ("python", "native"):
        gc.collect()
        with autogradviz.record(memory=True, engine=engine) as trace:
            kept = step()
        del kept
        peaks.append(trace.memory_by_kind().peak)
    python, native = peaks
    assert python.nbytes == native.nbytes
    numbers = 16  # those of Python that become tensors inside of an operator
    assert native.total == pytest.approx(allocated_peaks(step).tensors, abs=numbers)


@pytest.mark.usefixtures("native")
@pytest.mark.one_in(6, reason="records each step twice", in_ci=6)
@pytest.mark.parametrize("step", planned_steps.STEPS, ids=lambda step: step.__name__)
def test_sums_that_take_the_place_of_an_operand_are_those_that_the_native_engine_sees(step):
    with autogradviz.record(engine="native") as real:
        step()
    with autogradviz.record(memory=True) as trace:
        step()
    taken = {taken.storage_id for taken in sums_in_place(trace.analysis)}
    sums = list(zip(sums_of(real), sums_of(trace), strict=True))
    assert [op.name == "add_" for op, _ in sums] == [
        op.name == "add_" or op.outputs[0].storage_id in taken for _, op in sums
    ]


def sums_of(trace):
    """Return the sums of gradients."""
    return [
        op
        for op in trace.analysis.ops
        if op.name in {"add", "add_"} and op.phase == "backward" and op.backward_node_id is not None
    ]


def test_bytes_of_each_kind_are_those_of_the_tensors():
    gc.collect()
    with autogradviz.record(memory=True) as before:  # models of other tests that are still alive
        torch.ones(1)
    others = Counter(before.memory_by_kind().rows[-1].nbytes)
    with autogradviz.record(memory=True) as trace:
        model, optimizer = planned_steps.mlp_adamw()
    at_end = trace.memory_by_kind().rows[-1].nbytes
    assert set(at_end) - {"other"} - set(others) <= {
        "parameters", "gradients", "optimizer state", "forward", "backward"
    }  # fmt: skip
    at_end = {kind: nbytes - others[kind] for kind, nbytes in at_end.items()}
    parameters = sum(p.nbytes for p in model.parameters())
    state = [each for own in optimizer.state.values() for each in own.values()]
    assert at_end["parameters"] == parameters
    assert at_end["gradients"] == parameters
    assert at_end["optimizer state"] == sum(each.nbytes for each in state)


def test_sums_by_module_and_line_are_the_peak():
    memory = autogradviz.plan(planned_steps.gpt_checkpointed).memory_by_kind()
    for sums in (memory.by_module(), memory.by_line()):
        kinds = Counter()
        for own in sums.values():
            kinds.update(own)
        assert dict(kinds) == memory.peak.nbytes
    assert any("planned_steps.py" in line for line in memory.by_line())
    assert f"{memory.peak.total / 1e6:.0f} MB at the peak" in repr(memory)


@pytest.mark.parametrize("itself", [False, True])
def test_memory_of_a_backward_is_that_of_a_line_of_the_step(itself):
    def step():
        model = torch.nn.Linear(8, 8)
        loss = model(torch.rand(2, 8)).sum()
        if itself:
            loss.backward()
        return loss, model

    lines = autogradviz.plan(step).memory_by_kind().by_line()
    assert not [line for line in lines if "site-packages" in line]
    [gradients] = [line for line, kinds in lines.items() if "gradients" in kinds]
    text = Path(__file__).read_text(encoding="utf-8").splitlines()
    shown = text[int(gradients.rpartition(":")[2]) - 1].strip()
    assert shown == ("loss.backward()" if itself else "loss = model(torch.rand(2, 8)).sum()")


def test_rows_end_with_what_is_alive_on_each_device():
    trace = autogradviz.plan(planned_steps.mlp_sgd)
    assert trace.memory_by_kind("cpu").rows == trace.memory_by_kind().rows
    assert trace.memory_by_kind("cuda:0").rows == ()


def test_recording_memory_changes_nothing():
    def gradients():
        torch.manual_seed(0)
        model, _ = planned_steps.gpt_checkpointed()
        return [p.grad for p in model.parameters()]

    plain = gradients()
    with autogradviz.record(memory=True) as trace:
        recorded = gradients()
        storage = weakref.ref(torch.rand(3).untyped_storage())
        assert storage() is None
    assert all(torch.equal(a, b) for a, b in zip(plain, recorded, strict=True))
    alive = [weakref.ref(gradient.untyped_storage()) for gradient in recorded]
    del recorded
    gc.collect()
    assert [reference() for reference in alive] == [None] * len(alive)
    assert trace.memory_by_kind().peak.total


def test_refused_options():
    for options, message in (({"ops": False}, "ops"), ({"keep_steps": 3}, "all steps")):
        with pytest.raises(ValueError, match=message):
            autogradviz.record(memory=True, **options)


SCRIPT = """
import torch
model = torch.nn.Linear(100_000, 100_000)
def step():
    loss = model(torch.rand(4, 100_000)).sum()
    loss.backward()
    return loss
def log():
    print(step().item())
"""


def test_command_plans_script_and_step(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("train.py").write_text(SCRIPT)
    assert main(["plan", "train.py:step", "-o", "plan.agv"]) == 0
    out = capsys.readouterr().out
    assert "trace.html(" not in out  # there is no trace in a shell
    assert "40 GB  parameters" in out
    assert "40 GB  gradients" in out
    assert autogradviz.load("plan.agv").memory_by_kind().peak.total > 80e9
    assert main(["plan", "train.py:log"]) == 2
    assert "train.py:9, in log" in capsys.readouterr().err
    assert main(["plan", "train.py:log", "--numbers", "0.5"]) == 0
    assert "0.5" in capsys.readouterr().out
    assert main(["plan", "train.py:step", "--budget", "100 GB"]) == 0
    assert "it fits" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="1"):
        main(["plan", "train.py:step", "--budget", "10 GB"])
    capsys.readouterr()
    with pytest.raises(SystemExit, match="1"):
        main(["plan", "train.py:step", "--budget", "100 GB", "--measured-peak", "105 GB"])
    assert "the step needs 105 GB, the budget is 100 GB" in capsys.readouterr().out
    assert main(["plan", "train.py:step", "--measured-peak", "105 GB"]) == 2
    assert "--budget, which is missing" in capsys.readouterr().err


def test_unaccounted_memory_is_unknown_on_the_cpu_and_in_a_plan():
    with autogradviz.record(memory=True) as trace:
        planned_steps.mlp_sgd()
    for memory in (
        trace.memory_by_kind(),
        autogradviz.plan(planned_steps.mlp_sgd).memory_by_kind(),
    ):
        assert memory.not_counted == ("cpu",)
        assert "not known, unaccounted: no counter on cpu" in repr(memory)
        assert all("unaccounted" not in row.nbytes for row in memory.rows)


def test_memory_needs_the_option():
    with autogradviz.record() as trace:
        planned_steps.mlp_sgd()
    with pytest.raises(ValueError, match=r"record\(memory=True\)"):
        trace.memory_by_kind()


@pytest.mark.slow(reason="plans a model of 21 large blocks in another process")
def test_model_of_70_billion_parameters_needs_no_memory():
    program = """
import resource
import planned_steps
from functools import partial
from torch.optim import AdamW
from torch.utils.checkpoint import checkpoint
import torch
import autogradviz

def step():
    run = partial(checkpoint, use_reentrant=False)
    model = planned_steps.GPT(32_000, 16_384, 128, 21, run=run, tied=False)
    optimizer = AdamW(model.parameters(), foreach=True)
    model(torch.randint(0, 32_000, (1, 4096))).backward()
    optimizer.step()
    return model, optimizer

autogradviz.plan(planned_steps.gpt_checkpointed)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
trace = autogradviz.plan(step)
memory = trace.memory_by_kind()
grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
print(memory.peak.nbytes["parameters"], memory.rows[-1].nbytes["optimizer state"], grown)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=HERE, capture_output=True, text=True, check=True
    )
    parameters, state, grown = map(int, run.stdout.split())
    assert parameters > 4 * 68e9
    assert 2 * parameters < state < 2.001 * parameters
    assert grown < 1e9


@pytest.fixture
def trained():
    """A model and its optimizer after a step."""
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer, torch.rand(4, 8))
    return model, optimizer


def train(model, optimizer, x):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def everything(model, optimizer):
    tensors = [*model.parameters(), *model.buffers()]
    tensors += [p.grad for p in model.parameters()]
    tensors += [each for own in optimizer.state.values() for each in own.values()]
    return [(id(each), each._version, each.clone()) for each in tensors]


def test_model_and_optimizer_that_exist_are_as_before(trained):
    model, optimizer = trained
    x = torch.rand(4, 8)
    before, state = everything(model, optimizer), torch.get_rng_state()
    plan = autogradviz.plan(lambda x: train(model, optimizer, x), model, batch=[x])
    after = everything(model, optimizer)
    assert [each[:2] for each in after] == [each[:2] for each in before]
    assert all(torch.equal(a[2], b[2]) for a, b in zip(after, before, strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    with autogradviz.record(model) as real:
        train(model, optimizer, x)
    assert plan.saved_bytes() == real.saved_bytes()
    assert plan.memory_by_kind().peak.nbytes["parameters"] == sum(
        each.nbytes for each in (*model.parameters(), *model.buffers())
    )


def test_model_is_as_before_if_the_step_fails(trained):
    model, optimizer = trained
    before = everything(model, optimizer)
    with pytest.raises(ZeroDivisionError):
        autogradviz.plan(lambda: 1 / 0, model)
    assert [each[:2] for each in everything(model, optimizer)] == [each[:2] for each in before]
    assert type(torch.rand(2)) is torch.Tensor


def test_model_that_is_not_passed_is_refused(trained):
    model, optimizer = trained
    before = [id(p) for p in model.parameters()]
    values = [p.clone() for p in model.parameters()]
    line = train.__code__.co_firstlineno + 2
    with pytest.raises(ValueError, match=rf"test_plan.py:{line}.*plan\(step, model\)"):
        autogradviz.plan(lambda: train(model, optimizer, torch.rand(4, 8)))
    assert [id(p) for p in model.parameters()] == before
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), values, strict=True))
    assert all(p.grad is None for p in model.parameters())  # zero_grad ran
    train(model, optimizer, torch.rand(4, 8))  # the training goes on
    assert {type(p.grad) for p in model.parameters()} == {torch.Tensor}


def test_tensor_that_exists_may_be_used():
    x = torch.rand(4, 8)
    plan = autogradviz.plan(lambda: nn.Linear(8, 2)(x).sum())
    assert plan.saved_bytes().saved == x.nbytes


def test_tied_weights_stay_tied():
    model = planned_steps.GPT(64, 16, 2, 1)
    words = torch.randint(0, 64, (2, 8))
    plan = autogradviz.plan(model, model, batch=[words])
    expected = sum(each.nbytes for each in model.parameters())
    assert plan.memory_by_kind().peak.nbytes["parameters"] == expected
    assert plan.memory_by_kind().rows[-1].nbytes["gradients"] == expected


@pytest.mark.parametrize("convert", [nn.Module.double, lambda each: each.to("cpu", torch.float32)])
def test_step_converts_its_model(convert):
    def step(runs_before):
        model = nn.Linear(100, 200)
        weight = model.weight
        if runs_before:
            model(torch.rand(8, 100)).sum().backward()
        convert(model)
        assert model.weight is weight
        model(torch.rand(8, 100, dtype=weight.dtype)).sum().backward()
        return model

    for runs_before in (False, True):
        trace = autogradviz.plan(partial(step, runs_before))
        model = step(runs_before)
        at_end = trace.memory_by_kind().rows[-1].nbytes
        assert at_end["parameters"] == model.weight.nbytes + model.bias.nbytes
        assert at_end["gradients"] == model.weight.nbytes + model.bias.nbytes


def test_model_that_exists_is_converted_and_as_before():
    model = nn.Linear(100, 200)
    before = model.weight
    plan = autogradviz.plan(lambda: model.double()(torch.rand(8, 100).double()).sum(), model)
    assert plan.memory_by_kind().peak.nbytes["gradients"] == 8 * (100 * 200 + 200)
    assert model.weight is before
    assert before.dtype is torch.float32


def test_model_on_the_meta_device():
    with torch.device("meta"):
        model = nn.Linear(100_000, 100_000, bias=False)
        x = torch.rand(2, 100_000)
    plan = autogradviz.plan(lambda x: model(x).sum(), model, batch=[x])
    assert plan.memory_by_kind().rows[-1].nbytes["gradients"] == 4 * 100_000**2
    assert set(plan.device_bytes()) == {"cpu"}
    assert model.weight.is_meta


def reads_item(x):
    return x.sum() * x.max().item()


def asks_condition(x):
    return x.sum() if x.sum() > 0 else x.mean()


def selects(x):
    return x[x > 0].sum()


def reads_numpy(x):
    return x.sum() * float(x.detach().numpy()[0])


def prints(x):
    return f"{x.sum():.2f}"


@pytest.mark.parametrize(
    ("step", "what"),
    [
        (reads_item, "reads a number"),
        (asks_condition, "reads a number"),
        (selects, "whose result depends on values"),
        (reads_numpy, "reads those of a tensor"),
        (prints, "reads those of a tensor"),
    ],
)
def test_step_that_needs_values_names_the_line(step, what):
    x = torch.rand(1_000_000, requires_grad=True)
    line = step.__code__.co_firstlineno + 1
    with pytest.raises(autogradviz.StepNeedsValuesError, match=what) as raised:
        autogradviz.plan(step, batch=[x])
    assert f"test_plan.py:{line}" in str(raised.value)
    assert raised.value.slug == "step-needs-values"


def test_numbers_are_what_the_step_reads_where_values_are_not_known():
    def step(x):
        return reads_item(x) + asks_condition(x)

    x = torch.rand(1_000_000, requires_grad=True)
    trace = autogradviz.plan(step, batch=[x], numbers=1.0)
    assert "SumBackward0" in {node.name for node in trace.analysis.graph.nodes.values()}
    trace = autogradviz.plan(step, batch=[x], numbers=0.0)
    assert "MeanBackward0" in {node.name for node in trace.analysis.graph.nodes.values()}


def constants():
    rates = [rate.item() for rate in torch.linspace(0, 0.1, 5)]
    width = int(sum(rates) * 40)
    kept = torch.empty(6)
    kept.fill_(2.0)
    kept[1:3] *= 3
    return nn.Linear(width, int(kept.sum()))(torch.rand(2, width)).sum()


def labels_and_masks():
    labels = torch.randint(3, 30, (8,))
    if labels.max() >= 30 or not (labels > 2).all():
        raise ValueError
    x = torch.rand(8, 50_000, requires_grad=True)
    chosen = x[labels > 2]
    assert chosen.shape == (8, 50_000)
    rows = torch.tensor([0, 1, 1, 5])
    chosen = chosen[torch.unique(rows)].masked_select(torch.arange(50_000) < 7)
    assert chosen.shape == (21,)
    return x, chosen.sum() * x[:, torch.bincount(rows).nonzero().flatten()].mean()


COUNT = torch.zeros((), dtype=torch.int64)


def step_that_is_counted():
    count = COUNT.add_(3)
    return torch.rand(int(count), 100_000, requires_grad=True).sum()


@pytest.mark.parametrize("step", [constants, labels_and_masks, step_that_is_counted])
def test_values_of_small_tensors_are_known(step):
    state = torch.get_rng_state()
    plan = autogradviz.plan(step)
    assert torch.equal(torch.get_rng_state(), state)
    with autogradviz.record(engine="python") as real:
        result = step()
        (result[-1] if isinstance(result, tuple) else result).backward()
    assert plan.saved_bytes() == real.saved_bytes()
    assert saves(plan) == saves(real)


def test_values_of_arguments_and_buffers_are_known_and_as_before():
    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(300, 400))
            self.register_buffer("calls", torch.tensor(2))

        def forward(self, x, lengths):
            self.calls += 1
            lengths.clamp_(max=5)
            return (x[: self.calls, : lengths.max()] @ self.weight[: lengths.max()]).sum()

    model, lengths = Counted(), torch.tensor([1, 7])
    plan = autogradviz.plan(model, model, batch=[torch.rand(9, 300), lengths])
    assert "MmBackward0" in {node.name for node in plan.analysis.graph.nodes.values()}
    assert {each.tensor.shape for each in plan.saved_tensors()} == {(3, 5)}
    assert model.calls == 2
    assert lengths.tolist() == [1, 7]


def view_that_becomes_a_leaf():
    sound = torch.rand(2, 50)[:, None]
    sound.requires_grad = True
    return nn.Conv1d(1, 3, 2)(sound).sum()


def test_view_that_becomes_a_leaf():
    plan = autogradviz.plan(view_that_becomes_a_leaf)
    with autogradviz.record(engine="python") as real:
        view_that_becomes_a_leaf().backward()
    assert plan.saved_bytes() == real.saved_bytes()


def writes_what_is_not_known(x):
    counts = torch.zeros(4, dtype=torch.int64)
    counts += x[:4].long()
    return x.sum() * counts.sum().item()


def writes_a_view_of_what_is_not_known(x):
    counts = torch.zeros(4)
    counts[1:3].copy_(x[:2])
    return x.sum() * counts[0].item()


def reads_uninitialized_memory(x):
    return x.sum() * torch.empty(3)[0].item()


def reads_memory_that_is_initialized_in_part(x):
    memory = torch.empty(3)
    memory[0] = 1
    return x.sum() * memory.sum().item()


@pytest.mark.parametrize(
    "step",
    [
        writes_what_is_not_known, writes_a_view_of_what_is_not_known, reads_uninitialized_memory,
        reads_memory_that_is_initialized_in_part,
    ],
)  # fmt: skip
def test_value_is_never_guessed(step):
    x = torch.rand(1_000_000, requires_grad=True)
    with pytest.raises(autogradviz.StepNeedsValuesError, match="item"):
        autogradviz.plan(step, batch=[x])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_grouped_products_have_shapes_for_all_dtypes(dtype):
    def step():
        torch.manual_seed(0)
        experts = nn.Parameter(torch.rand(4, 64, 48, dtype=dtype))
        tokens = torch.rand(32, 64, dtype=dtype, requires_grad=True)
        ends = torch.tensor([8, 8, 20, 32], dtype=torch.int32)
        out = nn.functional.grouped_mm(tokens, experts, offs=ends)
        (out * out).sum().backward()
        return tokens, experts

    plan = autogradviz.plan(step)
    with autogradviz.record(engine="python", memory=True) as real:
        step()
    assert saves(plan) == saves(real)
    assert plan.memory_by_kind().rows[-1].total == 2 * sum(each.nbytes for each in step())


class Blocks(nn.Module):
    """Blocks of a GPT."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(64, 128)
        self.blocks = nn.ModuleList([planned_steps.Block(128, 4) for _ in range(6)])

    def forward(self, words):
        x = self.embedding(words)
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


def plan_of_blocks(checkpointed=()):
    """Return the plan of a step in which some modules are checkpointed."""

    def step():
        model = Blocks()
        for name in checkpointed:
            module = model.get_submodule(name.removeprefix("Blocks."))
            module.forward = partial(checkpoint, module.forward, use_reentrant=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.randint(0, 64, (8, 64))).backward()
        optimizer.step()
        return model

    return autogradviz.plan(step)


@pytest.mark.one_in(4, reason="plans and runs each share", in_ci=1)
@pytest.mark.parametrize("share", [0.95, 0.9, 0.8, 0.7, 0.6, 0.5])
def test_predicted_peak_is_that_of_the_step_with_checkpoints(share):
    plan = plan_of_blocks()
    peak = plan.memory_by_kind().peak.total
    fit = plan.fit(int(share * peak))
    assert fit.fits
    assert fit.checkpoint
    assert fit.peak == peak
    changed = plan_of_blocks(fit.checkpoint).memory_by_kind().peak.total
    assert changed == pytest.approx(fit.predicted_peak, rel=0.03)
    fewer = plan.fit(peak)
    assert fewer.fits
    assert fewer.checkpoint == ()


def test_line_of_the_modules_is_shown():
    plan = plan_of_blocks()
    fit = plan.fit(0.4 * plan.memory_by_kind().peak.total)
    assert fit.checkpoint == tuple(f"Blocks.blocks.{number}" for number in range(6))
    assert fit.before == "x = block(x)"
    assert fit.after == "x = checkpoint(block, x, use_reentrant=False)"
    assert f"test_plan.py:{Blocks.forward.__code__.co_firstlineno + 3}" in str(fit)


@pytest.mark.parametrize("share", [0.9, 0.6])
def test_code_of_a_fit_meets_the_budget_and_changes_no_gradient(share):
    def step(code=""):
        torch.manual_seed(0)
        model = Blocks()
        exec(code, {"model": model})
        model(torch.randint(0, 64, (8, 64))).backward()
        return model

    fit = autogradviz.plan(step).fit(share * allocated_peak(step))
    assert fit.fits
    assert fit.root == "Blocks"
    assert allocated_peak(partial(step, fit.code)) <= fit.budget
    plain, changed = step(), step(fit.code)
    for before, after in zip(plain.parameters(), changed.parameters(), strict=True):
        assert torch.equal(before.grad, after.grad)


def test_code_has_names_below_the_model():
    model, words = Blocks(), torch.randint(0, 64, (8, 64))
    fit = autogradviz.plan(model, model, batch=[words]).fit(1)
    assert "'blocks.0'" in fit.code
    assert autogradviz.plan(model, model, batch=[words]).fit("1 GB").code == ""


def test_budget_that_is_too_small():
    plan = plan_of_blocks()
    fit = plan.fit("1 kB")
    assert not fit.fits
    assert fit.predicted_peak < fit.peak
    assert "the most that checkpointing like modules frees" in str(fit)
    with pytest.raises(ValueError, match="no number of bytes"):
        plan.fit("much")


@pytest.mark.parametrize(
    ("line", "name", "after"),
    [
        ("x = self.mlp(x)", "h.0.mlp", "x = checkpoint(self.mlp, x, use_reentrant=False)"),
        ("return x + self.mlp(self.norm(x))", "h.0.mlp",
         "return x + checkpoint(self.mlp, self.norm(x), use_reentrant=False)"),
        ("x = self.h[i](x, y)", "h.3", "x = checkpoint(self.h[i], x, y, use_reentrant=False)"),
        ("x = self.mlp(x, scale=2)", "h.0.mlp",
         "x = checkpoint(self.mlp, x, scale=2, use_reentrant=False)"),
        ("x = self.mlp(x, debug=True)", "h.0.mlp", ""),
        ("x = self.mlp(x, **options)", "h.0.mlp", ""),
        ("x = self.h(x)", "h.0", ""),
        ("x = first(second(x))", "h.0", ""),
        ("for x in self.mlp(", "h.0.mlp", ""),
        ("x = checkpoint(block, x, use_reentrant=False) if self.saves else block(x)", "h.3",
         "x = checkpoint(block, x, use_reentrant=False)"),
    ],
)  # fmt: skip
def test_line_with_checkpoint(line, name, after):
    assert checkpointed(line, name) == after


NEW_INTERPRETER = """
import copy, torch, autogradviz
def step():
    model = torch.nn.Linear(3, 1)
    twice = copy.deepcopy(model)
    loss = twice(torch.ones(2, 3)).sum()
    print("loss", loss.item())
    loss.backward()
    return twice
print(autogradviz.plan(step))
"""


def test_plan_says_which_tensors_have_values_and_copies_parameters_without_a_warning():
    done = run_new("-c", NEW_INTERPRETER, timeout=100)  # PyTorch warns once in a process
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("loss ")
    assert "only small ones that come from small ones have values" in " ".join(done.stdout.split())


def test_plan_is_marked_and_survives_a_file(tmp_path):
    trace = autogradviz.plan(planned_steps.mlp_adamw)
    assert str(trace).count("fake tensors") == 1  # one note for what a plan has not
    assert "planned with fake tensors" in str(trace)
    assert "\nby line\n" in str(trace.memory_by_kind())
    assert "(none)" not in str(trace.memory_by_kind())
    trace.save(tmp_path / "plan.agv")
    loaded = autogradviz.load(tmp_path / "plan.agv")
    assert loaded == trace
    assert loaded.memory_by_kind().rows == trace.memory_by_kind().rows


def memory_of_blocks(kept, width=64):
    """Plan a step that keeps copies of its blocks' outputs in a list, unless it is None."""

    def step():
        model = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(4))
        x = torch.rand(1000, width)
        for block in model:
            x = x + block(x)
            if kept is not None:
                kept.append(x.repeat(4, 1))
        x.square().mean().backward()
        return model

    return autogradviz.plan(step)


def test_comparison_names_the_statement_that_needs_more_memory():
    found = [
        (each.what, each.before, each.after)
        for each in autogradviz.compare(memory_of_blocks(None), memory_of_blocks([]))
        if each.aspect == "memory"
    ]
    names = [what for what, _, _ in found]
    assert names[0] == "all, at the peak"
    assert ("forward, kept.append(x.repeat(4, 1))", "0 B", "4.1 MB") in found


def test_memory_that_only_the_allocator_knows_is_added_to_predictions():
    plan = autogradviz.plan(planned_steps.gpt)
    peak = plan.memory_by_kind().peak.total
    known, measured = plan.fit(0.8 * peak), plan.fit(1.8 * peak, measured_peak=2 * peak)
    assert (measured.checkpoint, measured.patch) == (known.checkpoint, known.patch)
    assert known.checkpoint
    assert (measured.peak, measured.predicted_peak) == (2 * peak, known.predicted_peak + peak)


class Adapted(nn.Module):
    """A layer as a LoRA wraps it."""

    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(requires_grad=False)
        self.down = nn.Linear(base.in_features, 4, bias=False)
        self.up = nn.Linear(4, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def memory_of_layers(wrap):
    def step():
        model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.Tanh()) for _ in range(4)))
        for block in model.requires_grad_(requires_grad=False):
            block[0] = wrap(block[0])
        loss = model(torch.rand(512, 256, requires_grad=True)).square().mean()
        loss.backward()
        return model

    return autogradviz.plan(step)


def test_comparison_sees_a_wrapped_layer_as_the_layer_and_prints_all_values():
    before, after = memory_of_layers(lambda layer: layer), memory_of_layers(Adapted)
    compared = autogradviz.compare(before, after)
    found = [each for each in compared if each.aspect == "memory"]
    statements = [each.what for each in found if ", " in each.what and each.what[:3] != "all"]
    assert statements  # the matrices of the LoRA, or what they save
    assert not any("nn.Linear(256, 256)" in each for each in statements)
    text = str(compared)
    assert all(each.before in text and each.after in text for each in found)


def test_comparison_of_equal_memory_is_empty():
    first, second = memory_of_blocks(None), memory_of_blocks(None)
    assert not [each for each in autogradviz.compare(first, second) if each.aspect == "memory"]
    with autogradviz.record() as other:
        torch.rand(2, requires_grad=True).sum().backward()
    assert not [each for each in autogradviz.compare(first, other) if each.aspect == "memory"]
