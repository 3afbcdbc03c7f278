"""The facts about one compiled region, as they are read from PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from autogradviz.compiled_graphs.read_graph_text import read_graph_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from autogradviz.compiled_graphs.graph_op import GraphOp
    from autogradviz.events import RegionSource


class InlinedHook(NamedTuple):
    """A pair of saved-tensor hooks that AOTAutograd compiled into a region, for one slot."""

    op_name: str
    reason: str  # why it was not inlined
    pack_targets: tuple[str, ...]
    unpack_targets: tuple[str, ...]
    nbytes: int
    packed_nbytes: int


class RegionFacts(NamedTuple):
    """All facts about a compiled region."""

    aot_number: int
    compile_id: str
    backend: str
    source: RegionSource
    missing: tuple[str, ...] = ()
    joint: Sequence[GraphOp] = ()
    forward: Sequence[GraphOp] = ()
    backward: Sequence[GraphOp] = ()
    inference: Sequence[GraphOp] = ()
    blocked: Mapping[str, str] = {}
    donated: Iterable[int] = ()
    hooks: Sequence[InlinedHook] = ()
    sources: Sequence[str] = ()  # the variable of each input
    memory_budget: float | None = None


MISSING_IN_TEXT: Final = ("reasons", "forward ops of backward ops", "modules")
"""The parts that the text of a graph lacks."""


def facts_of_cache_entry(entry: Any, aot_number: int, compile_id: str, backend: str) -> RegionFacts:
    """Return the facts about a region in an entry of AOTAutograd's cache: graphs as text."""
    joint, forward, backward = [
        read_graph_text(getattr(entry, f"aot_{name}_graph_str", None) or "")
        for name in ("joint", "forward", "backward")
    ]
    facts = RegionFacts(
        aot_number,
        compile_id,
        backend,
        "cache",
        donated=getattr(entry.runtime_metadata, "bw_donated_idxs", None) or (),
    )
    if not backward:
        return facts._replace(inference=forward, missing=("modules",))
    return facts._replace(joint=joint, forward=forward, backward=backward, missing=MISSING_IN_TEXT)
