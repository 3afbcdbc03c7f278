"""The graphs of AOTAutograd, read in the functions that log them."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from autogradviz.compiled_graphs.captured_region import (
    InlinedHook,
    RegionFacts,
    facts_of_cache_entry,
)
from autogradviz.compiled_graphs.compiler_name_patterns import TANGENT
from autogradviz.compiled_graphs.graph_op import GraphOp, calls, plain_name
from autogradviz.events import CacheDecided
from autogradviz.recorder.compile.current_backend import backend_name
from autogradviz.recorder.compile.min_cut_reasons import blocked_ops
from autogradviz.recorder.compile.read_graph_module import read_graph
from autogradviz.recorder.torch_internals.compiler_names import MIN_CUT, owner_of
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_dynamo_recursive
from autogradviz.recorder.torch_internals.patch_functions import patched_for_compilers_too
from autogradviz.recorder.torch_internals.private_api import current_compile_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.recorder.compile.region_table import CompiledRegions
    from autogradviz.recorder.session import Session

DEFAULT_BUDGET: Final = 1.0
"""The value of ``activation_memory_budget`` with which no expensive op is computed again."""

_BEFORE_HOOKS: Final = "Backward graph pre saved_tensors_hooks"
_PACK: Final = "saved_tensors_pack_hook "
_UNPACK: Final = "saved_tensors_unpack_hook "


_LEFT_OUT: Final = (
    "inlined hooks take only the values that saved_tensors_hooks_filtering_mode selects: "
    "by default those that the backward may overwrite"
)


class _Pending:
    """The graphs of a region that were logged before its partition."""

    def __init__(self) -> None:
        self.joint: tuple[GraphOp, ...] = ()
        self.before_hooks: tuple[GraphOp, ...] = ()
        self.pack: dict[str, tuple[GraphOp, ...]] = {}
        self.unpack: dict[str, tuple[GraphOp, ...]] = {}


class AotTable:
    """Records the regions that AOTAutograd compiles."""

    def __init__(self, session: Session, regions: CompiledRegions) -> None:
        self._session = session
        self._regions = regions
        self._pending: dict[int, _Pending] = {}
        self._blocked: dict[str, str] = {}
        self._keys: dict[str, str] = {}

    def _of(self, aot_config: Any) -> _Pending:
        return self._pending.setdefault(aot_config.aot_id, _Pending())

    def on_joint_graph(self, graph_module: Any, aot_config: Any) -> None:
        """Read a joint graph, before it is partitioned."""
        self._of(aot_config).joint = read_graph(graph_module)
        self._blocked.clear()
        self._decide_cache("miss")

    def on_min_cut(self, graph: Any, *_: Any) -> None:
        """Read the reasons of the partitioner, which may cut the same region several times."""
        self._blocked.update(blocked_ops(graph))

    def on_partition(
        self, forward: Any, backward: Any, _subclasses: Any, metadata: Any, aot_config: Any
    ) -> None:
        """Record a region: its joint graph was partitioned and hooks were inlined."""
        pending = self._pending.pop(aot_config.aot_id, None) or _Pending()
        forward_ops, backward_ops = read_graph(forward), read_graph(backward)
        blocked, self._blocked = self._blocked, {}
        self._regions.add(
            RegionFacts(
                aot_config.aot_id,
                current_compile_id(),
                backend_name(),
                "objects",
                joint=pending.joint,
                forward=forward_ops,
                backward=backward_ops,
                blocked=blocked,
                donated=getattr(metadata, "bw_donated_idxs", None) or (),
                hooks=_inlined_hooks(pending, backward_ops),
                sources=_input_sources(aot_config),
                memory_budget=memory_budget(),
            )
        )

    def on_other_graph(self, graph_module: Any, name: str, aot_config: Any, *_: Any) -> None:
        """Read a backward graph before hooks are inlined, or a pack or unpack hook."""
        if name.startswith(_BEFORE_HOOKS):
            self._of(aot_config).before_hooks = read_graph(graph_module)
        elif name.startswith(_PACK):
            self._of(aot_config).pack[name.removeprefix(_PACK)] = read_graph(graph_module)
        elif name.startswith(_UNPACK):
            self._of(aot_config).unpack[name.removeprefix(_UNPACK)] = read_graph(graph_module)

    def on_inference_graph(self, graph_module: Any, aot_config: Any) -> None:
        """Record a region without a backward."""
        self._decide_cache("miss")
        self._regions.add(
            RegionFacts(
                aot_config.aot_id,
                current_compile_id(),
                backend_name(),
                "objects",
                inference=read_graph(graph_module),
            )
        )

    def on_cached(self, entry: Any, aot_config: Any) -> None:
        """Record a region whose graphs come from the cache as text."""
        self._decide_cache("hit")
        backend = backend_name() or "inductor"  # the only one with a cache
        facts = facts_of_cache_entry(entry, aot_config.aot_id, current_compile_id(), backend)
        self._regions.add(facts._replace(sources=_input_sources(aot_config)))

    def on_cache_key(self, key: str) -> None:
        """Remember a key until PyTorch has looked it up."""
        self._keys[current_compile_id()] = key

    def on_bypass(self, error: Exception) -> None:
        """Record that a region cannot be cached."""
        reason = str(error).partition("\n")[0]
        self._session.emit(CacheDecided, current_compile_id(), "bypass", "", reason)

    def _decide_cache(self, decision: str) -> None:
        compile_id = current_compile_id()
        key = self._keys.pop(compile_id, None)
        if key is not None:
            self._session.emit(CacheDecided, compile_id, decision, key, "")


def memory_budget() -> float | None:
    """Return the option of the partitioner, None if this PyTorch lacks it."""
    config = sys.modules.get("torch._functorch.config")
    return getattr(config, "activation_memory_budget", None)


def _input_sources(aot_config: Any) -> list[str]:
    """Return the variables that the inputs of a region are, as Dynamo writes them."""
    sources = getattr(aot_config, "aot_autograd_arg_pos_to_source", None) or ()
    return ["" if each is None else _source_name(each) for each in sources]


def _source_name(source: Any) -> str:
    name = source.name
    return plain_name(str(name() if callable(name) else name))


def _inlined_hooks(pending: _Pending, backward: tuple[GraphOp, ...]) -> list[InlinedHook]:
    inputs = [op for op in backward if op.op_kind == "placeholder"]
    before = {
        op.name: op
        for op in pending.before_hooks
        if op.op_kind == "placeholder" and not op.name.startswith(TANGENT) and not op.is_size
    }
    hooks = [
        InlinedHook(name, _LEFT_OUT, (), (), op.nbytes, op.nbytes)
        for name, op in before.items()
        if name not in pending.pack
    ]
    for name, pack in pending.pack.items():
        packed = [op for op in inputs if op.name == name or op.name.startswith(f"{name}_hook_")]
        value = before.get(name)
        hooks.append(
            InlinedHook(
                name,
                "",
                tuple([op.target for op in calls(pack)]),
                tuple([op.target for op in calls(pending.unpack.get(name, ()))]),
                0 if value is None else value.nbytes,
                sum(op.nbytes for op in packed),
            )
        )
    return hooks


def before(observe: Callable[..., Any], session: Session, hook_point: str) -> Any:
    """Return a function that wraps another one, which is called after ``observe``."""

    def wrap(original: Any) -> Any:
        @skip_dynamo_recursive
        def call(*args: Any, **kwargs: Any) -> Any:
            session.always_guarded(hook_point, observe, *args)
            return original(*args, **kwargs)

        return call

    return wrap


def reading_cache_keys(table: AotTable, session: Session) -> Any:
    """Return a function that wraps the one that computes a key or raises an exception."""

    def wrap(original: Any) -> Any:
        @skip_dynamo_recursive
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                found = original(*args, **kwargs)
            except Exception as error:
                session.always_guarded("compile", table.on_bypass, error)
                raise
            session.always_guarded("compile", table.on_cache_key, found[0])
            return found

        return call

    return wrap


def reading_min_cuts(table: AotTable, session: Session) -> Any:
    """Return a function that wraps the partitioner's solver."""

    def wrap(original: Any) -> Any:
        @skip_dynamo_recursive
        def call(*args: Any, **kwargs: Any) -> Any:
            with _observed_cut(table, session):
                return original(*args, **kwargs)

        return call

    return wrap


@contextmanager
def _observed_cut(table: AotTable, session: Session) -> Iterator[None]:
    """Read the graph whose minimum cut is computed while the context is open."""
    found = next((each for each in map(owner_of, MIN_CUT) if each is not None), None)
    if found is None:
        yield
        return
    owner, name = found
    ours = before(table.on_min_cut, session, "compile")(getattr(owner, name))
    with patched_for_compilers_too(owner, **{name: ours}):
        yield
