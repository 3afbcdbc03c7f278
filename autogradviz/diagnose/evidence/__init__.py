"""Facts that several rules derive from the analysis of a recording."""
