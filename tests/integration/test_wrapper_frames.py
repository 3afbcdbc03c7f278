"""Frames of our wrappers: explained in a traceback, and skipped by warnings."""

import traceback
import warnings

import torch

import autogradviz
from autogradviz.recorder import module_calls


class Refusing(torch.nn.Module):
    def forward(self, x):
        raise ValueError(x)


def test_wrapper_in_a_traceback_has_its_file_source_and_explanation():
    with autogradviz.record():
        try:
            Refusing()(1)
        except ValueError as error:
            frames = traceback.extract_tb(error.__traceback__)
    (frame,) = [each for each in frames if "autogradviz/" in each.filename]
    path, explanation = frame.filename.split(" ", 1)
    assert path == module_calls.__file__
    assert explanation == (
        "(autogradviz wrapper; importlib._bootstrap in this name makes warnings skip its frame)"
    )
    assert frame.line == "output = original(self, *args, **kwargs)"


class Warning3(torch.nn.Module):
    def forward(self, x):
        warnings.warn("look at my caller", stacklevel=4)
        return x


def test_warning_below_a_wrapper_has_the_line_of_the_user():
    def lines():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            Warning3()(1)
        return [(each.filename, each.lineno) for each in caught]

    plain = lines()
    with autogradviz.record():
        assert lines() == plain
    assert plain[0][0] == __file__
