"""What is saved and read back: plain records that serialise to JSON."""
