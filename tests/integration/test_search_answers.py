"""Answers of the search field, and of ``why`` to the same questions, for recorded programs."""

from __future__ import annotations

import re

import torch
from torch import nn

import autogradviz


def ask(trace, question):
    """Return the stored answer of a report to a question."""
    found = (q for q in trace._viewer_scene.questions if re.search(q.pattern, question.lower()))
    return next(found)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

    def forward(self, x):
        return self.second(self.first(x).exp()).sin().sum()


def recorded(*, given):
    model = Net()
    with autogradviz.record(model if given else None) as trace:
        model(torch.rand(4, 8)).backward()
    return trace


def test_names_of_modules_may_have_or_lack_the_name_of_the_model():
    for trace in (recorded(given=True), recorded(given=False)):
        plain, with_class = (
            trace.predict_memory(checkpoint=name) for name in ("second", "Net.second")
        )
        assert plain == with_class
        assert len(plain.checkpoint) == 1
        assert trace.saved_bytes("second") == trace.saved_bytes("Net.second")


def sums_by_module(trace):
    scene = trace._viewer_scene
    times = {row.module: 0 for row in scene.module_times}
    for row in scene.module_times:
        times[row.module] += row.count
    sizes = dict.fromkeys((row.module for row in scene.counted_storages), 0)
    for row in scene.counted_storages:
        sizes[row.module] += row.nbytes
    places = {(node.module, node.name) for node in scene.nodes}
    return times, sizes, places


def test_ops_of_the_models_own_forward_belong_to_its_class_with_and_without_a_model():
    given, found = (sums_by_module(recorded(given=given)) for given in (True, False))
    assert ("Net", "ExpBackward0") in given[2]
    assert ("Net", "ExpBackward0") in found[2]
    for own, other in zip(given[:2], found[:2], strict=True):
        assert own == {name.removeprefix("Net."): number for name, number in other.items()}
