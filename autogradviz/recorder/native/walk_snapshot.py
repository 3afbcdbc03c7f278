"""Snapshots of walks over state, which C++ takes and compares with what is there now."""

from __future__ import annotations

import argparse
import enum
import types
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.recorder.checkpoint.inspect_user_code import (
    from_library,
    has_slots,
    is_user_module,
    names_of,
)
from autogradviz.recorder.checkpoint.module_attributes import (
    TABLES,
    is_hook_table,
    is_user_attribute,
    parts_of_module,
)
from autogradviz.recorder.checkpoint.state_walk import MAX_DEPTH, reads_environment
from autogradviz.recorder.checkpoint.value_repr import (
    BUILT_IN_CONTAINERS,
    CONTAINERS,
    WITH_PARTS,
)
from autogradviz.recorder.torch_internals.plain_tensors import PLAIN_TENSORS
from autogradviz.recorder.user_code_frames import is_library

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.recorder.checkpoint.repeated_walk import Readings, Snapshot
    from autogradviz.recorder.checkpoint.state_walk import StateWalk, Visit
    from autogradviz.recorder.native.extension_types import Extension


class _Form(enum.IntEnum):
    """The way in which the parts of a value are read; the numbers are those of C++."""

    LEAF = 0
    MODULE = 1
    FUNCTION = 2
    CONTAINER = 3
    OBJECT = 4
    NAMESPACE = 5
    USER_CLASS = 6
    METHOD = 7
    TENSOR = 8


_READ_BY_FACTS: Final = frozenset(_Form) - {_Form.LEAF, _Form.TENSOR}
"""Forms whose readings are the same if their parts are."""
_NAMESPACES: Final = frozenset({types.SimpleNamespace, argparse.Namespace})
_WITHOUT_PARTS: Final = (types.ModuleType, torch.Tensor, enum.Enum)
_OWN, _HOOKS, _FIRST_TABLE = 1, 2, 3  # of ``AttributeRole`` in C++


def take_snapshot(
    extension: Extension,
    walk: StateWalk,
    roots: int,
    visits: Sequence[Visit],
    readings: Readings,
) -> Snapshot | None:
    """Return a snapshot of a walk, None if it visited a value that C++ does not read.

    Args:
        extension: the C++ extension.
        walk: a walk that has ended.
        roots: the number of values that were queued before it began.
        visits: its visits.
        readings: those of its values that can change while they stay the same object.
    """
    listed, known = [], set()
    for index, _, length, names, with_methods in visits:
        value, depth = walk.values[index], walk.places[index][1]
        form = _form_of(value, depth, names)
        if form is None:
            return None
        if form in _READ_BY_FACTS:
            known.add(id(value))
        listed.append((index, int(form), length, depth < MAX_DEPTH, depth == 0, with_methods))
    tensors, others = [], []
    for number, (index, _, facts) in enumerate(readings):
        if facts is not None:
            tensors.append((number, index))
        elif id(walk.values[index]) not in known:
            others.append((number, index))
    return extension.take_snapshot(walk.values, roots, listed, tensors, others, _QUESTIONS)


def _form_of(value: Any, depth: int, names: tuple[str, ...] | None) -> _Form | None:
    """Return the way in which C++ reads the parts of a value, None if it does not."""
    kind = type(value)
    form: _Form | None = None
    if kind in PLAIN_TENSORS:
        form = _Form.TENSOR
    elif isinstance(value, torch.nn.Module):
        if names is not None or (depth == MAX_DEPTH and parts_of_module(value) is not None):
            form = _Form.MODULE
    elif kind is types.FunctionType:
        form = _Form.FUNCTION
    elif kind in BUILT_IN_CONTAINERS or kind is torch.Size:
        form = _Form.CONTAINER
    elif kind is types.MethodType:
        form = _Form.METHOD
    elif kind in _NAMESPACES:
        form = _Form.NAMESPACE
    elif not (isinstance(value, CONTAINERS) or kind in WITH_PARTS):
        form = _form_of_other(value, kind)
    return form


def _form_of_other(value: Any, kind: type) -> _Form | None:
    if isinstance(value, type):
        return _Form.LEAF if from_library(value) else _Form.USER_CLASS
    if isinstance(value, _WITHOUT_PARTS) or from_library(kind):
        return _Form.LEAF
    return None if has_slots(kind) else _Form.OBJECT


def _role_of_attribute(name: str) -> int:
    """Return the role of an attribute of a module; the numbers are those of C++."""
    if name in TABLES:
        return _FIRST_TABLE + TABLES.index(name)
    if is_user_attribute(name):
        return _OWN
    return _HOOKS if is_hook_table(name) else 0


def _names_of(code: types.CodeType) -> tuple[str, ...] | None:
    """Return the names that code reads, None if it reads environment variables."""
    names = names_of(code)
    return None if reads_environment(names) else names


_QUESTIONS: Final = (
    from_library,
    is_user_module,
    _role_of_attribute,
    lambda code: is_library(code.co_filename),
    _names_of,
)
"""Functions that C++ calls while it takes a snapshot, in its order."""
