"""Pictures of the regions that ``torch.compile`` made."""
