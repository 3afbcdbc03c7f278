"""What the user's source says: who assigns, pops, draws, opens a context, writes memory."""
