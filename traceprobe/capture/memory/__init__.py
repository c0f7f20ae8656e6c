"""What the memory of a GPU is for: measured in a step, or predicted before one."""
