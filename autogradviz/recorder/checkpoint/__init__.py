"""Checkpointed regions, and the state around their forward and recomputation."""
