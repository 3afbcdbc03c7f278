"""Observers of Dynamo, AOTAutograd and its partitioner."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from autogradviz.compiled_graphs.events_and_slots_of_regions import (
    InlinedHook,
    RegionFacts,
    facts_of_cache_entry,
)
from autogradviz.compiled_graphs.read_graph_text import TANGENT, GraphOp, calls, plain_name
from autogradviz.compiled_graphs.user_line_in_stack_text import (
    Line,
    innermost_user_line,
    line_of_frames,
)
from autogradviz.events import (
    BackwardCaptured,
    CacheDecided,
    CompiledGraphCaptured,
    CompileEnded,
    CompileStarted,
    Recompiled,
)
from autogradviz.recorder.compile.current_backend import backend_name
from autogradviz.recorder.compile.read_graph_module import read_graph, target_text
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_dynamo_recursive
from autogradviz.recorder.torch_internals.names_in_compilers import MIN_CUT, owner_of
from autogradviz.recorder.torch_internals.patches import patched_for_compilers_too
from autogradviz.recorder.torch_internals.private_api import current_compile_id
from autogradviz.support.source_lines_and_libraries import source_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.events import CompileTrigger
    from autogradviz.recorder.compile.region_table import CompiledRegions
    from autogradviz.recorder.session import Session


# --- the graphs of AOTAutograd, read in the functions that log them -------------------------------


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


# --- the graphs of Dynamo, why they ended, and why Dynamo compiled again --------------------------


_UTILS: Final = "torch._dynamo.utils"
_CONFIG: Final = "torch._dynamo.config"
_PREFIX: Final = "__compiled_fn"
_CALLS: Final = frozenset({"call_function", "call_method", "call_module"})
_POLICY: Final = "_checkpoint_context_fn"
"""The note of a checkpointed part of a graph that has a ``context_fn``."""
_FAILED: Final = re.compile(r"^(\d+/\d+): (.*)$", re.DOTALL)
_FROM_LINE: Final = "  # "
_NO_CODE: Final = ("", "", 0)


class DynamoTable:
    """Records compilations, the graphs that Dynamo captures, and recompilations."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._open: dict[int, tuple[str, CompileTrigger]] = {}
        self._last_metrics: Any = None
        self._break_count = 0
        self._captured: list[Any] = []
        self._codes: dict[str, tuple[str, str, int]] = {}
        self._reasons: list[str] = []

    def begin(self) -> None:
        """Skip what PyTorch recorded about earlier compilations."""
        for row in _metrics():
            self._last_metrics = row
            self._read_code(row)
        self._break_count = len(_breaks())

    def on_change(self) -> None:
        """Record that a compiler started or ended on this thread."""
        state = self._session.threads.local.state
        opened = self._open.get(state.number)
        if not state.suspended:
            if opened is not None:
                del self._open[state.number]
                if opened[0]:
                    self._read_breaks(opened[0])
                    self._session.emit(CompileEnded, *opened)
                self.poll()
            return
        compile_id = current_compile_id()
        if opened is None:
            # Before a backward is compiled, the context of tracing is set first.
            trigger: CompileTrigger = "dynamo" if compile_id else "backward"
            opened = self._open[state.number] = ("", trigger)
        if compile_id and not opened[0]:
            trigger = "compiled_autograd" if compile_id.startswith("!") else opened[1]
            opened = self._open[state.number] = (compile_id, trigger)
            self.poll()
            self._session.emit(
                CompileStarted, compile_id, opened[1], stack_id=self._session.stack_id()
            )

    def on_graph(self, name: Any, graph_module: Any, *_: Any) -> None:
        """Record a graph that Dynamo has captured."""
        if not str(name).startswith(_PREFIX):
            return
        reason = getattr(graph_module, "compile_subgraph_reason", None)
        self._captured.append(reason)
        count = sum(node.op in _CALLS for node in graph_module.graph.nodes)
        parts = graph_module.children()
        policies = sum(_POLICY in getattr(part, "meta", ()) for part in parts)
        self._emit_graph(current_compile_id(), str(name), reason, count, policies)

    def _emit_graph(
        self, compile_id: str, name: str, reason: Any, count: int, policies: int = 0
    ) -> None:
        frames = getattr(reason, "user_stack", None) or []
        line: Line = line_of_frames(frames)
        self._session.emit(
            CompiledGraphCaptured, compile_id, name, frames[0].name if frames else "",
            frames[0].filename if frames else "", count, policies,
            bool(getattr(reason, "graph_break", False)), str(getattr(reason, "reason", "")),
            line.filename, line.lineno, line.function, line.text,
            tuple([frame.filename for frame in frames]),
            tuple([frame.lineno or 0 for frame in frames]),
        )  # fmt: skip

    def _read_breaks(self, compile_id: str) -> None:
        """Record the breaks of a compilation before its first op: they have no graph."""
        breaks = _breaks()
        if len(breaks) < self._break_count:  # they were reset
            self._break_count = 0
        captured, self._captured = self._captured, []
        for reason in breaks[self._break_count :]:
            if not any(reason is each for each in captured):
                self._emit_graph(compile_id, "", reason, 0)
        self._break_count = len(breaks)

    def poll(self) -> None:
        """Record what PyTorch has noted about compilations since the last call."""
        new = []
        for row in reversed(_metrics()):
            if row is self._last_metrics:
                break
            new.append(row)
        for row in reversed(new):
            self._last_metrics = row
            self._read_code(row)
            if getattr(row, "recompile_reason", None):
                self._emit_recompiled(row)
            if getattr(row, "fail_type", None) and getattr(row, "fail_user_frame_filename", None):
                self._emit_skipped(row)

    def _emit_skipped(self, row: Any) -> None:
        """Record a break after which Dynamo compiled nothing of a function, as in a loop."""
        filename, lineno = row.fail_user_frame_filename, row.fail_user_frame_lineno or 0
        self._session.emit(
            CompiledGraphCaptured, str(row.compile_id), "", row.co_name or "",
            row.co_filename or "", 0, 0, True, str(row.fail_reason), filename, lineno, "",
            source_line(filename, lineno).strip(), (), (),
        )  # fmt: skip

    def _read_code(self, row: Any) -> None:
        """Remember the function of a frame: a compilation that is given up does not name it."""
        if row.co_name:
            frame = str(row.compile_id).rpartition("/")[0]
            self._codes[frame] = (row.co_name, row.co_filename or "", row.co_firstlineno or 0)

    def on_backward_reasons(self, _compiler: Any, reasons: Any) -> None:
        """Remember why compiled autograd cannot use an earlier graph."""
        self._reasons = [str(each) for each in reasons]

    def on_backward_graph(self, _title: Any, graph_module: Any, *_: Any) -> None:
        """Record the graph of a backward that compiled autograd has captured."""
        nodes = [node for node in graph_module.graph.nodes if node.op in _CALLS]
        reasons, self._reasons = self._reasons, []
        self._session.emit(
            BackwardCaptured, current_compile_id(), type(graph_module).__name__, len(nodes),
            "; ".join(reasons), tuple([node.name for node in nodes]),
            tuple([target_text(node.target) for node in nodes]),
        )  # fmt: skip

    def _emit_recompiled(self, row: Any) -> None:
        compile_id = str(row.compile_id)
        frame, _, count = compile_id.rpartition("/")
        found = _FAILED.match(row.recompile_reason)
        failed, text = found.groups() if found else ("", row.recompile_reason)
        first, _, stack = text.partition("\n")
        line = innermost_user_line(stack)
        self._session.emit(
            Recompiled, compile_id, failed, first.partition(_FROM_LINE)[0].strip(), *line[:4],
            *self._codes.get(frame, _NO_CODE), int(count) if count.isdigit() else 0,
            getattr(sys.modules.get(_CONFIG), "recompile_limit", 0),
        )  # fmt: skip


def _metrics() -> list[Any]:
    utils: Any = sys.modules.get(_UTILS)
    return utils.get_compilation_metrics() if hasattr(utils, "get_compilation_metrics") else []


def _breaks() -> list[Any]:
    return getattr(sys.modules.get(_UTILS), "graph_break_reasons", [])


# --- why the partitioner may not compute an op again: the edges of the graph that it cuts ---------


_SOURCE: Final = "source"
_INNER: Final = "_in"
_REASON: Final = "cannot recompute"


def blocked_ops(graph: Any) -> dict[str, str]:
    """Return, by the names of ops that may not run again, why.

    An edge from the source with infinite capacity keeps an op out of the backward.

    Args:
        graph: the directed graph whose minimum cut separates forward from backward.
    """
    return {
        target.removesuffix(_INNER): options.get("reason", "")
        .removeprefix(_REASON)
        .removeprefix(": ")
        for origin, target, options in graph.edges(data=True)
        if origin == _SOURCE
    }
