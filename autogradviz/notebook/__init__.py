"""IPython magics, and recordings of notebook cells."""
