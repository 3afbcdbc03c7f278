"""Live views: the steps of a recording while it is written."""
