"""Short programs that show the error of a recording, for a bug report or a test."""
