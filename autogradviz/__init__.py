"""Shows what PyTorch's autograd did, and says which line made it fail."""

from autogradviz._version import __version__
from autogradviz.compare import Comparison, compare
from autogradviz.diagnose import Finding
from autogradviz.explain import explain
from autogradviz.graph_view import GraphView, graph
from autogradviz.record import record
from autogradviz.trace import Trace, load

__all__ = [
    "Comparison",
    "Finding",
    "GraphView",
    "Trace",
    "__version__",
    "compare",
    "explain",
    "graph",
    "load",
    "record",
]


def load_ipython_extension(shell: object) -> None:
    """Give ``%load_ext autogradviz`` its magics."""
    from autogradviz.magic import register

    register(shell)
