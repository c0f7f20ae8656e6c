"""What the machine is and does: its GPU and clock, its cores, what they reach at most."""
