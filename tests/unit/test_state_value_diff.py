"""Snapshots of Python state, and differences between two snapshots."""

import collections
import weakref

import numpy as np
import pytest
import torch

from autogradviz.event_log.compare_state_readings import StateValue, find_change_kind, to_value
from autogradviz.events import path_text
from autogradviz.recorder.checkpoint.state_reader import StateReader
from autogradviz.recorder.checkpoint.value_repr import ObjectIds, read_value


class Thing:
    """An object without a known value type."""


def reading(value, ids=None):
    return to_value(read_value(value, ids or ObjectIds()))


@pytest.mark.parametrize(
    ("value", "kind", "text", "number"),
    [
        (3, "plain", "3", 3.0),
        (-2.5e-8, "plain", "-2.5e-08", -2.5e-8),
        (float("inf"), "plain", "inf", None),
        (float("nan"), "plain", "nan", None),
        (-float("inf"), "plain", "-inf", None),
        (2j, "plain", "2j", None),
        (True, "plain", "True", None),
        ("7", "plain", "'7'", None),
        (None, "plain", "None", None),
        (10**70, "plain", "1" + 59 * "0", 1e59),
        (torch.float16, "plain", "torch.float16", None),
        (np.float64(0.5), "plain", "0.5", 0.5),
        ([1, 2], "container", "len 2", 2),
        ({"a": 1, "b": 2}, "container", "len 2, 'a' first", 2),
        (bytearray(b"ab"), "container", "len 2, content 3ae897a7", 2),
        (iter([1, 2, 3]), "iterator", "3 left", 3),
        (torch.zeros(2, 3), "tensor", "float32 2×3 #1 v0", None),
        (torch.zeros(2, requires_grad=True), "tensor", "float32 2 #1 v0, requires grad", None),
        (torch.nn.ReLU(), "object", "ReLU #1", None),
        (weakref.ref(collections.deque()), "weak_reference", "dead", None),
    ],
)  # fmt: skip
def test_value_has_kind_text_and_number(value, kind, text, number):
    found = reading(value)
    assert (found.kind, found.text, found.number) == (kind, text, number)


def test_object_of_unknown_type_is_not_read():
    assert read_value(Thing(), ObjectIds()) is None


def test_tensor_value_has_identity_version_and_requires_grad():
    ids, tensor = ObjectIds(), torch.zeros(2)
    before = reading(tensor, ids)
    tensor.add_(1)
    written = reading(tensor, ids)
    tensor.requires_grad_()
    leaf, other = reading(tensor, ids), reading(torch.zeros(2), ids)
    assert (before.object_id, before.version, before.requires_grad) == (1, 0, False)
    assert find_change_kind(before, written) == "version"
    assert find_change_kind(written, leaf) == "requires_grad"
    assert find_change_kind(written, other) == "identity"
    assert find_change_kind(other, reading(torch.zeros(3), ids)) == "value"


def plain(text, number=None):
    return StateValue("plain", text, number)


def length(number, text=""):
    return StateValue("container", f"len {number}{text}", number)


def tensor_value(form, storage, version, requires_grad=False):
    return StateValue(
        "tensor", form, object_id=storage, version=version, requires_grad=requires_grad
    )


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (None, plain("1", 1.0), "added"),
        (plain("1", 1.0), None, "removed"),
        (plain("1", 1.0), plain("'one'"), "value"),
        (plain("None"), length(2), "type"),
        (length(3), length(2), "size"),
        (length(3, ", 'a' first"), length(3, ", 'b' first"), "content"),
        (StateValue("cache", "0 cached", 0), StateValue("cache", "4 cached", 4), "size"),
        (StateValue("weak_reference", "alive"), StateValue("weak_reference", "dead"), "died"),
        (StateValue("object", "Linear", object_id=3), StateValue("object", "Linear", object_id=4),
         "identity"),
        (StateValue("object", "Linear", object_id=3), StateValue("object", "Identity", object_id=3),
         "class"),
        (StateValue("object", "Linear", object_id=3), StateValue("object", "Identity", object_id=4),
         "value"),
        (tensor_value("float32 2×4", 1, 0), tensor_value("float32 2×4", 1, 1), "version"),
        (tensor_value("float32 2×4", 1, 0), tensor_value("float32 2×4", 2, 0), "identity"),
        (tensor_value("float32 2×4", 1, 0), tensor_value("float32 2×4", 1, 0, True),
         "requires_grad"),
        (tensor_value("float32 2×4", 1, 0), tensor_value("float32 2×4", 1, 1, True), "value"),
        (tensor_value("float32 2×4 cuda:0", 1, 0), tensor_value("float32 2×4", 1, 0), "value"),
        (tensor_value("float32 2 ", None, 0), tensor_value("float32 2 ", None, 1), "version"),
        (StateValue("rng", "state 00000000"), StateValue("rng", "state 00000001"), "value"),
        (StateValue("array", "int64 2 00000000"), StateValue("array", "int64 2 00000001"),
         "content"),
        (plain("'v1'"), plain("'v2'"), "value"),
    ],
)  # fmt: skip
def test_change_kind_says_what_differs(before, after, kind):
    assert find_change_kind(before, after) == kind


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (("x",), "x"),
        (("self", "layers", "[1]", "bias"), "self.layers[1].bias"),
        (("cache", "['a.b']", "x"), "cache['a.b'].x"),
        (("names", "[0]"), "names[0]"),
    ],
)
def test_text_of_a_path_is_python(path, name):
    assert path_text(path) == name


def test_state_paths_are_tuples_of_names_and_items():
    module = torch.nn.Linear(2, 2)
    module.cache = {"k": [Thing()]}
    module.cache["k"][0].x = 3
    found = StateReader().read(module, (), {})
    assert found["self", "cache", "['k']", "[0]", "x"] == "3"
    assert found["self", "cache", "['k']"].text == "len 1"
    assert found["self", "weight"].requires_grad
