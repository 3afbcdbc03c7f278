"""Undocumented PyTorch APIs and workarounds for PyTorch behavior."""
