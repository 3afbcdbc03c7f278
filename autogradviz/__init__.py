"""Shows what PyTorch's autograd did, and says which line made it fail."""

__version__ = "0.1.0"
