"""State of a region that is read a second time: no change is missed."""

import functools
import gc
import types
import weakref

import pytest
import torch
from torch import nn

from autogradviz.recorder.checkpoint.state_reader import MAX_WALKS, StateReader
from autogradviz.recorder.checkpoint.state_walk import MAX_OBJECTS
from autogradviz.recorder.choose_engine import choose_engine

SETTINGS = {"mode": "train"}
LIMIT = 3
TAKE_SNAPSHOT = choose_engine("auto", reads_contents=False).take_snapshot


class Cache:
    kinds = {1}  # noqa: RUF012 - its changes are under test

    def __init__(self):
        self.entries = [1, 2]

    def size(self, least=0, *, most=10):
        return least + most + len(SETTINGS)

    @staticmethod
    def limit():
        return LIMIT


class Options:
    mode = "fast"
    levels = (1, 2)


def scaled(value, factor=2, *, shift=0):
    return value * factor + shift


def counting():
    count = 0

    def count_one():
        nonlocal count
        count += 1

    return count_one


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
        self.options = types.SimpleNamespace(depth=2, names=["a"])
        self.sizes = torch.Size([2, 3])
        self.numbers_seen = set(range(5))
        self.steps = list(range(300, 340))
        self.parts = [object() for _ in range(20)]
        self.count_one = counting()
        self.method = self.cache.size

    def forward(self, x):
        return scaled(self.linear(x) * LIMIT + len(SETTINGS)) if Options.mode else x


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
    "new method": lambda _: setattr(Cache, "late", lambda self: SETTINGS),
    "other method": lambda _: setattr(Cache, "size", lambda self: LIMIT),
    "method replaced by a value": lambda _: setattr(Cache, "limit", 3),
    "set of a class": lambda _: Cache.kinds.add(2),
    "default": lambda _: setattr(scaled, "__defaults__", (3,)),
    "keyword default": lambda _: scaled.__kwdefaults__.update(shift=1),
    "attribute of a function": lambda _: setattr(scaled, "calls", 1),
    "code": lambda _: setattr(scaled, "__code__", (lambda value, factor: SETTINGS).__code__),
    "cell": lambda m: m.count_one(),
    "class attribute of a named class": lambda _: setattr(Options, "mode", "slow"),
    "name of a class": lambda _: setattr(Options, "__name__", "Settings"),
    "namespace": lambda m: setattr(m.options, "depth", 3),
    "list in a namespace": lambda m: m.options.names.append("b"),
    "item of a set": lambda m: (m.numbers_seen.remove(0), m.numbers_seen.add(9)),
    "late item of a long list": lambda m: m.steps.__setitem__(30, 7),
    "length of a list of objects": lambda m: m.parts.pop(),
    "object of a method": lambda m: setattr(m.method.__self__, "entries", []),
    "hidden global": lambda _: globals().pop("LIMIT"),
    "key of a dictionary": lambda _: SETTINGS.update({"step": SETTINGS.pop("mode")}),
}


@pytest.fixture
def module(monkeypatch):
    monkeypatch.setitem(globals(), "SETTINGS", {"mode": "train"})
    monkeypatch.setitem(globals(), "LIMIT", 3)
    monkeypatch.setattr(Inner, "shared", [])
    for each in (Cache, Options):
        entries = {k: v for k, v in vars(each).items() if k not in {"__dict__", "__weakref__"}}
        monkeypatch.setitem(globals(), each.__name__, type(each.__name__, (), entries))
    Cache.kinds = {1}
    monkeypatch.setitem(globals(), "scaled", copied(scaled))
    return Inner()


def copied(function):
    copy = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__
    )
    copy.__kwdefaults__ = dict(function.__kwdefaults__)
    return copy


def new_reader():
    """Return a reader that compares in C++ where the tests use the native engine."""
    return StateReader(TAKE_SNAPSHOT)


def compares_in_cpp(reader):
    return any(walk._snapshot is not None for walks in reader._walks.values() for walk in walks)


def read_without_walks(reader, function, arguments=()):
    """Return the readings of a reader that remembers the ids of objects, but no walk."""
    fresh = StateReader()
    fresh._ids = reader._ids
    return fresh.read(function, arguments, {})


def test_readings_without_a_change_are_the_same_object(module):
    reader = new_reader()
    first = reader.read(module, (None, 1), {})
    assert reader.read(module, (None, 1), {}) is first
    assert first == read_without_walks(reader, module, (None, 1))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_each_change_is_found_as_in_a_new_walk(module, change):
    reader = new_reader()
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
    reader = new_reader()
    reader.read(module, (), {})
    for _ in range(3):
        module.norm.running_var.add_(1)
        found = reader.read(module, (), {})
        assert list(found.items()) == list(read_without_walks(reader, module).items())
    assert compares_in_cpp(reader) == (TAKE_SNAPSHOT is not None)
    assert reader.read(module, (), {}) is found
    change(module)
    after = reader.read(module, (), {})
    assert list(after.items()) == list(read_without_walks(reader, module).items())


def test_bound_methods_partials_and_new_functions_are_read(module):
    reader = new_reader()
    for function in (module.forward, functools.partial(module.forward), lambda: module.calls):
        first = reader.read(function, (), {})
        assert reader.read(function, (), {}) is first
        module.calls += 1
        after = reader.read(function, (), {})
        assert after != first
        assert after == read_without_walks(reader, function)


def test_number_and_values_of_arguments_are_compared(module):
    reader = new_reader()
    for arguments in ((1,), (1, 2), (), (1.0,), (True,), ([1],), (None,)):
        found = reader.read(module, arguments, {})
        assert found == read_without_walks(reader, module, arguments)


def test_environment_variable_is_compared_by_its_text(module, monkeypatch):
    reader = new_reader()
    monkeypatch.setenv("STATE_MODE", "fast and long enough not to be shared")

    def function():
        import os

        return os.environ["STATE_MODE"]

    first = reader.read(function, (), {})
    assert reader.read(function, (), {}) is first
    monkeypatch.setenv("STATE_MODE", "slow")
    assert reader.read(function, (), {}) == read_without_walks(reader, function) != first


def test_walk_that_reaches_its_limit_is_repeated():
    reader = new_reader()
    module = nn.Sequential(*[nn.Linear(1, 1) for _ in range(MAX_OBJECTS // 2)])
    first = reader.read(module, (), {})
    assert reader.read(module, (), {}) is first
    module[0].in_features = 7
    assert reader.read(module, (), {}) == read_without_walks(reader, module) != first


def test_no_object_is_kept():
    reader, module = new_reader(), Inner()
    died = [weakref.ref(each) for each in (module, module.cache, module.linear.weight)]
    for _ in range(4):
        reader.read(module, (), {})
    assert compares_in_cpp(reader) == (TAKE_SNAPSHOT is not None)
    del module
    gc.collect()
    assert [each() for each in died] == [None] * 3


def test_long_texts_are_not_kept_and_walks_are_bounded():
    reader = new_reader()
    modules = [nn.Identity() for _ in range(MAX_WALKS + 2)]
    modules[-1].text = "x" * 100_000
    for module in modules:
        reader.read(module, (), {})
    assert len(reader._walks) == MAX_WALKS
    modules[-1].text = "y" * 100_000
    assert reader.read(modules[-1], (), {})["self", "text"].startswith("'y")
