"""Programs that ``python`` runs and that are no plain script: archives, standard input."""

import io
import sys
import zipfile

import pytest
from interpreters import run_forked

from autogradviz.cli import run_as_main
from autogradviz.cli.run_as_main import Program
from autogradviz.cli.split_run_arguments import split

STEP = (
    "import sys, torch\n"
    "w = torch.ones(2, requires_grad=True)\n"
    "(w * 2).sum().backward()\n"
    "print(__name__, sys.argv[1:], w.grad.tolist())\n"
)
OUTPUT = "__main__ ['--fast'] [2.0, 2.0]\n"


def test_archive_is_run(tmp_path):
    archive = tmp_path / "app.pyz"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("__main__.py", STEP)
    finished = run_forked("-m", "autogradviz", "run", archive, "--fast", cwd=tmp_path)
    assert (finished.stdout, finished.returncode) == (OUTPUT, 0), finished.stderr


def test_program_is_read_from_standard_input(monkeypatch, capsys):
    assert split(["run", "-q", "-", "--fast"]) == (["run", "-q"], ["-", "--fast"])
    monkeypatch.setattr(sys, "stdin", io.StringIO("import sys\nprint(__name__, sys.argv)\n"))
    monkeypatch.setattr(sys, "argv", ["autogradviz"])
    monkeypatch.setattr(sys, "path", ["bin", *sys.path[1:]])
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    run_as_main.run_as_main(Program("-", ("--fast",), module=False))
    assert capsys.readouterr().out == "__main__ ['-', '--fast']\n"
    assert sys.path[0] == ""


def test_null_byte_has_the_message_of_python(tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_bytes(b"x = 1\0\n")
    monkeypatch.setattr(sys, "argv", ["autogradviz"])
    monkeypatch.setattr(sys, "path", ["bin", *sys.path[1:]])
    with pytest.raises((SyntaxError, ValueError)) as raised:
        run_as_main.run_as_main(Program(str(script), (), module=False))
    assert str(raised.value) == "source code cannot contain null bytes"
