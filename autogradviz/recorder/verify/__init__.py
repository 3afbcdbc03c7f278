"""Verifies gradients during a recording: nodes, edges and leaves, each by itself."""
