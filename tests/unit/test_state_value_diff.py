"""Snapshots of Python state, and differences between two snapshots."""

import collections
import weakref

import numpy as np
import pytest
import torch

from autogradviz.event_log.state_value_diff import find_change_kind, to_value
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


def test_state_paths_are_tuples_of_names_and_items():
    module = torch.nn.Linear(2, 2)
    module.cache = {"k": [Thing()]}
    module.cache["k"][0].x = 3
    found = StateReader().read(module, (), {})
    assert found["self", "cache", "['k']", "[0]", "x"] == "3"
    assert found["self", "cache", "['k']"].text == "len 1"
    assert found["self", "weight"].requires_grad
