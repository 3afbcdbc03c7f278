"""Snapshots of walks over state, which C++ takes and compares with what is there now."""

from __future__ import annotations

import argparse
import enum
import types
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.recorder.checkpoint.inspect_user_code import (
    from_library,
    has_slots,
    is_elsewhere,
    is_installed,
    is_installed_class,
    is_user_module,
    names_in_class,
    names_of,
)
from autogradviz.recorder.checkpoint.state_walk import (
    MAX_DEPTH,
    TABLES,
    StateWalk,
    is_hook_table,
    is_user_attribute,
    reads_environment,
)
from autogradviz.recorder.checkpoint.value_repr import (
    BUILT_IN_CONTAINERS,
    CONTAINERS,
    WITH_PARTS,
    parts_of,
)
from autogradviz.recorder.torch_internals.wrapper_tensors import PLAIN_TENSORS
from autogradviz.recorder.user_code_frames import is_library

if TYPE_CHECKING:
    from autogradviz.recorder.checkpoint.state_walk import Path
    from autogradviz.recorder.checkpoint.state_walk_snapshot import Readings, Snapshot
    from autogradviz.recorder.checkpoint.value_repr import ObjectIds
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
    TENSOR = 7
    OTHER = 8


_READ_BY_FACTS: Final = frozenset(
    {_Form.FUNCTION, _Form.CONTAINER, _Form.USER_CLASS}
)  # fmt: skip
"""Forms whose readings are the same if their facts are, unless they are read in Python."""
_REPLACEABLE: Final = BUILT_IN_CONTAINERS | PLAIN_TENSORS | {types.FunctionType}
"""Classes whose readings and parts do not depend on which object it is."""
_NAMESPACES: Final = frozenset({types.SimpleNamespace, argparse.Namespace})
_WITHOUT_PARTS: Final = (types.ModuleType, torch.Tensor, enum.Enum)
_OWN, _HOOKS, _FIRST_TABLE = 1, 2, 3  # of ``AttributeRole`` in C++


def take_snapshot(
    extension: Extension, walk: StateWalk, roots: int, readings: Readings
) -> Snapshot | None:
    """Return a snapshot of a walk that has ended, None if its values have changed meanwhile.

    Args:
        extension: the C++ extension.
        walk: the walk.
        roots: the number of values that were queued before it began.
        readings: those of its values that can change while they stay the same object.
    """
    listed, known, classes = [], {}, list(walk.classes)
    for number, (index, length, before, after) in enumerate(walk.visits):
        value, (path, depth) = walk.values[index], walk.places[index]
        form = _form_of(value)
        if form in _READ_BY_FACTS:
            known[id(value)] = number
        place = (walk.ids, path, depth, tuple(classes[:before]))
        listed.append(
            (index, int(form), length, depth < MAX_DEPTH, depth == 0, after > before, place)
        )
    tensors, by_facts, others = [], [], []
    for number, (index, _, facts) in enumerate(readings):
        visit = known.get(id(walk.values[index]))
        if facts is not None:
            tensors.append((number, index))
        elif visit is not None:
            by_facts.append((number, visit))
        else:
            others.append((number, index))
    counts = Counter(map(id, walk.values))
    replaceable = [
        index for index, value in enumerate(walk.values)
        if type(value) in _REPLACEABLE and counts[id(value)] == 1
    ]  # fmt: skip
    return extension.take_snapshot(
        walk.values, roots, listed, tensors, by_facts, others, replaceable, _QUESTIONS
    )


def _form_of(value: Any) -> _Form:
    """Return the way in which the parts of a value are read."""
    kind = type(value)
    form = _Form.OTHER
    if kind in PLAIN_TENSORS:
        form = _Form.TENSOR
    elif isinstance(value, torch.nn.Module):
        form = _Form.MODULE
    elif kind is types.FunctionType:
        form = _Form.FUNCTION
    elif kind in BUILT_IN_CONTAINERS or kind is torch.Size:
        form = _Form.CONTAINER
    elif kind in _NAMESPACES:
        form = _Form.NAMESPACE
    elif not (isinstance(value, CONTAINERS) or kind in WITH_PARTS):
        form = _form_of_other(value, kind)
    return form


def _form_of_other(value: Any, kind: type) -> _Form:
    if isinstance(value, type) and not from_library(value):
        return _Form.OTHER if is_installed_class(value) else _Form.USER_CLASS
    if isinstance(value, (type, *_WITHOUT_PARTS)) or from_library(kind):
        return _Form.LEAF
    return _Form.OTHER if has_slots(kind) else _Form.OBJECT


def _role_of_attribute(name: str) -> int:
    """Return the role of an attribute of a module; the numbers are those of C++."""
    if name in TABLES:
        return _FIRST_TABLE + TABLES.index(name)
    if is_user_attribute(name):
        return _OWN
    return _HOOKS if is_hook_table(name) else 0


def _origin_of_code(code: types.CodeType) -> int:
    """Return the origin of code; the numbers are those of C++."""
    return 1 if is_library(code.co_filename) else 2 * is_installed(code.co_filename)


def _names_of(code: types.CodeType) -> tuple[str, ...] | None:
    """Return the names that code reads, None if it reads environment variables."""
    names = names_of(code)
    return None if reads_environment(names) else names


def _parts_of(
    value: Any, place: tuple[ObjectIds, Path, int, tuple[Any, ...]]
) -> tuple[tuple[Any, ...], list[Any]]:
    """Return the places of the parts of a value, and the parts."""
    if type(value) in WITH_PARTS:  # and nothing else
        parts = parts_of(value)
        return tuple([name for name, _ in parts]), [part for _, part in parts]
    ids, path, depth, classes = place
    walk = StateWalk(ids, classes)
    walk.visit(path, value, depth)
    return (*walk.places, *walk.found.items()), walk.values


_QUESTIONS: Final = (
    from_library, is_user_module, _role_of_attribute, _origin_of_code, _names_of,
    is_elsewhere, names_in_class, _parts_of,
)  # fmt: skip
"""Functions that C++ calls, in its order."""
