"""Opening, closing and guarding a recording."""
