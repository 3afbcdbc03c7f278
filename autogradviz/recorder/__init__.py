"""Listen to PyTorch: the only package that imports torch."""

from autogradviz.recorder.graph.nodes import graph_roots
from autogradviz.recorder.recorder import Recorder

__all__ = ["Recorder", "graph_roots"]
