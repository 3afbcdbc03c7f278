"""``%%autogradviz`` runs a cell like any other and displays its trace."""

import re

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import autogradviz
from autogradviz.notebook.magics import parse_line

SET_UP = """
import torch
net = torch.nn.ModuleDict({"a b": torch.nn.Linear(3, 2)})
x = torch.ones(1, 3)
"""


@pytest.fixture
def shell():
    shell = InteractiveShell.instance()
    shell.colors = "nocolor"
    shell.run_cell("%load_ext autogradviz")
    shell.run_cell(SET_UP)
    yield shell
    shell.history_manager.end_session()
    InteractiveShell.clear_instance()


def run(shell, cell):
    """Run a cell; return its result, its displayed outputs and its printed text."""
    with capture_output() as captured:
        result = shell.run_cell(cell)
    return result, captured.outputs, captured.stdout


def test_cell_is_recorded_and_its_trace_is_kept_and_displayed(shell):
    result, outputs, _ = run(shell, "%%autogradviz\nloss = net['a b'](x).sum()\nloss.backward()")
    assert result.success
    trace = shell.user_ns["trace"]
    assert isinstance(trace, autogradviz.Trace)
    assert [
        node.name for node in trace.analysis.graph.nodes.values() if node.parameter is None
    ] == [
        "SumBackward0",
        "AddmmBackward0",
        "TBackward0",
    ]
    shown, still = outputs
    assert set(shown.data) == {"application/vnd.jupyter.widget-view+json", "text/plain"}
    assert set(still.data) == {"image/svg+xml", "text/html"}
    assert shown.data["text/plain"] == repr(trace)


def test_cell_runs_in_the_user_namespace(shell):
    run(shell, "%%autogradviz\ny = 2\nx = x + y")
    assert shell.user_ns["y"] == 2
    assert shell.user_ns["x"].tolist() == [[3.0, 3.0, 3.0]]


def test_model_argument_names_parameters_and_name_option_names_the_trace(shell):
    result, _, _ = run(
        shell, "%%autogradviz net['a b'] --name mine\nnet['a b'](x).sum().backward()"
    )
    assert result.success
    assert "trace" not in shell.user_ns
    parameters = shell.user_ns["mine"].analysis.parameters.values()
    assert sorted(parameters) == [("bias",), ("weight",)]


def test_last_value_is_displayed_unless_a_semicolon_follows(shell):
    assert "Out[" in run(shell, "%%autogradviz\n40 + 2")[2]
    assert "Out[" not in run(shell, "%%autogradviz\n40 + 2;")[2]


def test_traceback_begins_in_the_cell_with_its_line_numbers(shell):
    _, _, printed = run(shell, "%%autogradviz\n\n1 / 0")
    assert "----> 3 1 / 0" in re.sub(r"\x1b\[[\d;]*m", "", printed)
    assert printed.rstrip().endswith("ZeroDivisionError: division by zero")


def test_failed_cell_has_the_note_and_displays_its_trace(shell):
    cell = "%%autogradviz\ny = net['a b'](x).exp()\nz = y.sum()\ny.add_(1)\nz.backward()"
    result, outputs, printed = run(shell, cell)
    error = result.error_in_exec
    assert isinstance(error, RuntimeError)
    assert not result.success
    assert len(error.__notes__) == 1
    assert "autogradviz: y was written at line 4 after line 2 saved it" in printed
    assert "modified by an inplace operation" in printed
    assert "magic.py" not in printed
    assert len(outputs) == 2  # the widget and its static picture
    (finding,) = shell.user_ns["trace"].diagnose()
    assert (finding.culprit.lineno, finding.culprit.text) == (4, "y.add_(1)")


def test_other_magics_and_shell_syntax_work_in_a_recorded_cell(shell):
    result, _, printed = run(shell, "%%autogradviz\n%precision 3\nname = !echo hello\nname[0]")
    assert result.success
    assert "hello" in printed


@pytest.mark.parametrize(
    ("model", "reason"),
    [("3", "TypeError: autogradviz takes an nn.Module, not int"), ("nowhere", "NameError: name")],
)
def test_invalid_model_is_refused_in_one_line_and_nothing_runs(shell, model, reason):
    result, outputs, _ = run(shell, f"%%autogradviz {model}\ny = 1")
    assert isinstance(result.error_in_exec, UsageError)
    assert f"the model '{model}' cannot be used: {reason}" in str(result.error_in_exec)
    assert outputs == []
    assert "y" not in shell.user_ns
    assert "trace" not in shell.user_ns


@pytest.mark.parametrize(
    ("line", "parsed"),
    [
        ("", ("", "trace")),
        ("  net ", ("net", "trace")),
        ("--name t", ("", "t")),
        ("nets['a b'] --name=t", ("nets['a b']", "t")),
        ("--name t nets[0]", ("nets[0]", "t")),
        ("f('--named')", ("f('--named')", "trace")),
    ],
)
def test_line_contains_model_and_trace_name(line, parsed):
    assert parse_line(line) == parsed


@pytest.mark.parametrize("line", ["--name", "net --name 2x", "--name=a.b"])
def test_invalid_variable_name_is_refused(line):
    with pytest.raises(UsageError, match="--name takes the name of a variable"):
        parse_line(line)


def test_findings_refer_to_cells_by_their_number(shell, tmp_path):
    shell.run_cell("def f(x):\n    b = x.exp()\n    b.add_(1)\n    return b.sum()", True)
    number = shell.execution_count
    run(shell, "%%autogradviz\nf(x.requires_grad_()).backward()")
    trace = shell.user_ns["trace"]
    (finding,) = trace.diagnose()
    place = f"In [{number - 1}], line 3"
    assert str(finding.culprit) == place
    assert f"Then add_ at {place} wrote" in finding.explanation
    assert "ipython-input" not in repr(trace) + str(trace._scene)
    assert f"In [{number - 1}]:3" in repr(trace)
    trace.save(tmp_path / "cell.agv")
    assert autogradviz.load(tmp_path / "cell.agv").diagnose() == [finding]


FAILING = "y = net['a b'](x).exp()\nz = y.sum()\ny.add_(1)\nz.backward()"


def test_why_runs_the_last_failed_cell_again_and_explains_it(shell):
    shell.run_cell(FAILING, True)
    number = shell.execution_count - 1
    shell.run_cell("1 + 1", True)
    result, outputs, printed = run(shell, "%autogradviz why net['a b']")
    assert result.success
    assert f"autogradviz: In [{number}] is run again and recorded" in printed
    assert "y was written at line 3 after line 1 saved it" in printed
    assert len(outputs) == 2
    (finding,) = shell.user_ns["trace"].diagnose()
    assert str(finding.culprit) == f"In [{number}], line 3"
    shell.run_cell("x = x + 1\nassert x.sum() > 6", True)
    assert "it did not raise an exception this time" in run(shell, "%autogradviz why")[2]


def test_why_with_a_name_explains_it_in_the_last_trace(shell):
    run(shell, "%%autogradviz net['a b']\nnet['a b'](x).sum().backward()")
    assert "weight: how it got its gradient" in run(shell, "%autogradviz why weight")[2]
    with pytest.raises(UsageError, match="did you mean weight"):
        shell.run_line_magic("autogradviz", "why wieght")


def test_recorded_cells_have_the_finding_in_their_traceback(shell):
    shell.run_cell("%autogradviz on")
    _, _, printed = run(shell, FAILING)
    assert printed.count("autogradviz: y was written at line") == 1
    assert "y.add_(1)" in printed
    shell.run_cell("%%autogradviz --name inner\nnet['a b'](x).sum().backward()")
    assert shell.user_ns["inner"].diagnose() == []
    assert len(run(shell, "%autogradviz last")[1]) == 2
    shell.run_cell("%autogradviz off")
    assert "autogradviz:" not in run(shell, FAILING)[2]
    assert shell.custom_exceptions == ()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("why", "no cell has raised an exception since %load_ext autogradviz"),
        ("last", "no cell was recorded yet"),
        ("wyh", "%autogradviz takes why, on, off or last, not 'wyh'"),
    ],
)
def test_line_magic_refuses_what_it_cannot_do_in_one_line(shell, line, message):
    with pytest.raises(UsageError, match=message):
        shell.run_line_magic("autogradviz", line)


def test_a_recorded_cell_has_its_own_number(shell):
    cell = "%%autogradviz\nh = torch.exp(torch.ones(2, requires_grad=True))\nh.sum().backward()"
    result = shell.run_cell(cell, store_history=True)
    trace = shell.user_ns["trace"]
    assert {op.location.cell for op in trace.analysis.ops if op.location} == {
        result.execution_count
    }


def test_an_unknown_option_is_answered_with_the_usage():
    with pytest.raises(UsageError, match=r"no option --nosuch; usage: %%autogradviz \[MODEL\]"):
        parse_line("--nosuch")
