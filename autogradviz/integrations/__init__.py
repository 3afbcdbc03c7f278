"""Integrations into programs where people already work.

Each module imports its program when it is used.
"""
