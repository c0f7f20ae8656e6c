"""Reports to what changed between runs: two of them, a ladder, GPUs, numbers of ranks."""
