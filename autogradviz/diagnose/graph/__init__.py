"""The graph and its gradients: where a way ends, what is missing, what is not finite."""
