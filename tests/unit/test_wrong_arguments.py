"""Messages about arguments of a wrong kind."""

import inspect
from pathlib import Path

import pytest

import autogradviz
from autogradviz.cli.entry_point import main
from autogradviz.errors import AutogradvizWarning, UnknownTargetError
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
