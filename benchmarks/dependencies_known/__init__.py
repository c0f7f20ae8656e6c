"""Programs of kernels that only spin, whose dependencies are known because they were drawn."""
