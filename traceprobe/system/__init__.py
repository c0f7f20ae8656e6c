"""Files, processes and memory: what every room uses and none explains."""
