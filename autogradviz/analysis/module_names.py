"""The names of modules, with and without those of the models around them, and searches by name."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Final

from autogradviz.events import NO_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from autogradviz.analysis.types import Module

_WRAPPER: Final = "OptimizedModule"
_WRAPPED: Final = "_orig_mod"
"""``torch.compile`` of a module wraps it in a module of this class, as the attribute of this name.

A wrapper outside of the recorded model has the name of its class.
"""


class ModuleNames:
    """The modules of a recording by name, and the models around them.

    A model that was passed to ``record`` has the name "". The name of any other one is its class or
    its variable, and begins the names of all that is in it. A GAN has several models.
    """

    def __init__(self, modules: Mapping[int, Module], parameters: Iterable[str] = ()) -> None:
        """Take all modules by id, and the names of parameters."""
        self._modules = modules
        self._parameters = parameters
        self.roots = {m.name: m for m in modules.values() if m.parent_module_id is None}
        """The outermost modules by name: models, and losses."""

    @cached_property
    def root(self) -> str:
        """The name of the model around all other modules, "" if it has none or there is none.

        A loss without modules of its own is no second model.
        """
        parents = {module.parent_module_id for module in self._modules.values()}
        around = [name for name, root in self.roots.items() if root.module_id in parents]
        return around[0] if len(around) == 1 else ""

    @property
    def title(self) -> str:
        """The class of the model that was passed to ``record``, "" without one."""
        return self.roots[""].type_name if "" in self.roots else ""

    def is_class(self, root: str) -> bool:
        """Return whether the name of a model is that of its class, and of no variable."""
        return root in self.roots and root.partition("#")[0] == self.roots[root].type_name

    def around(self, module: Module) -> Iterator[Module]:
        """Yield a module and those that contain it, the outermost last."""
        at: Module | None = module
        while at is not None:
            yield at
            parent = at.parent_module_id
            at = self._modules.get(NO_ID if parent is None else parent)

    @cached_property
    def _root_of(self) -> dict[str, str]:
        return {m.name: [*self.around(m)][-1].name for m in self._modules.values()}

    def root_of(self, name: str) -> str:
        """Return the name of the model that has a module or parameter, "" without one."""
        while name and name not in self._root_of:
            name = name.rpartition(".")[0]
        return self._root_of.get(name, "")

    def below_root(self, name: str) -> str:
        """Return a name without that of the model around all other modules, "" for that model."""
        return _below(self.root, name)

    def below_model(self, name: str) -> str:
        """Return a name without that of its own model, "" for a model."""
        return _below(self.root_of(name), name)

    def with_model(self, name: str) -> str:
        """Return a name with that of its model, or else with the class of the model."""
        title = "" if self.root_of(name) else self.title
        return ".".join(filter(None, [title, name]))

    def find(self, pattern: str) -> list[str]:
        """Return the names of the modules that match a pattern, in the model's order.

        A name may have or lack that of its model: "Net.down" is "down" if ``Net`` was passed to
        ``record``, and "down" is "Net.down" if it was not. What matches as it is goes first.
        """

        def matches(name: str) -> bool:
            return name == pattern or fnmatchcase(name, pattern)

        names = dict.fromkeys(module.name for module in self._modules.values())
        others = {name: {self.below_model(name), self.with_model(name)} - {""} for name in names}
        found = [name for name in names if matches(name)]
        return found or [name for name in names if any(map(matches, others[name]))]

    @cached_property
    def _uncompiled(self) -> set[str]:
        """The names of all modules and parameters, and all that begins them."""
        known: set[str] = set()
        for name in (*(module.name for module in self._modules.values()), *self._parameters):
            parts = uncompiled_name(name).split(".")
            known.update(".".join(parts[:end]) for end in range(1, len(parts) + 1))
        return known

    def find_in_dynamo(self, name: str, outer: str) -> str:
        """Return the qualified name of a module of compiled code.

        Args:
            name: as Dynamo has it, "attn.qkv"; "net.attn.qkv" if ``net`` is a variable.
            outer: the module whose call was compiled, "h.0"; "" if it is unknown.
        """
        outer = uncompiled_name(outer)
        inner = name.partition(".")[2]
        candidates = [f"{outer}.{each}" for each in (name, inner) if outer and each]
        for candidate in (*candidates, name, inner):
            if candidate and candidate in self._uncompiled:
                return candidate
        return outer if outer in self._uncompiled else name


def _below(root: str, name: str) -> str:
    if not root:
        return name
    return "" if name == root else name.removeprefix(f"{root}.")


def uncompiled_name(name: str) -> str:
    """Return the name of a module or parameter as it is without ``torch.compile``."""
    parts = name.split(".")
    inner = parts[1:] if parts[0] == _WRAPPER else parts
    return ".".join(part for part in inner if part != _WRAPPED)
