"""What a step would take if something of it were different."""
