"""Shows what PyTorch's autograd did, and says which line made it fail."""

from autogradviz.recording import record
from autogradviz.trace import Trace

__version__ = "0.1.0"

__all__ = ["Trace", "__version__", "record"]
