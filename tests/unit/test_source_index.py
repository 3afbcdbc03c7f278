"""The index of source files is kept while they do not change."""

from __future__ import annotations

import linecache

import pytest

from autogradviz.diagnose.source import source_index
from autogradviz.support.source_lines_and_libraries import is_installed


@pytest.fixture(autouse=True)
def empty_index():
    yield
    source_index._read.clear()
    source_index.forget_changed_files()


def test_unchanged_file_is_parsed_once(tmp_path):
    path = tmp_path / "model.py"
    path.write_text("def forward(x):\n    return x.exp()\n")
    found = source_index.functions(str(path))
    source_index.forget_changed_files()
    assert source_index.functions(str(path)) is found


def test_changed_file_is_read_again(tmp_path):
    path = tmp_path / "model.py"
    path.write_text("def forward(x):\n    return x.exp()\n")
    assert [name for name, _ in source_index.functions(str(path))] == ["", "forward"]
    path.write_text("def backward(x):\n    return x.exp().sum()\n")
    source_index.forget_changed_files()
    assert [name for name, _ in source_index.functions(str(path))] == ["", "backward"]


def test_changed_cell_of_a_notebook_is_read_again():
    name = "<cell>"

    def enter(text):
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)

    try:
        enter("x = net(y)\n")
        assert source_index.calls(name, ("net",)) == [(1, "", "net")]
        enter("\nx = net(y)\n")
        source_index.forget_changed_files()
        assert source_index.calls(name, ("net",)) == [(2, "", "net")]
    finally:
        del linecache.cache[name]


def test_number_of_kept_files_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(source_index, "MAX_FILES_KEPT", 3)
    paths = [tmp_path / f"part_{number}.py" for number in range(5)]
    for path in paths:
        path.write_text("x = 1\n")
        source_index.functions(str(path))
    source_index.forget_changed_files()
    assert source_index._read == {}


@pytest.mark.parametrize(
    ("path", "installed"),
    [
        ("/venv/lib/python3.11/site-packages/einops/einops.py", True),
        ("/venv/lib/python3.11/site-packages/autogradviz/demo/gpt.py", False),  # as a user's file
        ("C:\\venv\\Lib\\site-packages\\autogradviz\\demo\\gpt.py", False),
        ("/home/me/train.py", False),
    ],
)
def test_files_of_installed_packages_are_known_by_their_folder(path, installed):
    assert is_installed(path) is installed
