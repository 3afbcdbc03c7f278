"""Shows what PyTorch's autograd did, and says which line made it fail."""

from autogradviz.comparison import Comparison, compare
from autogradviz.diagnose import Finding
from autogradviz.explain import explain
from autogradviz.recording import record
from autogradviz.trace import Trace, load
from autogradviz.view import GraphView, graph

__version__ = "0.1.0"

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
