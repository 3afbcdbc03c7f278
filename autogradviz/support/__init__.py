"""Helpers that know nothing of autograd."""
