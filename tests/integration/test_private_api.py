"""Private PyTorch APIs: a missing name raises at the start of a recording."""

import subprocess
import sys

import pytest
import torch

import autogradviz
from autogradviz.errors import UnsupportedTorchError
from autogradviz.recorder.torch_internals.private_api import MINIMUM_TORCH, NEEDED, TESTED_TORCH


class Without:
    """A proxy of a PyTorch object without one attribute."""

    def __init__(self, original, missing):
        self._original, self._missing = original, missing

    def __getattr__(self, name):
        if name == self._missing:
            raise AttributeError(name)
        return getattr(self._original, name)


def remove(monkeypatch, path):
    *parents, name = path.split(".")
    if not parents:
        monkeypatch.delattr(torch, name)
        return
    *grandparents, parent = parents
    owner = torch
    for part in grandparents:
        owner = getattr(owner, part)
    monkeypatch.setattr(owner, parent, Without(getattr(owner, parent), name))


@pytest.mark.parametrize("needed", NEEDED, ids=lambda needed: needed.path)
def test_missing_private_name_raises_at_the_start_of_a_recording(needed, monkeypatch):
    remove(monkeypatch, needed.path)
    with pytest.raises(UnsupportedTorchError) as error:
        autogradviz.record().__enter__()
    message = str(error.value)
    assert message.startswith(f"torch {torch.__version__} lacks ")
    assert f"{needed.path} ({needed.used_for})" in message
    assert f"torch >= {MINIMUM_TORCH} and was tested on {TESTED_TORCH}" in message


def test_all_missing_private_names_are_listed(monkeypatch):
    for path in ("_C._current_graph_task_id", "utils.checkpoint._checkpoint_hook"):
        remove(monkeypatch, path)
    with pytest.raises(UnsupportedTorchError, match=r"_current_graph_task_id .*_checkpoint_hook "):
        autogradviz.record().__enter__()


def test_name_missing_at_import_raises_at_the_start_of_a_recording():
    code = (
        "import torch, autogradviz\n"
        "del torch._C._dispatch_keys\n"
        "for _ in range(2):\n"
        "    try: autogradviz.record().__enter__()\n"
        "    except autogradviz.errors.UnsupportedTorchError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.count(" lacks _C._dispatch_keys (") == 2
