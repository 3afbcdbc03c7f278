"""What is numbered once and told of often: tensors, their versions, stacks."""
