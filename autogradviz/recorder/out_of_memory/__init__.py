"""Allocations that failed, and the tensors that held memory then."""
