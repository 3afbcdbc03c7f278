"""The demo: a small GPT that is trained, recorded, and broken by a realistic bug."""
