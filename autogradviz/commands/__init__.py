"""What the command line does: one module a command that is more than a few lines."""
