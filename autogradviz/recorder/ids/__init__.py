"""Ids of tensors and storages, version counters, and leaves."""
