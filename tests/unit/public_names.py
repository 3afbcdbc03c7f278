"""The public names of autogradviz, for the tests of its API."""

from __future__ import annotations

import inspect

import autogradviz

NOT_OBJECTS = {"__version__"}


def public_objects():
    """Yield the public names with their objects: modules, functions, classes, and their members."""
    for name in autogradviz.__all__:
        if name not in NOT_OBJECTS:
            thing = getattr(autogradviz, name)
            yield name, thing
            if inspect.isclass(thing):
                yield from members(thing, name)


def members(kind, prefix):
    """Yield the public methods and properties of a class, without inherited ones."""
    for name, member in vars(kind).items():
        is_member = inspect.isfunction(member) or hasattr(member, "__get__")
        is_slot = inspect.ismemberdescriptor(member)
        if is_member and not (name.startswith("_") or is_slot or is_trait(member)):
            yield f"{prefix}.{name}", member


def is_trait(member):
    """Return whether a widget synchronizes this attribute with its view."""
    return hasattr(member, "metadata")
