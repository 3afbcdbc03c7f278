"""The engine in Python: a dispatch mode, hooks before nodes, and the tables that they fill."""
