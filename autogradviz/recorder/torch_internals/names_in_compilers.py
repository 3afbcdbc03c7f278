"""Names of functions in compilers, and modules of Inductor."""

from __future__ import annotations

import sys
from typing import Any, Final, NamedTuple

# --- the undocumented names of PyTorch's compilers that the recorder uses -------------------------
#
# Most are functions that only log: PyTorch calls them with the live graphs. The compilers are
# loaded when a program first compiles, so these names are looked up then, and a missing one limits
# what is recorded instead of preventing the recording.
#
# Read, not run, in 2.12, 2.14 and 2.15; 2.11 lacks two names.


class CompilerName(NamedTuple):
    """One undocumented name of a compiler."""

    module: str
    path: str
    """Attribute of the module, or class and method."""

    used_for: str
    """The part of a recording that needs it."""


_AOT: Final = "torch._functorch._aot_autograd."

JOINT_GRAPH: Final = CompilerName(
    f"{_AOT}graph_compile", "_log_joint_graph", "the joint graphs of compiled regions"
)
PARTITION: Final = CompilerName(
    f"{_AOT}graph_compile", "_log_fw_bw_graphs", "the graphs of compiled regions"
)
OTHER_GRAPHS: Final = CompilerName(
    f"{_AOT}graph_compile", "maybe_log_graph", "saved-tensor hooks that are inlined"
)
INFERENCE_GRAPH: Final = CompilerName(
    f"{_AOT}graph_compile", "_log_inference_graph", "compiled regions without a backward"
)
CACHED_GRAPHS: Final = CompilerName(
    f"{_AOT}aot_autograd_result",
    "GenericAOTAutogradResult._log_cached_graphs",  # 2.11: inside wrap_post_compile
    "compiled regions that come from the cache",
)
CACHE_KEY: Final = CompilerName(
    f"{_AOT}autograd_cache", "autograd_cache_key", "decisions of AOTAutograd's cache"
)
REGION_RUN: Final = CompilerName(
    f"{_AOT}runtime_wrappers",
    "_AutogradSavedState.save_from_forward",  # not in 2.11
    "runs of compiled regions as they happen",
)
DYNAMO_GRAPH: Final = CompilerName(
    "torch._dynamo.output_graph", "lazy_format_graph_code", "the graphs that Dynamo captures"
)
COMPILED_BACKWARD: Final = CompilerName(
    "torch._dynamo.compiled_autograd",
    "lazy_format_graph_code",
    "the graphs that compiled autograd captures",
)
BACKWARD_REASONS: Final = CompilerName(
    "torch._dynamo.compiled_autograd",
    "AutogradCompilerInstance.log_compile_reasons",
    "why compiled autograd captures a backward again",
)
SOLVE_MIN_CUT: Final = CompilerName(
    "torch._functorch.partitioners", "solve_min_cut", "why the partitioner saves a value"
)
MIN_CUT: Final = (
    CompilerName("torch._functorch.partitioners", "minimum_cut", ""),  # from 2.15 on
    CompilerName("networkx", "minimum_cut", ""),
)


def compiled_codes() -> list[Any]:
    """Return the code objects that Dynamo has compiled and that are still alive."""
    module = sys.modules.get("torch._dynamo.convert_frame")
    seen = getattr(getattr(module, "input_codes", None), "seen", ())
    return [code for code in (ref() for ref in list(seen)) if code is not None]


def cache_entries_of_code(code: Any) -> list[Any]:
    """Return the compilations of a code object: entries with the code that replaces it.

    Dynamo keeps an entry without code after an object was freed that its guards name.
    """
    module: Any = sys.modules.get("torch._dynamo.eval_frame")
    read = getattr(module, "_debug_get_cache_entry_list", None)
    return [] if read is None else [entry for entry in read(code) if entry.code is not None]


def is_loaded(name: CompilerName) -> bool:
    """Return whether the module of a name has been imported."""
    module = sys.modules.get(name.module)
    # While a module is being imported, it lacks most of its names.
    return module is not None and not getattr(module.__spec__, "_initializing", False)


def owner_of(name: CompilerName) -> tuple[Any, str] | None:
    """Return the module or class that holds a name, and the name in it; None if it is missing."""
    owner: Any = sys.modules.get(name.module)
    *path, last = name.path.split(".")
    for part in path:
        owner = getattr(owner, part, None)
    return (owner, last) if hasattr(owner, last) else None


# --- modules of inductor and AOTAutograd that ``check`` reads; importing them takes a second ------


def inductor_config() -> Any:
    """Return the options of inductor."""
    from torch._inductor import config

    return config


def inductor_compiler() -> Any:
    """Return the module that has ``compile_fx``."""
    from torch._inductor import compile_fx

    return compile_fx


def without_autograd_cache() -> Any:
    """Return a context in which AOTAutograd reads no graphs from its cache."""
    from torch._functorch import config

    return config.patch(enable_autograd_cache=False)
