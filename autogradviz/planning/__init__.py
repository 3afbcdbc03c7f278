"""Records a training step that never runs: with fake tensors, which have sizes and no memory."""
