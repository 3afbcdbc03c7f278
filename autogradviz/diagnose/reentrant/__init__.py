"""Regions of the reentrant kind: one node that autograd does not look into."""
