"""Graphs of compilers as plain values, and the events that describe them; without PyTorch."""
