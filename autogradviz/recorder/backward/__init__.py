"""The autograd engine: backwards, the graph and its nodes, hooks, gradients, steps."""
