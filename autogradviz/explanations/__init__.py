"""Documentation pages of findings and errors, as Markdown files, and their loader."""
