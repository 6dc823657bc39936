"""PyTorch hooks under version control."""

__version__ = "0.1.0"
