"""Checkpointed regions, and what surrounds their two runs."""
