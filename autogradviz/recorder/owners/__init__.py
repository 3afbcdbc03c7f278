"""The owners of tensors, nodes and graphs."""
