"""What a long recording keeps, seals and lets go of, step by step."""
