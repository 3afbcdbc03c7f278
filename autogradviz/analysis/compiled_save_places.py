"""The module and the line that the saved values of compiled regions belong to.

In eager code, a saved value belongs to the op that saved it. A compiled region saves all its
values in one node, so each of them belongs to the first forward op whose gradient needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from autogradviz.analysis.compiled_region_types import CompiledOp, CompiledRegion, CompiledSlot
    from autogradviz.analysis.types import Node, SourceLocation

_WRAPPER: Final = "OptimizedModule"
_WRAPPED: Final = "_orig_mod"
"""``torch.compile`` of a module wraps it in a module of this class, as the attribute of this name.

A wrapper outside of the recorded model has the name of its class.
"""


class SavedAt(NamedTuple):
    """The module and the line of a saved value."""

    module: str  # "" if unknown
    location: SourceLocation | None


class ModuleNames:
    """Names of the modules of a recording, for the names that Dynamo gives to them."""

    def __init__(self, names: Iterable[str]) -> None:
        """Take the names of modules and parameters."""
        self._known: set[str] = set()
        for name in names:
            parts = uncompiled_name(name).split(".")
            self._known.update(".".join(parts[:end]) for end in range(1, len(parts) + 1))

    def find(self, name: str, outer: str) -> str:
        """Return the qualified name of a module.

        Args:
            name: as Dynamo has it, "attn.qkv"; "net.attn.qkv" if ``net`` is a variable.
            outer: the module whose call was compiled, "h.0"; "" if it is unknown.
        """
        outer = uncompiled_name(outer)
        inner = name.partition(".")[2]
        candidates = [f"{outer}.{each}" for each in (name, inner) if outer and each]
        for candidate in (*candidates, name, inner):
            if candidate and candidate in self._known:
                return candidate
        return outer if outer in self._known else name


def uncompiled_name(name: str) -> str:
    """Return the name of a module or parameter as it is without ``torch.compile``."""
    parts = name.split(".")
    inner = parts[1:] if parts[0] == _WRAPPER else parts
    return ".".join(part for part in inner if part != _WRAPPED)


def places_of_saved(
    regions: Iterable[CompiledRegion], nodes: Mapping[int, Node], names: ModuleNames
) -> dict[tuple[int, int], SavedAt]:
    """Return the places of the saved storages of compiled regions, by node and storage."""
    places: dict[tuple[int, int], SavedAt] = {}
    for region in regions:
        for slot in region.saved:
            op = _first_op(slot)
            location = slot.location if op is None else op.location
            for run in slot.runs:
                if run.tensor is None or run.tensor.storage_id is None:
                    continue
                node = nodes.get(run.node_id)
                outer = "" if node is None else node.module
                module = names.find(op.module, outer) if op is not None and op.module else outer
                key = run.node_id, run.tensor.storage_id
                places.setdefault(key, SavedAt(module, location))
    return places


def _first_op(slot: CompiledSlot) -> CompiledOp | None:
    """Return the first forward op whose gradient needs a value, else the op that computed it."""
    users = [op.forward_op for op in slot.needed_by if op.forward_op is not None]
    known = [op for op in users if op.location is not None]
    return min(known, key=lambda op: op.position, default=slot.op)
