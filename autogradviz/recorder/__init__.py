"""Listen to PyTorch: the only package that imports torch."""

from autogradviz.recorder.engine.graph_walk import graph_roots
from autogradviz.recorder.recorder import Recorder

__all__ = ["Recorder", "graph_roots"]
