"""Regions that were compiled before the recording: what the classes of their nodes still hold.

AOTAutograd makes one custom Function for each region. A backend that runs graphs as they are keeps
both of them. Inductor keeps their text until it has saved it to the cache; a region that came from
the cache is found through the functions that Dynamo has compiled. Nothing is called or unpacked.
"""

from __future__ import annotations

import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from torch.fx import GraphModule

from autogradviz.compiled_graphs.events_and_slots_of_regions import (
    MISSING_IN_TEXT,
    RegionFacts,
    facts_of_cache_entry,
)
from autogradviz.compiled_graphs.read_graph_text import read_graph_text
from autogradviz.recorder.compile.read_graph_module import read_graph
from autogradviz.recorder.torch_internals.names_in_compilers import (
    cache_entries_of_code,
    compiled_codes,
)
from autogradviz.support.identity_table import IdentityTable

if TYPE_CHECKING:
    from collections.abc import Iterator

_TEXTS: Final = ("joint_graph_str", "fw_module_str", "bw_module_str")
_COMPILED: Final = "__compiled_fn"
_MANY: Final = 200
"""Functions that are searched for a region at most, one inside the other."""


_found: Final[IdentityTable[RegionFacts]] = IdentityTable()
"""Results of earlier recordings: reading a region costs as much as several of its runs."""


def find_region(function: Any) -> RegionFacts:
    """Return the remaining facts about a region.

    Args:
        function: the custom Function that AOTAutograd made for the region.
    """
    facts = _found.get(function)
    if facts is None:
        facts = _search(function)
        if facts.backward:  # else more may be found once a backward has compiled
            _found[function] = facts
    return facts


def _search(function: Any) -> RegionFacts:
    facts = RegionFacts(
        function._aot_id,  # noqa: SLF001 - has no public name
        getattr(function.metadata, "compile_id_str", None) or "",
        _backend_of(function),
        "found",
        missing=("graphs", *MISSING_IN_TEXT),
        donated=getattr(function.metadata, "bw_donated_idxs", None) or (),
    )
    forward, backward = _graphs(function)
    if forward is not None and backward is not None:
        return facts._replace(
            forward=read_graph(forward),
            backward=read_graph(backward),
            missing=("joint graph", "reasons"),
        )
    texts = _texts(function)
    if texts is not None:
        joint, forward, backward = map(read_graph_text, texts)
        return facts._replace(
            joint=joint, forward=forward, backward=backward, missing=MISSING_IN_TEXT
        )
    entry = _cache_entry(function)
    if entry is not None:
        found = facts_of_cache_entry(entry, facts.aot_number, facts.compile_id, facts.backend)
        return found._replace(source="found")
    if backward is not None or _bare_backward(function) is not None:
        graph = backward if backward is not None else _bare_backward(function)
        missing = ("joint graph", "forward graph", "lines", *MISSING_IN_TEXT)
        return facts._replace(backward=read_graph(graph), missing=missing)
    return facts


def _backend_of(function: Any) -> str:
    compiled = vars(function).get("compiled_fw")
    module = (
        compiled.__module__ if isinstance(compiled, FunctionType) else type(compiled).__module__
    )
    if module.startswith("torch._inductor"):
        return "inductor"
    return "aot_eager" if module.startswith("torch._dynamo.backends") else ""


def _cells(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the variables that a function has from the function around it."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue


def _plain(value: Any) -> Any:
    return value.__func__ if isinstance(value, (staticmethod, classmethod)) else value


def _graphs(function: Any) -> tuple[Any, Any]:
    """Return the forward and the backward graph with their lines, None where they are lost."""
    forward = None
    compiled = vars(function).get("compiled_fw")
    if isinstance(compiled, FunctionType):
        for _, value in _cells(compiled):
            owner = getattr(value, "__self__", value)
            if isinstance(owner, GraphModule):
                forward = owner
    backward = _bare_backward(function)
    return forward, backward if backward is not None and _has_values(backward) else None


def _bare_backward(function: Any) -> Any:
    """Return the backward graph, which inductor strips of all but its ops."""
    lazy = vars(function).get("_lazy_backward_info")
    graph = getattr(lazy, "bw_module", None)
    return graph if isinstance(graph, GraphModule) else None


def _has_values(graph: Any) -> bool:
    return any("val" in node.meta for node in graph.graph.nodes)


def _texts(function: Any) -> list[str] | None:
    """Return the text of the joint, forward and backward graph, if it is kept for the cache."""
    backward = _plain(vars(function).get("_backward_impl"))
    if not isinstance(backward, FunctionType):
        return None
    for _, value in _cells(backward):
        save = getattr(value, "try_save_cache_entry", None)
        if isinstance(save, FunctionType):
            found = dict(_cells(save))
            texts = [found.get(name) for name in _TEXTS]
            if all(isinstance(text, str) for text in texts):
                return texts  # type: ignore[return-value]
    return None


def _cache_entry(function: Any) -> Any:
    """Return the entry of AOTAutograd's cache that a region came from, None without one."""
    for compiled in _compiled_functions():
        if _leads_to(compiled.compiled_fn, function):
            return compiled.serialize()
    return None


def _compiled_functions() -> Iterator[Any]:
    """Yield the functions with a cache entry that code compiled by Dynamo calls."""
    modules = [
        vars(module) for module in sys.modules.copy().values() if hasattr(module, "__dict__")
    ]
    for code in compiled_codes():
        for entry in cache_entries_of_code(code):
            names = [name for name in entry.code.co_names if name.startswith(_COMPILED)]
            for name in names:
                for module in modules:
                    if name in module:
                        yield from _serializable(module[name])


def _serializable(value: Any) -> Iterator[Any]:
    """Yield the objects inside a function that know their cache entry."""
    for inner in _inside(value):
        if hasattr(inner, "serialize") and hasattr(inner, "compiled_fn"):
            yield inner


def _leads_to(value: Any, function: Any) -> bool:
    return any(getattr(inner, "__self__", None) is function for inner in _inside(value))


def _inside(value: Any) -> Iterator[Any]:
    """Yield a function and the functions in its closure, recursively."""
    waiting, seen = [value], set[int]()
    while waiting and len(seen) < _MANY:
        here = waiting.pop()
        if here is None or id(here) in seen:
            continue
        seen.add(id(here))
        yield here
        if isinstance(here, FunctionType):
            inner = [each for _, each in _cells(here)]
            waiting += [each for each in inner if callable(each) and not isinstance(each, type)]
            waiting.append(getattr(here, "__wrapped__", None))
