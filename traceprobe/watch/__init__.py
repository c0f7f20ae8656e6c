"""From what the processes of a watched run noted to its record: pace, events and their causes."""
