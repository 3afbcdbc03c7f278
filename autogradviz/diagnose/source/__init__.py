"""Static analysis of the user's source: assignments, mutations, contexts, aliases, threads."""
