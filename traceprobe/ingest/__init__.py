"""Bytes to columns: trace files of PyTorch (Kineto) and of Nsight Systems."""
