"""State of installed packages: what their code reads is found, whatever else they contain."""

import importlib
import sys
import textwrap

import pytest
import torch
from torch import nn

from autogradviz.recorder.checkpoint import state_walk
from autogradviz.recorder.checkpoint.state_reader import MAX_FORMS, StateReader
from autogradviz.recorder.choose_engine import choose_engine

TAKE_SNAPSHOT = choose_engine("auto", reads_contents=False).take_snapshot
PACKAGE = "package_with_layers"
LAYERS = """
import logging
import os
from contextvars import ContextVar
from torch import nn
from package_with_layers import tools

logger = logging.getLogger(__name__)
FLAGS = {"mode": "train"}
FUNCTIONS = {"scaled": lambda x: x}
FACTOR = 2.0
collected = ContextVar("collected", default=None)

def helper(x, power=1):
    return x * FACTOR ** power

class Config:
    plan = {"layers": "split"}
    def __init__(self):
        self.activation = "relu"
        self.levels = [1, 2]
    def save(self):
        return tools.tool_0(self)

class Base(nn.Module):
    def save(self):
        return tools.tool_1(self)
    def run(self, x):
        if os.environ.get("PACKAGE_MODE") == "fast" or FLAGS["mode"] == "fast":
            logger.warning("fast")
        outputs = collected.get()
        if outputs is not None:
            outputs["x"].append(x)
        return FUNCTIONS["scaled"](helper(x))

class Layer(Base):
    tied = ["weight"]
    def __init__(self, config, inner):
        super().__init__()
        self.config, self.inner, self.linear = config, inner, nn.Linear(2, 2)
    def forward(self, x, positions=None, step=0):
        return self.run(self.inner(self.linear(x))) if self.tied else x
"""
OPTIONS = {"users": 1}


class Inner(nn.Module):
    """A layer of the user's in one of the package's."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        return x * OPTIONS["users"]


def users_function(x):
    return x + OPTIONS["users"]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a function that installs a package with some functions, and imports its layers."""
    monkeypatch.setitem(globals(), "OPTIONS", {"users": 1})

    def install(tools):
        folder = tmp_path / "site-packages" / PACKAGE
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "layers.py").write_text(LAYERS)
        tool = "TABLE_{0} = {{'a': {0}}}\ndef tool_{0}(x):\n    return x, TABLE_{0}, tool_{1}\n"
        text = "".join(tool.format(n, (n + 1) % tools) for n in range(tools))
        (folder / "tools.py").write_text(textwrap.dedent(text))
        monkeypatch.syspath_prepend(folder.parent)
        return importlib.import_module(f"{PACKAGE}.layers")

    yield install
    for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
        del sys.modules[name]


def new_layer(layers):
    return layers.Layer(layers.Config(), Inner())


def read_without_walks(reader, function, arguments=()):
    """Return the readings of a reader that remembers the ids of objects, but no walk."""
    fresh = StateReader()
    fresh._ids = reader._ids
    return fresh.read(function, arguments, {})


CHANGES = {
    "attribute of a configuration": lambda _, layer: setattr(layer.config, "activation", "silu"),
    "item in a configuration": lambda _, layer: layer.config.levels.append(3),
    "table of its class": lambda _, layer: type(layer.config).plan.update(layers="whole"),
    "layer of the user's": lambda _, layer: setattr(layer.inner, "calls", 1),
    "global of the user's layer": lambda *_: OPTIONS.update(users=2),
    "flag of the package": lambda layers, _: layers.FLAGS.update(mode="fast"),
    "number of the package": lambda layers, _: setattr(layers, "FACTOR", 3.0),
    "registered function": lambda layers, _: layers.FUNCTIONS.update(scaled=users_function),
    "function of the same file": lambda layers, _: setattr(layers, "helper", users_function),
    "default of such a function": lambda layers, _: setattr(layers.helper, "__defaults__", (2,)),
    "method": lambda layers, _: setattr(layers.Layer, "forward", lambda self, _: OPTIONS),
    "method that forward calls": lambda layers, _: setattr(layers.Base, "run", users_function),
    "table of the layer's class": lambda layers, _: layers.Layer.tied.append("bias"),
    "level of a logger": lambda layers, _: layers.logger.setLevel(10),
    "hook": lambda _, layer: layer.linear.register_forward_hook(lambda *_: None),
    "context variable": lambda layers, _: layers.collected.set({"x": []}),
    "weight": lambda _, layer: layer.linear.weight.data.add_(1),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_change_of_what_a_package_reads_is_found(package, change):
    layers = package(3)
    layer, reader = new_layer(layers), StateReader(TAKE_SNAPSHOT)
    for _ in range(3):
        before = reader.read(layer, (), {})
    change(layers, layer)
    after = reader.read(layer, (), {})
    assert list(after.items()) == list(read_without_walks(reader, layer).items())
    assert ("self", "linear", "weight") in after
    assert after != before or change is CHANGES["weight"]


def test_function_that_a_user_registered_is_read_with_its_globals(package):
    layers = package(3)
    layer, reader = new_layer(layers), StateReader(TAKE_SNAPSHOT)
    layers.FUNCTIONS["scaled"] = users_function
    layer.inner = None
    before = reader.read(layer, (), {})
    OPTIONS["users"] = 5
    assert reader.read(layer, (), {})["OPTIONS", "['users']"] == "5"
    assert before["OPTIONS", "['users']"] == "1"


def test_environment_variable_of_a_package_is_read(package, monkeypatch):
    layer, reader = new_layer(package(3)), StateReader(TAKE_SNAPSHOT)
    path = ("os", "environ", "['PACKAGE_MODE']")
    assert reader.read(layer, (), {})[path] == "None"
    monkeypatch.setenv("PACKAGE_MODE", "fast")
    assert reader.read(layer, (), {})[path] == "'fast'"


@pytest.mark.parametrize("tools", [2, 500])
def test_what_is_read_does_not_depend_on_the_size_of_a_package(package, tools):
    layer, reader = new_layer(package(tools)), StateReader(TAKE_SNAPSHOT)
    reader.read(layer, (), {})
    ((walk,),) = reader._walks.values()
    context_variable_name = sys.version_info >= (3, 14)  # is read from there on
    assert len(walk._places) == 46 + context_variable_name


@pytest.mark.skipif(TAKE_SNAPSHOT is None, reason="needs the native engine")
def test_next_steps_walk_no_more(package, monkeypatch):
    layers = package(3)
    modules, reader = [new_layer(layers) for _ in range(3)], StateReader(TAKE_SNAPSHOT)
    walks = []

    def counted(walk, original=state_walk.StateWalk.walk):
        walks.append(walk)
        return original(walk)

    monkeypatch.setattr(state_walk.StateWalk, "walk", counted)
    for step in range(4):
        layers.collected.set({f"{chr(120)}": []})
        del walks[:]
        for layer in modules:
            for time in ("enter", "exit"):
                positions = (torch.ones(2), torch.ones(3))
                call = lambda *args, layer=layer: layer(*args)  # noqa: E731 - a new one each time
                found = reader.read(call, (None, positions, step), {})
                assert found["args", "[2]"] == str(step)
                expected = read_without_walks(reader, call, (None, positions, step))
                walks.pop()
                assert list(found.items()) == list(expected.items())
                if time == "enter":
                    layers.collected.get()["x"].append(torch.ones(1))
                    layer.inner.calls += 1
                    layer.linear.weight.data.add_(1)
    assert not walks
    assert all(len(each) <= MAX_FORMS for each in reader._walks.values())
