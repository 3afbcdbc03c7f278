"""Operators: the dispatch mode, operator schemas, inputs and outputs, fingerprints."""
