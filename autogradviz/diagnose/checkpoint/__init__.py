"""Checkpointed regions that ran differently when they were recomputed, and why."""
