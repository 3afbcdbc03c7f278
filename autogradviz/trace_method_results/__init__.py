"""Views of one graph, flame graph or compiled region, as the public methods return them."""
