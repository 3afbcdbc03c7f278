"""The user's exception leaves a recorded block, whatever it allows to do with it."""

import dataclasses
import traceback

import pytest
import torch

import autogradviz
from autogradviz.recording.record_between_callbacks import OpenEndedRecording
from autogradviz.recording_options import RecordingOptions


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int = 3


class NotesAreText(Exception):
    __notes__ = "mine"


class OwnNotesAreText(Exception):
    def __init__(self):
        super().__init__()
        self.__notes__ = "mine"


class SharedNotes(Exception):
    __notes__ = ["of the class"]  # noqa: RUF012 - that is what is tested


class RefusesAttributes(Exception):
    def __setattr__(self, name, value):
        raise SystemError(name)


class RefusesNotes(Exception):
    def add_note(self, note):
        raise SystemError(note)


class FixedNotes(Exception):
    @property
    def __notes__(self):
        return ["mine"]


KINDS = [
    Frozen, NotesAreText, OwnNotesAreText, SharedNotes, RefusesAttributes, RefusesNotes, FixedNotes,
]  # fmt: skip


def fail(kind):
    w = torch.ones(3, requires_grad=True)
    y = w.exp()
    y.mul_(2)
    try:
        y.sum().backward()
    except RuntimeError as error:
        raise kind from error


@pytest.mark.parametrize("kind", KINDS)
def test_any_exception_leaves_the_block(kind, capsys):
    with pytest.raises(kind) as raised, autogradviz.record():
        fail(kind)
    assert type(raised.value) is kind
    assert SharedNotes.__notes__ == ["of the class"]
    shown = "".join(traceback.format_exception(raised.value)) + capsys.readouterr().err
    assert shown.count("y was written at line") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_any_exception_leaves_the_block_if_it_cannot_be_explained(kind, monkeypatch):
    monkeypatch.setattr("autogradviz.trace.find_problems", lambda _: 1 / 0)
    with pytest.raises(kind), autogradviz.record():
        fail(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_any_exception_can_end_a_program_that_is_recorded(kind):
    recording = OpenEndedRecording(RecordingOptions())
    recording.begin()
    with pytest.raises(kind):
        fail(kind)
    trace = recording.finish(kind())
    assert trace.diagnose() is not None
