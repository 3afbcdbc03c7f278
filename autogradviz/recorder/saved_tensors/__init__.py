"""Saved tensors: slots of nodes, saved-tensor hooks, and what they pack."""
