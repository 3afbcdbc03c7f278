"""Shows what PyTorch's autograd did, and names the line that made it fail."""

from typing import TYPE_CHECKING

from autogradviz._version import __version__

# These functions have the names of the modules that define them. Importing such a module sets
# the attribute of this package to the module, so they cannot be imported on first access.
from autogradviz.compare import compare
from autogradviz.explain import explain
from autogradviz.record import record

if TYPE_CHECKING:
    from autogradviz import events
    from autogradviz.analysis import (
        Analysis,
        CompiledOp,
        CompiledRegion,
        MemoryPrediction,
        Recomputation,
        Region,
        SavedBytes,
        SavedTensor,
        SourceLocation,
        TensorHistory,
    )
    from autogradviz.compare.result import Comparison, Difference
    from autogradviz.compiled_region_view import CompiledRegionView
    from autogradviz.diagnose import CulpritRun, Finding
    from autogradviz.diagnose.explain_page import Page
    from autogradviz.enable_recording import disable, enable
    from autogradviz.errors import (
        AlreadyRecordingError,
        AutogradvizError,
        AutogradvizWarning,
        GraphTooLargeError,
        MissingExtraError,
        MissingProgramError,
        NativeBuildError,
        NotAGraphError,
        NotATraceError,
        OutputExistsError,
        ProgramNotFoundError,
        RecordingStateError,
        UnknownFormatError,
        UnknownRegionError,
        UnknownSlugError,
        UnsupportedTorchError,
    )
    from autogradviz.event_log import Log, RankSummary
    from autogradviz.flame_graph_view import FlameGraphView
    from autogradviz.graph_view import GraphView, graph
    from autogradviz.render.live_widget import LiveWidget
    from autogradviz.render.run_widget import RunWidget
    from autogradviz.render.widget import TraceWidget
    from autogradviz.runs import (
        FirstDifference,
        OddRank,
        RankFile,
        Run,
        RunFinding,
        UnreadableFile,
        load,
    )
    from autogradviz.stop import LiveSave, Stop
    from autogradviz.stop_condition import StopCondition, watch
    from autogradviz.trace import Trace

__all__ = [
    "AlreadyRecordingError",
    "Analysis",
    "AutogradvizError",
    "AutogradvizWarning",
    "Comparison",
    "CompiledOp",
    "CompiledRegion",
    "CompiledRegionView",
    "CulpritRun",
    "Difference",
    "Finding",
    "FirstDifference",
    "FlameGraphView",
    "GraphTooLargeError",
    "GraphView",
    "LiveSave",
    "LiveWidget",
    "Log",
    "MemoryPrediction",
    "MissingExtraError",
    "MissingProgramError",
    "NativeBuildError",
    "NotAGraphError",
    "NotATraceError",
    "OddRank",
    "OutputExistsError",
    "Page",
    "ProgramNotFoundError",
    "RankFile",
    "RankSummary",
    "Recomputation",
    "RecordingStateError",
    "Region",
    "Run",
    "RunFinding",
    "RunWidget",
    "SavedBytes",
    "SavedTensor",
    "SourceLocation",
    "Stop",
    "StopCondition",
    "TensorHistory",
    "Trace",
    "TraceWidget",
    "UnknownFormatError",
    "UnknownRegionError",
    "UnknownSlugError",
    "UnreadableFile",
    "UnsupportedTorchError",
    "__version__",
    "compare",
    "disable",
    "enable",
    "events",
    "explain",
    "graph",
    "load",
    "record",
    "watch",
]

_NAMES_BY_MODULE = {
    "analysis": (
        "Analysis CompiledOp CompiledRegion MemoryPrediction Recomputation Region SavedBytes "
        "SavedTensor SourceLocation TensorHistory"
    ),
    "compare.result": "Comparison Difference",
    "compiled_region_view": "CompiledRegionView",
    "diagnose": "CulpritRun Finding",
    "diagnose.explain_page": "Page",
    "enable_recording": "disable enable",
    "errors": (
        "AlreadyRecordingError AutogradvizError AutogradvizWarning GraphTooLargeError "
        "MissingExtraError MissingProgramError NativeBuildError NotAGraphError NotATraceError "
        "OutputExistsError ProgramNotFoundError RecordingStateError UnknownFormatError "
        "UnknownRegionError UnknownSlugError UnsupportedTorchError"
    ),
    "event_log": "Log RankSummary",
    "flame_graph_view": "FlameGraphView",
    "graph_view": "GraphView graph",
    "stop": "LiveSave Stop",
    "stop_condition": "StopCondition watch",
    "render.live_widget": "LiveWidget",
    "render.run_widget": "RunWidget",
    "render.widget": "TraceWidget",
    "runs": "FirstDifference OddRank RankFile Run RunFinding UnreadableFile load",
    "trace": "Trace",
}
"""The names that are imported on first access, so that ``import autogradviz`` is fast."""

_MODULES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}


def __dir__() -> list[str]:
    return __all__


def load_ipython_extension(shell: object) -> None:
    """Register the ``%%autogradviz`` magic; ``%load_ext autogradviz`` calls it."""
    from autogradviz.jupyter_magic import register

    register(shell)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a public name on first access."""
        from importlib import import_module

        if name == "events":
            return import_module("autogradviz.events")
        if name not in _MODULES:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message)
        value = getattr(import_module(f"autogradviz.{_MODULES[name]}"), name)
        globals()[name] = value
        return value
