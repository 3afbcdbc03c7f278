"""Saved-tensor hooks and what is saved for backward."""
