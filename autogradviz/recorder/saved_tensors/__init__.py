"""Saved tensors: slots of nodes, saved-tensor hooks, and packed tensors."""
