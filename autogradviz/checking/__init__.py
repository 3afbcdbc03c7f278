"""Checks whether the gradients of a training step are right, by relations that must hold."""
