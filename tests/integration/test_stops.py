"""``record(break_on=...)`` opens the debugger in the user's frame when an event matches."""

from __future__ import annotations

import bdb
import builtins
import io
import math
import os
import re
import sys
import threading
from pathlib import Path

import pytest
import torch

import autogradviz

sys.path.insert(0, str(Path(__file__).parents[1]))
from terminal import run_in_terminal

pytestmark = pytest.mark.one_in(3, reason="opens a debugger for each stop", in_ci=1)

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "stop-where-it-happens.md"


class Terminal(io.StringIO):
    """Standard input with the lines that a person types."""

    def isatty(self):
        return True


@pytest.fixture
def typed(monkeypatch, capsys):
    """Return a function that sets the lines to type, and one that returns the debugger's output."""
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    monkeypatch.delenv("PYTHONBREAKPOINT", raising=False)

    def type_lines(*lines):
        monkeypatch.setattr(sys, "stdin", Terminal("\n".join([*lines, *["c"] * 20, ""])))
        return lambda: capsys.readouterr().out

    yield type_lines
    assert sys.gettrace() is None or "coverage" in sys.modules
    assert not hasattr(builtins, "stopped")


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh())


def failing(y):
    loss = y.exp_().sum()
    for scale in (1.0, 2.0):
        y.mul_(scale)
    loss.backward()


def stops_in(output):
    """Return the user's lines at which the debugger opened."""
    return re.findall(r"^-> (.*)$", output, re.MULTILINE)


def test_finding_opens_the_debugger_at_the_same_line_and_call(typed):
    def run(**options):
        y = torch.rand(3, requires_grad=True) * 1
        with pytest.raises(RuntimeError), autogradviz.record(**options) as trace:
            failing(y)
        return trace

    plain = run(engine="python")
    [finding] = plain.diagnose()
    assert finding.culprit.text == "y.mul_(scale)"
    assert finding.culprit_run == autogradviz.CulpritRun(
        op="aten.mul_.Tensor", phase="forward", step=None, count=1
    )
    output = typed(
        "p scale, stopped.args[0] is y, stopped.versions, y._version",
        "p stopped.saved",
        "p [each.value is not None for each in stopped.saved]",
        "n",
        "p y._version",
    )
    trace = run(break_on=finding)
    shown = output()
    assert stops_in(shown) == ["y.mul_(scale)", "for scale in (1.0, 2.0):"]
    assert "(Pdb) (1.0, True, ((1, 2),), 1)\n" in shown
    assert "[ExpBackward0.result (3,): version 1 when saved, 1 now]" in shown
    assert "(Pdb) 2\n" in shown
    # What was called in the debugger is not recorded.
    assert [op.name for op in trace.analysis.ops] == [op.name for op in plain.analysis.ops]
    assert len(trace.diagnose()) == 1


def test_finding_of_a_recording_without_its_first_steps_stops_in_its_step(typed):
    def train(**options):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with pytest.raises(RuntimeError), autogradviz.record(model, **options) as trace:
            for number in range(5):
                hidden = model(torch.ones(1, 3)).exp()
                loss = hidden.sum()
                with torch.no_grad():
                    (hidden if number == 4 else torch.ones(2)).mul_(2)
                loss.backward()
                optimizer.step()
        return trace

    [finding] = train(keep_steps=2).diagnose()
    run = finding.culprit_run
    assert (run.op, run.step, run.count) == ("aten.mul_.Tensor", 4, 1)
    output = typed("p number")
    train(break_on=finding)
    assert output().count("(Pdb) 4\n") == 1


def test_only_rank_0_opens_the_debugger(typed, monkeypatch, capsys):
    typed("q")
    for name, value in {"RANK": "3", "WORLD_SIZE": "8"}.items():
        monkeypatch.setenv(name, value)
    with autogradviz.record(break_on="op:add"):
        torch.ones(2) + 1
    assert "no debugger, because rank 3 shares the terminal of rank 0" in capsys.readouterr().err


def test_conditions_of_every_kind_open_the_debugger_where_they_match(typed):
    model = net()
    output = typed()
    with autogradviz.record(
        model,
        break_on=[
            "module:1",
            "node:TanhBackward*",
            "op:addmm#2",
            autogradviz.watch(model[0].bias),
            "0.weight#2",
            f"line:test_stops.py:{line_of('loss = model(torch.ones(1, 3)).sum()')}",
        ],
    ):
        for _ in range(2):
            loss = model(torch.ones(1, 3)).sum()
            loss.backward()
            with torch.no_grad():
                torch._foreach_sub_(list(model.parameters()), 0.1)
    assert stops_in(output()) == [
        "loss = model(torch.ones(1, 3)).sum()",  # the line: its first operator, ones
        "loss = model(torch.ones(1, 3)).sum()",  # the module
        "loss.backward()",
        "torch._foreach_sub_(list(model.parameters()), 0.1)",  # the bias
        "loss = model(torch.ones(1, 3)).sum()",
        "loss = model(torch.ones(1, 3)).sum()",  # the second addmm
        "loss = model(torch.ones(1, 3)).sum()",
        "loss.backward()",
        "torch._foreach_sub_(list(model.parameters()), 0.1)",  # weight and bias at once
    ]


def line_of(text):
    """Return the number of the first line of this file that has some code."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(n for n, line in enumerate(lines, 1) if line.strip() == text)


def test_live_objects_of_modules_and_nodes(typed):
    output = typed(
        "p stopped.module, stopped.args[0].shape",
        "c",
        "p stopped.node.name(), stopped.args[0].shape, [s.slot for s in stopped.saved]",
    )
    model = net()
    with autogradviz.record(model, break_on=["module:Tanh", "node:Tanh*"]):
        model(torch.ones(1, 3)).sum().backward()
    shown = output()
    assert "(Tanh(), torch.Size([1, 2]))" in shown
    assert "('TanhBackward0', torch.Size([1, 2]), ['result'])" in shown


def test_first_value_that_is_not_finite(typed):
    output = typed("p stopped.reason")
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    with autogradviz.record(break_on="not-finite"):
        torch.empty(3).fill_(math.nan).zero_()  # what fills it is the program's constant
        scores = x.masked_fill(torch.tensor([False, True]), -math.inf)
        scores.softmax(0).sum()
        torch.log(x).sum()
    assert "aten.log.default gave an infinity" in output()


def test_an_operator_that_raises_is_stopped_at_with_its_error(typed):
    output = typed("p type(stopped.error), stopped.result")
    with pytest.raises(RuntimeError), autogradviz.record(break_on="op:mm"):
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert "(<class 'RuntimeError'>, None)" in output()


def test_quitting_the_debugger_ends_the_program_and_the_recording(typed):
    typed("q")
    model = net()
    with pytest.raises(bdb.BdbQuit), autogradviz.record(model, break_on="node:Tanh*"):
        model(torch.ones(1, 3)).sum().backward()
    with autogradviz.record(model) as trace:
        model(torch.ones(1, 3)).sum().backward()
    assert trace.diagnose() == []


def test_gradients_are_the_same_when_the_debugger_was_opened(typed):
    gradients = []
    for options in ({}, {"break_on": ["op:addmm", "node:*"]}):
        typed("p model[0].weight.sum()")
        model = net()
        with autogradviz.record(model, **options):
            model(torch.ones(4, 3)).sum().backward()
        gradients.append(model[0].weight.grad)
    assert torch.equal(*gradients)


def test_what_never_matches_and_missing_terminals_are_printed_once(capsys, monkeypatch):
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    conditions = ["op:tanh", "op:add_", "op:tanh#9", "write:nowhere"]
    with autogradviz.record(break_on=conditions):
        for _ in range(3):
            net()(torch.ones(1, 3))
    lines = capsys.readouterr().err.splitlines()
    assert [re.sub(r"test_stops.py:\d+", "LINE", line) for line in lines] == [
        "autogradviz: break_on: LINE in test_what_never_matches_and_missing_terminals_are_printed_"
        "once: aten.tanh.default was called; no debugger, because standard input is no terminal",
        "autogradviz: break_on: 'op:add_' never matched (among 27 operators)",
        "autogradviz: break_on: 'op:tanh#9' never matched (it matched 3 times without the number)",
        "autogradviz: break_on: 'write:nowhere' never matched (no module that was called has a "
        "parameter or buffer 'nowhere')",
    ]


def test_a_thread_waits_while_the_debugger_is_open_in_another(typed, capsys):
    opened, finished = threading.Event(), threading.Event()

    def work(opened, finished):
        torch.ones(2, requires_grad=True).tanh().sum().backward()
        return opened, finished

    def second():
        opened.wait(20)
        work(opened, finished)
        finished.set()

    typed("p opened.set() or finished.wait(0.3)")
    with autogradviz.record(break_on=["node:TanhBackward0", "op:relu"]):
        threads = [threading.Thread(target=work, args=(opened, finished))]
        threads.append(threading.Thread(target=second))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    shown, error = capsys.readouterr()
    assert stops_in(shown) == ["torch.ones(2, requires_grad=True).tanh().sum().backward()"] * 2
    assert "(Pdb) False\n" in shown  # the second thread had not finished
    assert "'op:relu' never matched (among 6 nodes; operators of 2 other threads were not" in error


def test_line_of_an_optimizer_stops_once_at_its_first_operator_with_tensors(typed):
    model = net()
    model(torch.ones(1, 3)).sum().backward()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    output = typed("p stopped.op, len(stopped.versions)")
    number = line_of("optimizer.step()  # writes several parameters")
    with autogradviz.record(model, break_on=f"line:test_stops.py:{number}"):
        for _ in range(2):
            optimizer.step()  # writes several parameters
    shown = output()
    assert len(stops_in(shown)) == 2
    assert "(Pdb) ('aten.add_.Tensor', 2)\n" in shown


def test_another_breakpoint_hook_sees_the_line_and_the_variables(monkeypatch):
    seen = []

    def hook():
        frame = sys._getframe(1)
        place = Path(frame.f_code.co_filename).name, frame.f_code.co_name
        seen.append((*place, frame.f_locals["x"], vars(builtins)["stopped"].op))

    monkeypatch.setattr(sys, "breakpointhook", hook)
    x = torch.ones(2)
    with autogradviz.record(break_on="op:add"):
        x + 1
    assert seen == [
        ("test_stops.py", "test_another_breakpoint_hook_sees_the_line_and_the_variables", x,
         "aten.add.Tensor")
    ]  # fmt: skip
    assert not hasattr(builtins, "stopped")


def test_the_culprit_on_a_line_with_several_operators_is_the_write():
    a = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="inplace"), autogradviz.record() as trace:
        b = a.exp(); c = b.sum(); b.mul_(2); c.backward()  # fmt: skip  # noqa: E702
    assert trace.diagnose()[0].culprit_run.op == "aten.mul_.Tensor"


def test_a_parameter_that_is_not_written_never_matches(capsys):
    model = net()
    with autogradviz.record(model, break_on="write:0.weight"):
        model(torch.ones(1, 3)).sum().backward()
    error = capsys.readouterr().err
    assert re.fullmatch(
        r"autogradviz: break_on: 'write:0.weight' never matched \(among \d+ operators.*\)\n", error
    )


@pytest.mark.parametrize(
    ("condition", "error", "message"),
    [
        ("foo:bar", ValueError, "'foo:bar' is no condition to stop on; use one of write:NAME"),
        ("line:train.py", ValueError, "'line:train.py' is no condition"),
        ("0.wieght", ValueError, "no parameter or buffer '0.wieght'; did you mean '0.weight'?"),
        (3, TypeError, "break_on takes text, watch(...) or a finding, not int"),
    ],
)
def test_bad_conditions_are_refused(condition, error, message):
    with pytest.raises(error, match=re.escape(message)):
        autogradviz.record(net(), break_on=condition)


def test_findings_without_an_operator_and_recordings_without_operators_are_refused():
    finding = autogradviz.Finding(
        slug="checkpoint-state-changed",
        title="",
        culprit=autogradviz.SourceLocation(
            filename="train.py", lineno=3, function="f", text="self.count += 1"
        ),
        victim=None,
        explanation="",
        fix="",
        confidence="certain",
        events=(),
    )
    with pytest.raises(ValueError, match=r"no operator ran on train.py:3.*b train.py:3"):
        autogradviz.record(break_on=finding)
    with pytest.raises(ValueError, match="needs operators"):
        autogradviz.record(break_on="op:add", ops=False)
    with pytest.raises(TypeError, match="watch"):
        autogradviz.watch(3)
    with pytest.raises(autogradviz.NativeBuildError, match="cannot open a debugger"):
        autogradviz.record(break_on="op:add", engine="native").__enter__()


def test_guide_and_command_line_stop_in_a_real_terminal(tmp_path):
    text = GUIDE.read_text(encoding="utf-8")
    program = "".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    transcript = re.search(r"^    (autogradviz: break_on:.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    expected = transcript[1].replace("\n    ", "\n")
    commands = re.findall(r"^\(Pdb\) (.*)$", expected, re.MULTILINE)
    options = {"cwd": tmp_path, "env": {"PYTHONBREAKPOINT": ""}}
    code, output = run_in_terminal(["train.py"], commands, **options)
    shown = output.partition("\n")[2].replace(f"{tmp_path}{os.sep}", "")
    assert (code, shown.strip()) == (0, expected)


@pytest.mark.slow(reason="a terminal session; another test has one")
def test_run_opens_the_debugger_at_the_finding_of_an_earlier_trace(tmp_path):
    lines = ["import sys, torch", "print(sys.argv[1:])", "x = torch.ones(2, requires_grad=True)",
             "y = x.exp()", "loss = y.sum()", "y.mul_(2)", "loss.backward()"]  # fmt: skip
    script = tmp_path / "train.py"
    script.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(RuntimeError), autogradviz.record() as trace:
        exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"), {})
    trace.save(tmp_path / "first.agv")
    code, output = run_in_terminal(
        ["-m", "autogradviz", "run", "--break", "finding", "train.py", "-x", "first.agv"],
        ["p stopped.versions"],
        cwd=tmp_path,
        env={"PYTHONBREAKPOINT": ""},
    )
    assert code == 1
    assert "['-x']" in output
    assert "-> y.mul_(2)\n(Pdb) p stopped.versions\n((0, 1),)\n" in output
