"""Saved tensors that changed, left, or stayed, before backward needed them."""
