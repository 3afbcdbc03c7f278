"""Layered layout: ranking, crossing reduction, coordinates and edge routing.

NOTE [ Layout ]
Inputs are at the top and the loss is at the bottom, so gradients flow up. Each module group is laid
out once (ranks, order, bends and ports); opening a group changes only coordinates.
``scene/layout/coordinates.py`` and ``assets/viewer/layout/coordinates.js`` compute the same numbers
and share golden files; the other files with equal names in both folders correspond too. A layout
that takes longer than a frame is computed in a worker that runs the text of the bundle from a blob;
a host that forbids that computes it in the main thread. Shared parameters are badges on their
users, never hub nodes. Separate graphs are drawn below each other, in the order of their losses.
The node of a compiled region is in a group of its own, of the kind "compiled"; while it is open,
the picture of the region takes the place of the node (``scene/compiled/tables.py``,
``views/compiled/paint_and_hit_test_region_in_graph.js``). View-only chains fold into a count on
their edge; runs of identical blocks fold into one group.
"""
