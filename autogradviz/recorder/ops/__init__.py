"""Operators: the dispatch seam, what each wrote, and what tensors hold."""
