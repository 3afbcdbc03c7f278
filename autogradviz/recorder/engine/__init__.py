"""The graph: backwards, nodes and their slots, hooks, custom Functions, leaves."""
