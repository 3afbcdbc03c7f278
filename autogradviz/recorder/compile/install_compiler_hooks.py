"""Installs the hook points in the compilers, as soon as a program has loaded them.

PyTorch calls these functions to log, so our frames are not on the stack while it traces, and no
option, pass, backend or log handler is set. They stay replaced while a compiler runs.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from autogradviz.events import RecorderLimited
from autogradviz.recorder.compile.leave_out_generated_code_ops import CompiledCode
from autogradviz.recorder.compile.observe_compilers import (
    AotTable,
    DynamoTable,
    before,
    reading_cache_keys,
    reading_min_cuts,
)
from autogradviz.recorder.compile.region_runs import NodeIds, RegionRuns
from autogradviz.recorder.compile.region_table import CompiledRegions
from autogradviz.recorder.torch_internals import names_in_compilers as names
from autogradviz.recorder.torch_internals.is_compiling import compiling_listener
from autogradviz.recorder.torch_internals.patches import patched_for_compilers_too

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.recorder.engine_interface import TensorIds
    from autogradviz.recorder.session import Session


class CompilerObserver:
    """Records what compilers do while its context is open."""

    def __init__(self, session: Session, tensors: TensorIds, nodes: NodeIds) -> None:
        self._session = session
        regions = CompiledRegions(session)
        self.runs = RegionRuns(session, tensors, nodes, regions)
        self._code = CompiledCode(session, regions)
        self._dynamo = DynamoTable(session)
        aot = AotTable(session, regions)

        def reading(observe: Callable[..., Any]) -> Callable[[Any], Any]:
            wrap: Callable[[Any], Any] = before(observe, session, "compile")
            return wrap

        self._waiting: list[tuple[names.CompilerName, Callable[[Any], Any]]] = [
            (names.DYNAMO_GRAPH, reading(self._dynamo.on_graph)),
            (names.COMPILED_BACKWARD, reading(self._dynamo.on_backward_graph)),
            (names.BACKWARD_REASONS, reading(self._dynamo.on_backward_reasons)),
            (names.JOINT_GRAPH, reading(aot.on_joint_graph)),
            (names.PARTITION, reading(aot.on_partition)),
            (names.OTHER_GRAPHS, reading(aot.on_other_graph)),
            (names.INFERENCE_GRAPH, reading(aot.on_inference_graph)),
            (names.CACHED_GRAPHS, reading(aot.on_cached)),
            (names.CACHE_KEY, reading_cache_keys(aot, session)),
            (names.SOLVE_MIN_CUT, reading_min_cuts(aot, session)),
            (names.REGION_RUN, reading(self.runs.on_run)),
        ]
        self._installed = ExitStack()

    def __enter__(self) -> None:
        """Install the hook points in the compilers that are loaded."""
        try:
            self._installed.enter_context(compiling_listener(self._on_change))
            self._session.always_guarded("compile", self._dynamo.begin)
            self._session.always_guarded("compile", self._install)
        except BaseException:
            self._installed.close()
            raise

    def __exit__(self, *_: object) -> None:
        """Remove all hook points."""
        self._session.always_guarded("compile", self._dynamo.poll)
        self._installed.close()

    def _on_change(self) -> None:
        """Suspend the recording of a thread while a compiler runs on it."""
        self._session.compiling_changed()
        self._session.always_guarded("compile", self._install)
        self._session.always_guarded("compile", self._dynamo.on_change)

    def _find_compiled_code(self) -> None:
        """Distinguish operators that compiled regions call from those of the program."""
        self._session.engine.set_origins(self._code)

    def _install(self) -> None:
        """Replace the functions whose modules have been loaded since the last call."""
        if not self._waiting:
            return
        if names.is_loaded(names.REGION_RUN):
            self._find_compiled_code()
        waiting, self._waiting = self._waiting, []
        for name, wrap in waiting:
            if not names.is_loaded(name):
                self._waiting.append((name, wrap))
                continue
            found = names.owner_of(name)
            if found is None:
                message = f"this PyTorch lacks {name.module}.{name.path}: {name.used_for} "
                self._session.emit(RecorderLimited, "compile", f"{message}are not recorded")
                continue
            owner, attribute = found
            ours = wrap(getattr(owner, attribute))
            self._installed.enter_context(patched_for_compilers_too(owner, **{attribute: ours}))
