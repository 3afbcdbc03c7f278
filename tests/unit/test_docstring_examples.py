"""The examples of public docstrings run and print the expected output."""

from __future__ import annotations

import dataclasses
import doctest
import os
import pathlib
import sys
import warnings

import pytest
import torch
from public_names import public_objects
from torch.utils.checkpoint import checkpoint

import autogradviz

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
WITHOUT_EXAMPLES_OF_MEMBERS = {"Analysis", "Log", "RankFile", "Run", "UnreadableFile"}
"""Classes whose members need a docstring, but no example; like the properties of dataclasses."""


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh())
        self.down = torch.nn.Linear(8, 1)

    def forward(self, x):
        h = checkpoint(self.up, x, use_reentrant=False)
        return self.down(h)


@pytest.fixture(scope="module")
def recorded():
    torch.manual_seed(0)
    model, x = Net(), torch.randn(2, 4)
    with autogradviz.record(model) as trace:
        model(x).sum().backward()
    return {"model": model, "x": x, "trace": trace}


@pytest.fixture
def namespace(recorded, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    modules = (autogradviz, os, pathlib, sys, torch)
    with warnings.catch_warnings():
        yield {module.__name__: module for module in modules} | recorded


def own_docstring(thing):
    return vars(thing).get("__doc__") if isinstance(thing, type) else thing.__doc__


def is_member_without_example(name):
    owner, _, member = name.partition(".")
    is_record = dataclasses.is_dataclass(getattr(autogradviz, owner))
    return bool(member) and (is_record or owner in WITHOUT_EXAMPLES_OF_MEMBERS)


NAMES = dict(public_objects())


@pytest.mark.parametrize("name", NAMES)
def test_public_name_has_a_docstring(name):
    assert own_docstring(NAMES[name])


@pytest.mark.one_in(4, reason="runs each example", in_ci=1)
@pytest.mark.parametrize("name", NAMES)
def test_docstring_example_runs(name, namespace):
    examples = doctest.DocTestParser().get_examples(own_docstring(NAMES[name]) or "")
    assert examples or is_member_without_example(name), f"{name} has no example"
    test = doctest.DocTest(examples, dict(namespace), name, None, None, None)
    report = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append)
    assert result.failed == 0, "".join(report)
