"""Leaves and their ``requires_grad``, and changes of version counters that no operator made."""
