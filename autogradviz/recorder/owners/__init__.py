"""Who keeps a tensor, a node or a graph alive."""
