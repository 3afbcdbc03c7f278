"""Shows what PyTorch's autograd did, and names the line that made it fail."""

from typing import TYPE_CHECKING

from autogradviz import events
from autogradviz._version import __version__
from autogradviz.analysis import (
    Analysis,
    CompiledRegion,
    Recomputation,
    Region,
    SavedBytes,
    SavedTensor,
    SourceLocation,
    TensorHistory,
)
from autogradviz.compare import Comparison, Difference, compare
from autogradviz.compiled_region_view import CompiledRegionView
from autogradviz.diagnose import Finding
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
from autogradviz.explain import Page, explain
from autogradviz.graph_view import GraphView, graph
from autogradviz.record import record
from autogradviz.runs import FirstDifference, OddRank, Run, RunFinding, load
from autogradviz.trace import Trace

if TYPE_CHECKING:
    from autogradviz.render.widget import TraceWidget

__all__ = [
    "AlreadyRecordingError",
    "Analysis",
    "AutogradvizError",
    "AutogradvizWarning",
    "Comparison",
    "CompiledRegion",
    "CompiledRegionView",
    "Difference",
    "Finding",
    "FirstDifference",
    "GraphTooLargeError",
    "GraphView",
    "Log",
    "MissingExtraError",
    "MissingProgramError",
    "NativeBuildError",
    "NotAGraphError",
    "NotATraceError",
    "OddRank",
    "OutputExistsError",
    "Page",
    "ProgramNotFoundError",
    "RankSummary",
    "Recomputation",
    "RecordingStateError",
    "Region",
    "Run",
    "RunFinding",
    "SavedBytes",
    "SavedTensor",
    "SourceLocation",
    "TensorHistory",
    "Trace",
    "TraceWidget",
    "UnknownFormatError",
    "UnknownRegionError",
    "UnknownSlugError",
    "UnsupportedTorchError",
    "__version__",
    "compare",
    "events",
    "explain",
    "graph",
    "load",
    "record",
]


def __dir__() -> list[str]:
    return __all__


def load_ipython_extension(shell: object) -> None:
    """Register the ``%%autogradviz`` magic; ``%load_ext autogradviz`` calls it."""
    from autogradviz.jupyter_magic import register

    register(shell)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import ``TraceWidget`` on first access: anywidget takes half a second."""
        if name == "TraceWidget":
            from autogradviz.render.widget import TraceWidget

            return TraceWidget
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
