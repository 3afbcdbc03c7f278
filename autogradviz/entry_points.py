"""Plug-ins: what other packages add through entry points, loaded when it is first needed.

The environment variable ``AUTOGRADVIZ_PLUGINS=0`` turns them off. A plug-in that fails is named in
one warning; everything else works as without it.
"""

from __future__ import annotations

import os
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from autogradviz.errors import AutogradvizWarning

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import Distribution, EntryPoint

VARIABLE: Final = "AUTOGRADVIZ_PLUGINS"

EntryPointGroup: TypeAlias = Literal["autogradviz.rules", "autogradviz.formats"]


@dataclass(frozen=True, slots=True)
class Plugin:
    """The value of one entry point of another package.

    Attributes:
        origin: "loss-checks (entry point softmax of autogradviz.rules)".
        value: the module or object that the entry point names.
    """

    origin: str
    value: object


@contextmanager
def failures_reported(origin: str, problem: str = "was left out") -> Iterator[None]:
    """Turn an exception into one warning that names the plug-in."""
    try:
        yield
    except (Exception, SystemExit) as error:  # noqa: BLE001
        message = f"the plug-in {origin} {problem}: {type(error).__name__}: {error}"
        warnings.warn(message, AutogradvizWarning, stacklevel=3)


@cache
def plugins(group: EntryPointGroup) -> tuple[Plugin, ...]:
    """Return the plug-ins of a group that can be loaded, in the order of packages and names.

    Warns:
        AutogradvizWarning: for each that cannot be loaded.
    """
    if os.environ.get(VARIABLE) == "0":
        return ()
    loaded = []
    for package, entry_point in sorted(_entry_points(group), key=lambda each: each[0]):
        origin = f"{package} (entry point {entry_point.name} of {group})"
        with failures_reported(origin):
            loaded.append(Plugin(origin, entry_point.load()))
    return tuple(loaded)


def _entry_points(group: EntryPointGroup) -> Iterator[tuple[str, EntryPoint]]:
    """Yield the entry points of a group, with the names of their packages."""
    from importlib.metadata import distributions

    seen = set()
    for distribution in distributions():
        try:
            text = distribution.read_text("entry_points.txt")
        except Exception:  # noqa: BLE001, S112 - another package, damaged
            continue
        if not text or group not in text:
            continue
        package = _name(distribution)
        if package in seen:  # the first on sys.path is the one that is imported
            continue
        seen.add(package)
        with failures_reported(f"{package} (entry points of {group})"):
            found = distribution.entry_points.select(group=group)
            yield from ((package, each) for each in sorted(found, key=lambda each: each.name))


def _name(distribution: Distribution) -> str:
    """Return the name of a package, of one without metadata that of its folder."""
    try:
        name = distribution.metadata["Name"]
    except Exception:  # noqa: BLE001 - the type of the exception depends on the version of Python
        name = None
    folder: object = getattr(distribution, "_path", "a package without a name")
    return name or PurePath(str(folder)).stem
