"""Pure functions over columns: iterations, phases, partition, idle time, collectives."""
