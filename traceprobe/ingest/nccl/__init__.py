"""What PyTorch and NCCL themselves note of collectives: files to plain values."""
