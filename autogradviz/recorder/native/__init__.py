"""The native engine: operators observed from C++, at a fraction of a dispatch mode's cost."""
