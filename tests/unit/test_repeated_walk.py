"""State of a region that is read a second time: no change is missed."""

import functools
import gc
import weakref

import pytest
import torch
from torch import nn

from autogradviz.recorder.checkpoint.state_reader import MAX_WALKS, StateReader
from autogradviz.recorder.checkpoint.state_walk import MAX_OBJECTS

SETTINGS = {"mode": "train"}
LIMIT = 3


class Cache:
    def __init__(self):
        self.entries = [1, 2]


class Inner(nn.Module):
    shared = []  # noqa: RUF012 - its changes are under test

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.norm = nn.BatchNorm1d(2)
        self.calls = 0
        self.scale = 0.0
        self.history = []
        self.cache = Cache()
        self.numbers = iter(range(9))
        self.twin = self.history

    def forward(self, x):
        return self.linear(x) * LIMIT + len(SETTINGS)


def set_global(_):
    global LIMIT  # noqa: PLW0603 - its changes are under test
    LIMIT += 1


CHANGES = {
    "plain attribute": lambda m: setattr(m, "calls", m.calls + 1),
    "sign of zero": lambda m: setattr(m, "scale", -0.0),
    "class of a plain attribute": lambda m: setattr(m, "calls", False),
    "new attribute": lambda m: setattr(m, "late", 1),
    "deleted attribute": lambda m: delattr(m, "calls"),
    "attribute in another place": lambda m: (delattr(m, "calls"), setattr(m, "calls", 0)),
    "list that grows": lambda m: m.history.append("x"),
    "other object": lambda m: setattr(m, "cache", Cache()),
    "attribute of an object": lambda m: setattr(m.cache, "size", 2),
    "item in an object": lambda m: m.cache.entries.__setitem__(0, 5),
    "iterator": lambda m: next(m.numbers),
    "training flag of a submodule": lambda m: m.norm.eval(),
    "version": lambda m: m.norm.running_mean.add_(1),
    "memory": lambda m: setattr(m.linear.weight, "data", torch.ones(2, 2)),
    "dtype": lambda m: m.linear.to(torch.float64),
    "requires_grad": lambda m: m.linear.weight.requires_grad_(False),
    "attribute of a tensor": lambda m: setattr(m.linear.weight, "name_hint", "w"),
    "other parameter": lambda m: setattr(m.linear, "bias", nn.Parameter(torch.ones(2))),
    "parameter that is removed": lambda m: setattr(m.linear, "bias", None),
    "submodule": lambda m: setattr(m, "linear", nn.Linear(2, 2)),
    "new submodule": lambda m: m.add_module("extra", nn.ReLU()),
    "hook": lambda m: m.linear.register_forward_hook(lambda *_: None),
    "class": lambda m: setattr(m.linear, "__class__", type("Other", (nn.Linear,), {})),
    "list no longer shared": lambda m: setattr(m, "twin", []),
    "item of a global": lambda _: SETTINGS.update(mode="eval"),
    "new item of a global": lambda _: SETTINGS.update(late=1),
    "global": set_global,
    "list of the class": lambda _: Inner.shared.append(1),
}


@pytest.fixture
def module(monkeypatch):
    monkeypatch.setitem(globals(), "SETTINGS", {"mode": "train"})
    monkeypatch.setitem(globals(), "LIMIT", 3)
    monkeypatch.setattr(Inner, "shared", [])
    return Inner()


def read_without_walks(reader, function, arguments=()):
    """Return the readings of a reader that remembers the ids of objects, but no walk."""
    fresh = StateReader()
    fresh._ids = reader._ids
    return fresh.read(function, arguments, {})


def test_readings_without_a_change_are_the_same_object(module):
    reader = StateReader()
    first = reader.read(module, (None, 1), {})
    assert reader.read(module, (None, 1), {}) is first
    assert first == read_without_walks(reader, module, (None, 1))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_each_change_is_found_as_in_a_new_walk(module, change):
    reader = StateReader()
    before = reader.read(module, (), {})
    kept = dict(before)
    change(module)
    after = reader.read(module, (), {})
    assert list(after.items()) == list(read_without_walks(reader, module).items())
    assert before == kept
    again = reader.read(module, (), {})
    assert again is after


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_each_change_is_found_after_another_one(module, change):
    reader = StateReader()
    reader.read(module, (), {})
    module.norm.running_var.add_(1)
    reader.read(module, (), {})
    change(module)
    after = reader.read(module, (), {})
    assert list(after.items()) == list(read_without_walks(reader, module).items())


def test_bound_methods_partials_and_new_functions_are_read(module):
    reader = StateReader()
    for function in (module.forward, functools.partial(module.forward), lambda: module.calls):
        first = reader.read(function, (), {})
        assert reader.read(function, (), {}) is first
        module.calls += 1
        after = reader.read(function, (), {})
        assert after != first
        assert after == read_without_walks(reader, function)


def test_number_and_values_of_arguments_are_compared(module):
    reader = StateReader()
    for arguments in ((1,), (1, 2), (), (1.0,), (True,), ([1],), (None,)):
        found = reader.read(module, arguments, {})
        assert found == read_without_walks(reader, module, arguments)


def test_environment_variable_is_compared_by_its_text(module, monkeypatch):
    reader = StateReader()
    monkeypatch.setenv("STATE_MODE", "fast and long enough not to be shared")

    def function():
        import os

        return os.environ["STATE_MODE"]

    first = reader.read(function, (), {})
    assert reader.read(function, (), {}) is first
    monkeypatch.setenv("STATE_MODE", "slow")
    assert reader.read(function, (), {}) == read_without_walks(reader, function) != first


def test_walk_that_reaches_its_limit_is_repeated():
    reader = StateReader()
    module = nn.Sequential(*[nn.Linear(1, 1) for _ in range(MAX_OBJECTS // 2)])
    first = reader.read(module, (), {})
    assert reader.read(module, (), {}) is first
    module[0].in_features = 7
    assert reader.read(module, (), {}) == read_without_walks(reader, module) != first


def test_no_object_is_kept():
    reader, module = StateReader(), Inner()
    died = [weakref.ref(each) for each in (module, module.cache, module.linear.weight)]
    reader.read(module, (), {})
    reader.read(module, (), {})
    del module
    gc.collect()
    assert [each() for each in died] == [None] * 3


def test_long_texts_are_not_kept_and_walks_are_bounded():
    reader = StateReader()
    modules = [nn.Identity() for _ in range(MAX_WALKS + 2)]
    modules[-1].text = "x" * 100_000
    for module in modules:
        reader.read(module, (), {})
    assert len(reader._walks) == MAX_WALKS
    modules[-1].text = "y" * 100_000
    assert reader.read(modules[-1], (), {})["self", "text"].startswith("'y")
