"""PyTorch (Kineto) Chrome traces: JSON to columns."""
