"""Runs the step of a program again, from the same state, as it is or with one thing undone."""
