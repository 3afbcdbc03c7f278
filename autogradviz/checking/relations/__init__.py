"""The relations: each module has one or two, as functions that take a ``Program``."""
