"""Listen to PyTorch: the only package that imports torch."""

from autogradviz.recorder.recorder import Recorder, caller_id

__all__ = ["Recorder", "caller_id"]
