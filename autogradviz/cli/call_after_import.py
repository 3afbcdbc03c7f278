"""``ImportHook``: call a function as soon as the program has imported a module."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class ImportHook:
    """Calls a function once, after a module was imported, and leaves nothing behind.

    With it torch is imported when the program imports it, in the environment that the program has
    set up by then.
    """

    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self._name = name
        self._callback = callback

    def install(self) -> None:
        """Wait for the module; call back at once if it is imported already."""
        if self._name in sys.modules:
            self._callback()
        else:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Stop waiting."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec that the other finders find, with a loader that calls back."""
        if name != self._name:
            return None
        others = [each for each in sys.meta_path if each is not self and hasattr(each, "find_spec")]
        found = (each.find_spec(name, path, target) for each in others)
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            self._call_back_after(spec.loader)
        return spec

    def _call_back_after(self, loader: Any) -> None:
        """Call back after the loader has executed the module, if it ever does.

        ``importlib.util.find_spec`` finds modules without executing them.
        """
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)  # restores the method of the class
            load(module)
            if self in sys.meta_path:
                self.remove()
                self._callback()

        loader.exec_module = exec_module
