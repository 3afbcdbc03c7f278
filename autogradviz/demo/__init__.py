"""A small GPT to try everything on: trained, recorded, and broken in a way that happens."""
