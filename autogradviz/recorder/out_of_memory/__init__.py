"""What held memory when PyTorch could not allocate more."""
