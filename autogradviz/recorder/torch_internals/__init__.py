"""Private PyTorch APIs and workarounds for PyTorch behavior, in one place."""
