"""Layered graph layout; mirrored in JavaScript by ``assets/viewer/layout/``."""
