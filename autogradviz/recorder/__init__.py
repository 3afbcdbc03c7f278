"""Records PyTorch; the only package, with ``demo``, that imports torch at module level."""

from autogradviz.recorder.nodes_behind_outputs import graph_roots
from autogradviz.recorder.recorder import Recorder

__all__ = ["Recorder", "graph_roots"]
