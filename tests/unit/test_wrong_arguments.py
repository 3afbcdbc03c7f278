"""Messages about arguments of a wrong kind."""

import inspect
from pathlib import Path

import pytest
import torch

import autogradviz
from autogradviz.cli.entry_point import main
from autogradviz.errors import (
    AutogradvizWarning,
    NotAGraphError,
    UnknownFormatError,
    UnknownTargetError,
)
from tests.unit.make_log import began, ended, make_log, module, parameter, tensor


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """Return the name of a small trace in the working directory."""
    monkeypatch.chdir(tmp_path)
    autogradviz.Trace(make_log(began(), ended())).save("x.agv")
    return "x.agv"


def test_number_is_no_path(saved):
    calls = {
        "load": lambda: autogradviz.load(3),
        "save": lambda: autogradviz.load(saved).save(3),
        "record": lambda: autogradviz.record(path=3),
    }
    for name, call in calls.items():
        with pytest.raises(TypeError, match=rf"^{name}\(\) takes the path of a trace, not int$"):
            call()


def test_unknown_option_of_record_is_answered_with_the_one_that_may_be_meant():
    with pytest.raises(TypeError, match="argument 'keep': did you mean keep_steps\\?$"):
        autogradviz.record(keep=3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'zzz'$"):
        autogradviz.record(zzz=3)
    assert "keep_steps" in inspect.signature(autogradviz.record).parameters


@pytest.mark.parametrize("name", ["x.png", "x.html"])
def test_picture_of_another_format_is_refused(saved, capsys, name):
    with pytest.raises(SystemExit) as stopped:
        main(["svg", saved, "-o", name])
    assert stopped.value.code == 2
    assert f"{name}: svg writes .svg or .pdf" in capsys.readouterr().err
    assert not Path(name).exists()


def test_file_of_which_nothing_is_left_warns(saved):
    content = Path(saved).read_bytes()
    Path("cut.agv").write_bytes(content[: len(autogradviz_head()) + 100])
    with pytest.warns(AutogradvizWarning, match="damaged; nothing is left"):
        trace = autogradviz.load("cut.agv")
    assert len(trace.log) == 0


def autogradviz_head():
    """Return the bytes of a file before its first message."""
    from autogradviz.event_log.arrow_file_layout import Writer

    return Writer().head


def test_why_suggests_modules_and_parameters_that_have_a_name_like_it():
    log = make_log(
        began(),
        module(1, "Net"),
        module(2, "Net.Adapter#2", "Adapter", parent=1),
        tensor(1),
        parameter(1, "Net.Adapter#2.down.weight", module=2),
        ended(),
    )
    with pytest.raises(UnknownTargetError, match="did you mean Net.Adapter#2\\?"):
        autogradviz.Trace(log).why("adapters")


def test_a_module_in_place_of_a_step_is_answered_with_a_function():
    model = torch.nn.Linear(2, 1)
    for call, name in ((autogradviz.plan, "plan"), (autogradviz.check, "check")):
        with pytest.raises(TypeError, match=rf"write {name}\(lambda: model\(x\)"):
            call(model)
    with pytest.raises(TypeError, match="calls it without arguments; missing a required argument"):
        autogradviz.check(lambda x: model(x).sum())
    with pytest.raises(TypeError, match="with 2 arguments; too many positional"):
        autogradviz.check(lambda x: model(x).sum(), batch=(1, 2))


def test_a_recording_that_was_not_entered_says_how_to_get_a_trace():
    with pytest.raises(AttributeError, match="as trace:`.* then trace.diagnose$"):
        autogradviz.record().diagnose()
    assert not hasattr(autogradviz.record(), "no_name_of_a_trace")


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (torch.nn.Linear(2, 1), "Linear is a module, .*graph\\(model\\(x\\), model\\)"),
        (torch.ones(2), "the Tensor has no autograd graph: it was computed under torch.no_grad"),
        ("loss", "str has no autograd graph: pass a tensor that requires grad"),
    ],
)
def test_graph_of_something_else_says_what_is_wanted(output, message):
    with pytest.raises(NotAGraphError, match=message):
        autogradviz.graph(output)


def test_a_picture_of_another_kind_is_not_written_as_svg(tmp_path):
    view = autogradviz.graph(torch.ones(2, requires_grad=True).sum())
    with pytest.raises(UnknownFormatError, match=r"svg\(\) writes SVG"):
        view.svg(tmp_path / "a.png")
    assert not list(tmp_path.iterdir())
    view.svg(tmp_path / "a.svg")
    view.svg(tmp_path / "plain")


def test_a_block_in_which_nothing_ran_says_so():
    with autogradviz.record() as trace:
        pass
    assert "nothing ran in the block: put the forward and the backward into it" in repr(trace)
    assert repr(trace.diagnose()) == (
        "No findings. Nothing ran in the block: put the forward and the backward into it."
    )


def test_an_unknown_name_lists_those_that_there_are():
    names = [f"layer{n}.weight" for n in range(12)]
    log = make_log(
        began(), module(1, "M"), *(each for n, name in enumerate(names, 1)
        for each in (tensor(n), parameter(n, name))), ended()
    )  # fmt: skip
    with pytest.raises(UnknownTargetError, match="; there are layer0.weight, .*others, which"):
        autogradviz.Trace(log).why("qqqqq")


def test_standard_input_is_no_trace(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["show", "-"])
    assert stopped.value.code == 2
    assert "cannot be read from standard input" in capsys.readouterr().err


def test_a_step_may_take_the_batch():
    model = torch.nn.Linear(2, 1)
    trace = autogradviz.plan(lambda x: model(x).sum(), model, batch=[torch.ones(1, 2)])
    assert len(trace.analysis.graph.nodes)
